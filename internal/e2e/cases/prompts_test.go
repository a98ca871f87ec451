package cases_test

import (
	"bytes"
	"encoding/json"
	"iter"
	"testing"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// wantBytes fails the test unless the pods have received exactly the bodies that
// were sent, each once.
func (s *site) wantBytes(t testing.TB, sent ...testcaddy.Sent) {
	t.Helper()
	left := map[string]int{}
	for _, q := range s.pods.Received() {
		left[q.SHA256]++
	}
	for _, r := range sent {
		if left[sum(r.Request.Body)] == 0 {
			t.Errorf("%s %d: its %d bytes have reached no pod", r.Name, r.N, len(r.Request.Body))
		}
		left[sum(r.Request.Body)]--
	}
	if got := s.pods.Total(); got != len(sent) {
		t.Errorf("%d requests were sent, the pods received %v", len(sent), s.pods.Counts())
	}
}

// TestBR08: a gzip request body.
func TestBR08(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	cl := s.Client(t, testcaddy.H1)
	sent := cl.SendCases(t, c.Requests("gz-warm"))
	wantPod(t, "b", sent...)
	s.all(t)
	follow := cl.SendCases(t, c.Requests("gz-follow", "plain-follow"))
	c.expect(t, 1, "all answered 200", func(t *testing.T) { wantStatus(t, 200, append(sent, follow...)...) })
	c.expect(t, 2, "each pod receives either", func(t *testing.T) { s.wantCoding(t) })
	c.expect(t, 3, "all 'gz-follow' and 'plain-follow' reach pod b", func(t *testing.T) { wantPod(t, "b", follow...) })
	s.Stop()

	d := serveDispatch(t)
	d.all(t)
	answer := d.Client(t, testcaddy.H1).SendCases(t, c.Requests("gz-dispatch"))
	c.expect(t, 1, "all answered 200", func(t *testing.T) { wantStatus(t, 200, answer...) })
	c.expect(t, 2, "each pod receives either", func(t *testing.T) { d.wantCoding(t) })
	c.expect(t, 4, "gz-dispatch: the prefill pod's body", func(t *testing.T) {
		if d.prefill.Total() != 1 || d.decode.Total() != 1 {
			t.Fatalf("received: %v", d.pods.Counts())
		}
		q := d.prefill.Received()[0]
		plain, err := q.Decoded()
		if err != nil || !json.Valid(plain) {
			t.Fatalf("the prefill pod got no JSON (%v): %s", err, plain)
		}
		if limit, _ := q.Member("max_tokens"); string(limit) != "1" {
			t.Errorf("max_tokens is %s: %s", limit, plain)
		}
	})
}

// wantCoding fails the test unless what each pod got is coded as it is labelled,
// and its length is what is said.
func (s *site) wantCoding(t testing.TB) {
	t.Helper()
	for _, q := range s.pods.Received() {
		zipped := bytes.HasPrefix(q.Body, []byte("\x1f\x8b"))
		if label := q.Header.Get("Content-Encoding"); (label == "gzip") != zipped || label != "" && label != "gzip" {
			t.Errorf("%v: Content-Encoding is %q, zipped is %v", q, label, zipped)
		}
		if plain, err := q.Decoded(); err != nil || !json.Valid(plain) {
			t.Errorf("%v: no JSON (%v): %s", q, err, plain)
		}
		if q.ContentLength != int64(len(q.Body)) {
			t.Errorf("%v: Content-Length is %d", q, q.ContentLength)
		}
	}
}

// TestBR12: escapes inside JSON strings.
func TestBR12(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	cl := s.Client(t, testcaddy.H1)
	warm := cl.SendCases(t, c.Requests("warm-X"))
	wantPod(t, "b", warm...)
	s.only(t, "c")
	warmY := cl.SendCases(t, c.Requests("warm-Y"))
	wantPod(t, "c", warmY...)
	s.all(t)
	x, y := c.Named(t, "follow-X"), c.Named(t, "follow-Y")
	all := append(warm, warmY...)
	follow := map[string][]testcaddy.Sent{}
	for r := range alternating(x, y) {
		sent := cl.SendCases(t, one(r))
		follow[r.Name] = append(follow[r.Name], sent...)
		all = append(all, sent...)
	}
	c.expect(t, 1, "no request is refused by the gateway", func(t *testing.T) { wantStatus(t, 200, all...) })
	c.expect(t, 2, "all 5 'follow-X' reach pod b", func(t *testing.T) {
		wantPod(t, "b", follow["follow-X"]...)
		wantPod(t, "c", follow["follow-Y"]...)
		if len(follow["follow-X"]) != 5 || len(follow["follow-Y"]) != 5 {
			t.Errorf("%d and %d were sent", len(follow["follow-X"]), len(follow["follow-Y"]))
		}
	})
	c.expect(t, 3, "each pod receives exactly the bytes", func(t *testing.T) { s.wantBytes(t, all...) })
}

// alternating yields the requests of both lists in turn.
func alternating(x, y []cases.Request) iter.Seq[cases.Request] {
	return func(yield func(cases.Request) bool) {
		for k := range max(len(x), len(y)) {
			if k < len(x) && !yield(x[k]) || k < len(y) && !yield(y[k]) {
				return
			}
		}
	}
}

// first yields the first n requests.
func first(n int, all iter.Seq[cases.Request]) iter.Seq[cases.Request] {
	return func(yield func(cases.Request) bool) {
		left := n
		for r := range all {
			if left--; left < 0 || !yield(r) {
				return
			}
		}
	}
}

// one yields one request.
func one(r cases.Request) iter.Seq[cases.Request] {
	return func(yield func(cases.Request) bool) { yield(r) }
}

// TestBR37: a completions prompt as token ids.
func TestBR37(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "c", abcd)
	cl := s.Client(t, testcaddy.H1)
	all := cl.SendCases(t, c.Requests("ids-warm"))
	wantPod(t, "c", all...)
	s.all(t)
	follow := cl.SendCases(t, c.Requests("ids-follow"))
	all = append(all, follow...)
	all = append(all, cl.SendCases(t, c.Requests("ids-batch", "strings-batch", "mixed-odd"))...)
	c.expect(t, 1, "all five requests are forwarded", func(t *testing.T) {
		wantStatus(t, 200, all...)
		s.wantBytes(t, all...)
	})
	c.expect(t, 2, "all 5 'ids-follow' reach pod c", func(t *testing.T) { wantPod(t, "c", follow...) })
	c.expect(t, 3, "no 4xx or 5xx comes from the gateway itself", func(t *testing.T) {
		for _, r := range all {
			if r.Pod() == "" {
				t.Errorf("%s: %v", r.Name, r.Answer)
			}
		}
	})
}

// TestBR40: same words, different picture.
func TestBR40(t *testing.T) {
	c := begin(t)
	s := serveOnly(t, "b", abcd)
	cl := s.Client(t, testcaddy.H1)
	all := cl.SendCases(t, c.Requests("warm-image-1"))
	wantPod(t, "b", all...)
	s.all(t)
	others := cl.SendCases(t, c.Requests("other-images"))
	data := cl.SendCases(t, c.Requests("data-url-images"))
	again := cl.SendCases(t, c.Requests("warm-image-1-again"))
	all = append(append(append(all, others...), data...), again...)
	c.expect(t, 1, "every request answers 200", func(t *testing.T) {
		wantStatus(t, 200, all...)
		s.wantBytes(t, all...)
	})
	c.expect(t, 2, "the 24 requests of 'other-images'", func(t *testing.T) {
		used := testcaddy.Pods(others)
		if len(others) != 24 || used["b"] > 12 || len(used) < 3 {
			t.Errorf("answered by %v", used)
		}
	})
	c.expect(t, 3, "the 16 requests of 'data-url-images'", func(t *testing.T) {
		if used := testcaddy.Pods(data); len(data) != 16 || len(used) < 3 {
			t.Errorf("answered by %v", used)
		}
	})
	c.expect(t, 4, "all 6 repeats of 'warm-image-1-again'", func(t *testing.T) {
		wantPod(t, "b", again...) // the picture's identity makes the prompt longer than the words
		if len(again) != 6 {
			t.Errorf("%d were sent", len(again))
		}
	})
}
