package calinix_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
	"github.com/calinix/caddy-calinix/replay"
)

// TestLogTrace: the access log of a balancer with log_trace is a trace, in which
// prompts that begin the same share ids, and nothing else does.
func TestLogTrace(t *testing.T) {
	ps, pre, dec := pods(t, "a"), pods(t, "p"), pods(t, "d")
	s := serve(t, "log_trace on\n"+single(ps)+dispatch(pre, dec))
	cl := s.Client(t, testcaddy.H2)
	long := strings.Repeat("a word or two, ", 400) // 6000 bytes
	mark := s.Log.Mark()
	for _, r := range []struct{ body, mode string }{
		{chat(long), "single"},
		{chat(long + "and more"), "single"},
		{chat(long, `"stream":true`), "single"},
		{chat("another " + long), "single"},
		{chat(long, `"max_tokens":3`), "dispatch"},
		{chat(strings.Repeat("x", 9000)), "single"},
		{chat("short"), "single"},
	} {
		if a := cl.Post(t, chatPath, r.body, "x-calinix-mode", r.mode); a.Status != 200 {
			t.Fatal(a)
		}
	}
	cl.Get(t, "/v1/models")
	var log strings.Builder
	var lines [][]int64
	var outputs []int
	for n := 0; n < 8; {
		n = 0
		log.Reset()
		lines, outputs = nil, nil
		for _, e := range s.Log.Entries()[mark:] {
			log.WriteString(e.Line + "\n")
			if strings.HasPrefix(e.Logger, "http.log.access") {
				n++
			}
			var l struct {
				Trace *struct {
					Input  int     `json:"input_length"`
					Output int     `json:"output_length"`
					IDs    []int64 `json:"hash_ids"`
				} `json:"calinix_trace"`
			}
			if err := json.Unmarshal([]byte(e.Line), &l); err != nil {
				t.Fatal(err)
			}
			if l.Trace == nil {
				continue
			}
			lines, outputs = append(lines, l.Trace.IDs), append(outputs, l.Trace.Output)
			if want := (l.Trace.Input + 511) / 512; len(l.Trace.IDs) != want {
				t.Errorf("%d ids for %d tokens, want %d", len(l.Trace.IDs), l.Trace.Input, want)
			}
		}
	}
	if len(lines) != 7 || len(lines[0]) != 3 {
		t.Fatalf("ids %v", lines)
	}
	for i, want := range []int{3, 2, 3, 0, 3, 0, 0} {
		got := 0
		for got < len(lines[0]) && got < len(lines[i]) && lines[i][got] == lines[0][got] {
			got++
		}
		if got != want {
			t.Errorf("request %d shares %d ids with the first, want %d: %v", i, got, want, lines[i])
		}
	}
	if ids := slices.Compact(slices.Sorted(slices.Values(lines[5]))); len(ids) != len(lines[5]) {
		t.Errorf("one long word: %v", lines[5])
	}
	if slices.Min(outputs) < 1 {
		t.Errorf("lengths of answers %v", outputs)
	}

	trace, err := replay.ReadMooncake(strings.NewReader(log.String()), 1)
	if err != nil || len(trace.Requests) != 7 {
		t.Fatalf("as a trace: %v, %+v", err, trace)
	}
	p, _ := replay.PolicyNamed("expectedTTFT")
	if _, err := (replay.Run{Trace: trace, Policy: p, Pods: 2, Engine: replay.H100(), Rate: 1}).Do(); err != nil {
		t.Error(err)
	}

	// Without it there is nothing of the kind, and the replay says what to do.
	s.reload(t, single(ps))
	mark = s.Log.Mark()
	s.Client(t, testcaddy.H2).Post(t, chatPath, chat(long))
	line := s.accessAfter(t, mark).Line
	if strings.Contains(line, "calinix_trace") {
		t.Error(line)
	}
	if _, err := replay.ReadMooncake(strings.NewReader(line), 1); err == nil || !strings.Contains(err.Error(), "log_trace") {
		t.Error(fmt.Sprint(err))
	}
}
