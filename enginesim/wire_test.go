package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestWire plays testdata/wire, which is typed from what the engines' documentation
// and proxies say: the two legs find each other, and what is wrong is refused with the
// status and the words that the head of each refusal has. The parts of a file:
//
//	prefill                   a leg at the prefill engine. The parts that follow it run
//	                          beside it, but for reply, which waits for its answer
//	reply PATH                what the answer has at that path, member for member;
//	                          "$name" stands for anything, and names it
//	decode                    a leg at the decode engine, which gets the prompt computed;
//	                          $name is what was named
//	alone                     a request at the decode engine, which computes it
//	refused [LEG] STATUS WORDS  a leg (decode, if none is named) that is refused
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no exchanges", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(string(text), "\n-- ")
			w := newWire(t, parts[0])
			for _, part := range parts[1:] {
				name, body, _ := strings.Cut(part, " --\n")
				w.play(strings.Fields(name), strings.TrimSpace(w.fill(body)))
			}
			w.prefilled()
		})
	}
}

// wire is a prefill and a decode engine between which a file is played.
type wire struct {
	t     *testing.T
	head  map[string]string
	at    map[string]string // URLs by leg
	named map[string]string // what replies had for a "$name"
	prior chan answer       // of the prefill leg that is under way; nil: none is
	reply []byte            // of the last one
}

type answer struct {
	status int
	body   []byte
}

func newWire(t *testing.T, head string) *wire {
	w := &wire{t: t, head: map[string]string{"cached": "2"}, at: map[string]string{}, named: map[string]string{}}
	for line := range strings.Lines(head) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && name[0] != '#' {
			w.head[name] = value
		}
	}
	peers := NewPeers()
	for i, leg := range []string{"prefill", "decode"} {
		set := fast()
		set.KVConnector, set.KVWaitTimeout = w.head["connector"], Duration(300*time.Millisecond)
		set.EngineID, set.KVAddress = leg[:1]+"-engine", fmt.Sprintf("127.0.0.1:%d", 5600+i)
		if w.head["roles"] != "" {
			set.Role = leg
		}
		e, err := New(set, SystemClock(), peers)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(e)
		t.Cleanup(s.Close)
		w.at[leg] = s.URL
	}
	return w
}

// play plays one part.
func (w *wire) play(words []string, body string) {
	switch words[0] {
	case "prefill":
		w.prefilled()
		prior := make(chan answer, 1)
		w.prior = prior
		go func() { prior <- w.post("prefill", body) }()
	case "reply":
		w.prefilled()
		w.compare(words[1], body)
	case "decode", "alone":
		cached := map[string]string{"decode": w.head["cached"], "alone": "0"}[words[0]]
		if a := w.post("decode", body); a.status != 200 || !strings.Contains(string(a.body), `"cached_tokens":`+cached+`}`) {
			w.t.Errorf("decode leg: %d %s", a.status, a.body)
		}
		w.prefilled()
	case "refused":
		leg, words := "decode", words[1:]
		if words[0] == "prefill" {
			leg, words = words[0], words[1:]
		}
		a := w.post(leg, body)
		if strconv.Itoa(a.status) != words[0] || !strings.Contains(strings.ReplaceAll(string(a.body), `\"`, `"`), strings.Join(words[1:], " ")) {
			w.t.Errorf("%s\nwant %q, got %d %s", body, words, a.status, a.body)
		}
	default:
		w.t.Fatalf("part %q", words)
	}
}

// prefilled waits for the answer of the prefill leg that is under way.
func (w *wire) prefilled() {
	if w.prior == nil {
		return
	}
	a := <-w.prior
	w.prior, w.reply = nil, a.body
	if a.status != 200 {
		w.t.Errorf("prefill leg: %d %s", a.status, a.body)
	}
}

func (w *wire) post(leg, body string) answer {
	req, err := http.NewRequest(http.MethodPost, w.at[leg]+"/v1/completions", strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return answer{}
	}
	req.Header.Set("X-Request-Id", w.head["x-request-id"])
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		w.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answer{resp.StatusCode, text}
}

var variable = regexp.MustCompile(`\$[a-z_]+`)

// fill puts what was named in the place of its names.
func (w *wire) fill(body string) string {
	return variable.ReplaceAllStringFunc(body, func(name string) string {
		if value, ok := w.named[name]; ok {
			return value
		}
		return name
	})
}

// compare compares what the reply has at the path with what is wanted, and names
// parts of it.
func (w *wire) compare(path, want string) {
	w.t.Helper()
	at := json.RawMessage(w.reply)
	for step := range strings.SplitSeq(path, ".") {
		if i, err := strconv.Atoi(step); err == nil {
			var list []json.RawMessage
			if json.Unmarshal(at, &list) != nil || i >= len(list) {
				w.t.Fatalf("no %s: %s", path, w.reply)
			}
			at = list[i]
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil || object[step] == nil {
			w.t.Fatalf("no %s: %s", path, w.reply)
		}
		at = object[step]
	}
	w.same(path, at, json.RawMessage(want))
}

// same compares objects member for member, and all else as it is spelled.
func (w *wire) same(path string, got, want json.RawMessage) {
	w.t.Helper()
	var name string
	if json.Unmarshal(want, &name) == nil && variable.MatchString(name) {
		w.named[name] = string(got)
		return
	}
	var has, wants map[string]json.RawMessage
	if json.Unmarshal(want, &wants) != nil {
		if !bytes.Equal(got, want) {
			w.t.Errorf("%s: %s, want %s", path, got, want)
		}
		return
	}
	if err := json.Unmarshal(got, &has); err != nil || len(has) != len(wants) {
		w.t.Errorf("%s: %s, want the members of %s", path, got, want)
	}
	for member, value := range wants {
		if has[member] == nil {
			w.t.Errorf("%s: %s has no %s", path, got, member)
			continue
		}
		w.same(path+"."+member, has[member], value)
	}
}
