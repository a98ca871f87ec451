package calinix

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/replay"
)

// traceFile writes generated chats as a trace of Mooncake.
func traceFile(t *testing.T, requests int) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range replay.Conversations(requests, 1).Requests {
		line, err := json.Marshal(map[string]any{
			"timestamp": int(r.At), "input_length": r.Input, "output_length": r.Output, "hash_ids": r.Blocks,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// replayed runs the command with arguments and returns what it prints.
func replayed(args ...string) (string, error) {
	cmd := replayCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestReplayCommand(t *testing.T) {
	file := traceFile(t, 200)
	out, err := replayed(file, "--pods", "4", "--rates", "2,5", "--policies", "expectedTTFT,seed")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"200 requests", "2.00 requests a second", "5.00 requests a second", "expectedTTFT", "seed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
	if strings.Contains(out, "oracle") {
		t.Errorf("more policies than asked for: %s", out)
	}
	dir := t.TempDir()
	csv, html := filepath.Join(dir, "r.csv"), filepath.Join(dir, "r.html")
	if _, err := replayed(file, "--rates", "3", "--policies", "seed", "--csv", csv, "--html", html, "--svg", filepath.Join(dir, "plots", "new")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{csv: "policy,rate", html: "<!doctype html>", filepath.Join(dir, "plots", "new", "p99.svg"): "<svg"} {
		if got, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(got, []byte(want)) {
			t.Errorf("%s: %v, begins with %.40q", name, err, got)
		}
	}
	out, err = replayed(file, "--loads", "0.5", "--policies", "random")
	if err != nil || strings.Count(out, "random") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestReplayProgress: on a terminal a bar says how many runs are done; what is no
// terminal gets nothing.
func TestReplayProgress(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if p := newProgress(file); p.out != nil {
		t.Error("a file is taken for a terminal")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if p := newProgress(null); p.out == nil {
		t.Error("a character device is not written to")
	}
	p := &progress{out: file}
	p.of(8)(2)
	p.of(0)(3)
	p.clear()
	got, err := os.ReadFile(file.Name())
	want := "\r\x1b[K[" + strings.Repeat("#", 10) + strings.Repeat(".", 30) + "] 2 of 8 runs\r\x1b[K3 runs\r\x1b[K"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestReplayGates: each gate is a line that ends in its verdict, and a miss is
// an error.
func TestReplayGates(t *testing.T) {
	out, err := replayed(traceFile(t, 150), "--gates")
	pass, miss := 0, 0
	for line := range strings.Lines(out) {
		switch {
		case strings.HasSuffix(line, "  pass\n"):
			pass++
		case strings.HasSuffix(line, "  miss\n"):
			miss++
		}
	}
	if pass+miss != 7 || (miss > 0) != errors.Is(err, errGates) {
		t.Errorf("%d pass, %d miss, error %v: %s", pass, miss, err, out)
	}
}

func TestReplayRefuses(t *testing.T) {
	file := traceFile(t, 3)
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "accepts 1 arg(s), received 0"},
		{[]string{filepath.Join(t.TempDir(), "none")}, "no such file"},
		{[]string{empty}, "empty.jsonl: the trace is empty"},
		{[]string{file, "--policies", "cleverest"}, `policy "cleverest": unknown, want one of expectedTTFT, expectedTTFT+hold, cacheAware`},
		{[]string{file, "--pods", "0"}, "0 pods, want 1 to 64"},
		{[]string{file, "--rates", "0"}, "a rate of 0"},
		{[]string{file, "--blocks", "-1"}, "--blocks -1"},
		{[]string{file, "--hold", "0s"}, "--hold 0s, --ageing 0.1, --transit 0s: want more than 0"},
		{[]string{file, "--ageing", "-1"}, "--ageing -1"},
		{[]string{file, "--transit", "-1ms"}, "--transit -1ms"},
	} {
		if _, err := replayed(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
