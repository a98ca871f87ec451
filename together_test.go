package calinix_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// roomOf is the bootstrap_room of a leg, digit by digit.
func roomOf(t *testing.T, q fakepod.Request) string {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(q.Body, &body); err != nil || len(body["bootstrap_room"]) == 0 {
		t.Fatalf("no bootstrap_room (%v): %s", err, q.Body)
	}
	return string(body["bootstrap_room"])
}

// TestTogetherElsewhere: when the prefill leg of a pair fails, the decode leg, which
// waits for it, is cancelled, and both are sent again with a fresh room.
func TestTogetherElsewhere(t *testing.T) {
	for _, c := range prefillFaults {
		switch c.name {
		case "no JSON", "half JSON", "a stream":
			continue // nothing is read of a reply
		case "silent":
			continue // the limit on headers is the decode leg's too
		}
		prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
		s := serve(t, inOrder+dispatch(prefill, decode, "connector sglang"))
		c.fail(prefill[0])
		decode[0].Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
			return fakepod.Reply{Silent: r.Header.Get("X-Calinix-Prefill-Pod-Id") == "p1"}
		}))
		a := s.Client(t, testcaddy.H2).Post(t, chatPath, question)
		if a.Status != 200 || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p2" {
			t.Errorf("%s: %v", c.name, a)
		}
		// What the decode pod has seen of the leg that was cancelled, and when, is
		// left to chance.
		room := roomOf(t, prefill[1].Last(t))
		var rooms []string
		for _, leg := range decode.Received() {
			if leg.Header.Get("X-Calinix-Prefill-Pod-Id") == "p2" {
				rooms = append(rooms, roomOf(t, leg))
			} else if leg.BodyRead && roomOf(t, leg) == room {
				t.Errorf("%s: both tries have room %s", c.name, room)
			}
		}
		if len(rooms) != 1 || rooms[0] != room || prefill[1].Count() != 1 {
			t.Errorf("%s: rooms %s at d1, %s at p2", c.name, rooms, room)
		}
		s.waitCount(t, 1, "calinix_prefill_failures_total", "reason", c.reason)
		s.waitCount(t, 1, "calinix_retries_total", "reason", c.reason)
		s.waitIdle(t, decode)
		s.Stop()
	}
}

// TestTogetherBothAgain: a decode pod that waits when the prefill leg fails sees its
// leg end, and gets another one with another room.
func TestTogetherBothAgain(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, inOrder+dispatch(prefill, decode, "connector sglang"))
	hold := make(chan struct{})
	prefill[0].Set(fakepod.Reply{Status: 500, Hold: hold})
	decode[0].Next(silent) // the first try's leg: p1 fails only when it has come
	answer := make(chan *testcaddy.Answer, 1)
	cl := s.Client(t, testcaddy.H2)
	go func() { answer <- cl.Post(t, chatPath, question) }()
	decode[0].WaitRequests(t, 1)
	close(hold)
	if a := <-answer; a.Status != 200 || a.Header.Get("X-Calinix-Prefill-Pod-Id") != "p2" {
		t.Fatal(a)
	}
	decode[0].WaitClosed(t, 1)
	legs := decode.Received()
	if len(legs) != 2 || roomOf(t, legs[0]) != roomOf(t, prefill[0].Last(t)) ||
		roomOf(t, legs[1]) != roomOf(t, prefill[1].Last(t)) || roomOf(t, legs[0]) == roomOf(t, legs[1]) {
		t.Errorf("%d decode legs: %v", len(legs), legs)
	}
	s.waitIdle(t, prefill, decode)
}

// TestTogetherDecodeElsewhere: a decode pod that is not there takes the prefill leg
// along; both are sent again, and that is a retry.
func TestTogetherDecodeElsewhere(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1", "d2")
	s := serve(t, inOrder+dispatch(prefill, decode, "connector sglang"))
	asked := make(chan struct{}) // the prefill pod, in the second try
	prefill[0].Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
		if r.Header.Get("X-Calinix-Decode-Pod-Id") == "d1" {
			return fakepod.Reply{Silent: true}
		}
		close(asked)
		return fakepod.Reply{}
	}))
	decode[0].Refuse()
	decode[1].Set(fakepod.Reply{Hold: asked})
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, question)
	if a.Status != 200 || a.Pod() != "d2" {
		t.Fatal(a)
	}
	room := roomOf(t, decode[1].Last(t))
	for _, leg := range prefill.Received() {
		if second := leg.Header.Get("X-Calinix-Decode-Pod-Id") == "d2"; second && roomOf(t, leg) != room {
			t.Errorf("rooms %s and %s", roomOf(t, leg), room)
		}
	}
	s.waitCount(t, 1, "calinix_retries_total", "reason", "unreachable")
	s.waitCount(t, 0, "calinix_prefill_failures_total")
	s.waitIdle(t, prefill)
}

// TestTogetherDecodeOnly: without a further prefill pod decodeOnly gives a decode
// pod the client's body; a 4xx of the prefill pod is the client's.
func TestTogetherDecodeOnly(t *testing.T) {
	prefill, decode := pods(t, "p1"), pods(t, "d1")
	s := serve(t, dispatch(prefill, decode, "connector sglang", "on_prefill_failure decode_only"))
	cl := s.Client(t, testcaddy.H1)
	prefill[0].Next(fakepod.Reply{Status: 500})
	decode[0].Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply {
		return fakepod.Reply{Silent: bytes.Contains(r.Body, []byte("bootstrap_room"))}
	}))
	a := cl.Post(t, chatPath, question)
	if a.Status != 200 || !strings.HasSuffix(a.Header.Get("X-Calinix-Route-Policy"), ";decode-only") || string(decode[0].Last(t).Body) != question {
		t.Errorf("%v: %s", a, decode[0].Last(t).Body)
	}
	prefill[0].Next(fakepod.Reply{Status: 429, Body: []byte(`{"object":"error"}`)})
	if a := cl.Post(t, chatPath, question); a.Status != 429 || string(a.Body) != `{"object":"error"}` {
		t.Error(a)
	}
	s.waitIdle(t, prefill, decode)
}

// TestTogetherTooLate: a prefill leg that fails when the decode leg's answer has
// begun is counted. Nothing else comes of it: the prompt was computed.
func TestTogetherTooLate(t *testing.T) {
	prefill, decode := pods(t, "p1", "p2"), pods(t, "d1")
	s := serve(t, inOrder+dispatch(prefill, decode, "connector sglang"))
	fail, end := make(chan struct{}), make(chan struct{})
	prefill[0].Set(fakepod.Reply{Status: 500, Hold: fail})
	decode[0].Set(fakepod.Reply{Stream: fakepod.Always, Hold: end, HoldAfter: 2})
	st := s.Client(t, testcaddy.H2).Stream(t, chatPath, chat(words("late", 100), `"stream":true`))
	st.Take(t, 2)
	close(fail)
	s.waitCount(t, 1, "calinix_prefill_failures_total", "reason", "refused_5xx")
	close(end)
	if _, err := st.All(); err != nil {
		t.Error(err)
	}
	s.waitIdle(t, prefill, decode)
	if p := s.pod(t, "p1"); p.Blocks == 0 {
		t.Error("what the prefill pod has computed is forgotten")
	}
	if n := s.count(t, "calinix_retries_total"); n != 0 || prefill[1].Count() != 0 || decode[0].Count() != 1 {
		t.Errorf("%v retries, p2 got %d requests, d1 %d", n, prefill[1].Count(), decode[0].Count())
	}
}
