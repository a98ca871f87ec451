package fleet

import (
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// ttft is a request for a prompt under ExpectedTTFT.
func ttft(prompt *text) *Ask {
	a := ask(prompt)
	a.Strategy = selection.ExpectedTTFT
	return a
}

// TestConversationStaysUnlessItsPodIsBusy: a cached prefix draws a request to
// its pod, and a long queue there drives it away.
func TestConversationStaysUnlessItsPodIsBusy(t *testing.T) {
	f := fleetOf(t, single(4))
	turn := func(n int) *Ask { return ttft(words(run("chat", n)...)) }
	first := begin(t, f, turn(100)) // 1600 tokens
	home := first.Ref()
	first.FirstByte(epoch)
	first.End(epoch, outcome.Answered)

	second := begin(t, f, turn(110))
	if second.Ref() != home || second.Depth != 100 {
		t.Fatalf("the second turn went to %s with depth %d", second.Pod().ID, second.Depth)
	}
	second.FirstByte(epoch)
	second.End(epoch, outcome.Answered)

	// A long prompt of somebody else is put into the pod's queue.
	long := ttft(words(run("book", 400)...)) // 6400 tokens
	for slot := range 4 {
		if uint8(slot) != home.Slot {
			long.Exclude.Set(slot)
		}
	}
	stranger := begin(t, f, long)
	third := begin(t, f, turn(120))
	if third.Ref() == home {
		t.Error("the third turn waits behind 6400 tokens for the sake of 1760")
	}
	third.End(epoch, outcome.Unreachable) // and its prompt is forgotten
	// Most of the queue drains with time alone, at 2000 tokens a second.
	fourth := &Lease{}
	if err := f.Begin(epoch.Add(3100*time.Millisecond), turn(120), fourth); err != nil {
		t.Fatal(err)
	}
	if fourth.Ref() != home {
		t.Errorf("the fourth turn went to %s, though its pod is nearly free", fourth.Pod().ID)
	}
	stranger.End(epoch, outcome.ClientGone)
	fourth.End(epoch, outcome.ClientGone)
}

// TestHotPrefixIsReplicated: a prefix that everybody asks for spreads before
// its one pod is overrun, and one that nobody asks for does not.
func TestHotPrefixIsReplicated(t *testing.T) {
	spread := func(a func() *Ask, n int) int {
		f := fleetOf(t, single(4))
		served := map[string]bool{}
		now := epoch
		for range n {
			l := &Lease{}
			if err := f.Begin(now, a(), l); err != nil {
				t.Fatal(err)
			}
			served[l.Pod().ID] = true
			now = now.Add(50 * time.Millisecond)
			// The answer goes on: decoding is the only load that is left.
			l.FirstByte(now)
		}
		return len(served)
	}
	hot := func(eta float64) func() *Ask {
		return func() *Ask {
			a := ttft(words(run("hot", 256)...))
			a.TTFT = selection.DefaultTTFT()
			a.TTFT.Eta = eta
			return a
		}
	}
	if with, without := spread(hot(0.7), 60), spread(hot(0), 60); with <= without {
		t.Errorf("the hot prompt is on %d pods with replication, on %d without", with, without)
	}
}

// TestWholeAnswers: of an answer that comes in one piece the first byte is taken
// for come after its uncached part had the time to be computed.
func TestWholeAnswers(t *testing.T) {
	f := fleetOf(t, single(1))
	a := ttft(words(run("whole", 250)...)) // 4000 tokens: 2 s
	a.Whole = true
	b := ttft(words(run("streamed", 125)...)) // 2000 tokens
	w, s := begin(t, f, a), begin(t, f, b)
	backlog := func(at time.Duration) selection.Backlog {
		f.mu.Lock()
		f.settle(f.clock(epoch.Add(at)))
		f.mu.Unlock()
		return of(t, f, "pod-0").Backlog
	}
	ms := func(n int) int64 { return int64(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		after time.Duration
		want  selection.Backlog
	}{
		{0, selection.Backlog{Uncached: 6000, Prompts: 6000, Empty: ms(3000)}},
		{1999 * time.Millisecond, selection.Backlog{Uncached: 6000, Prompts: 6000, Empty: ms(3000)}},
		{2 * time.Second, selection.Backlog{Uncached: 2000, Prompts: 6000, Decoding: 4000, Decoders: 1, Empty: ms(3000)}},
	} {
		if got := backlog(c.after); got != c.want {
			t.Errorf("after %v: %+v, want %+v", c.after, got, c.want)
		}
	}
	w.FirstByte(epoch.Add(5 * time.Second)) // its body comes, all at once
	w.End(epoch.Add(5*time.Second), outcome.Answered)
	s.FirstByte(epoch.Add(6 * time.Second))
	s.End(epoch.Add(7*time.Second), outcome.Answered)
	if got := backlog(8 * time.Second); got != (selection.Backlog{Empty: ms(6000)}) {
		t.Errorf("left: %+v", got)
	}
	if len(f.estimates) != 0 {
		t.Errorf("%d legs are still estimated", len(f.estimates))
	}
}

// TestPairByCost: the prefill pod is picked by wait and work, the decode pod by
// the company that it keeps.
func TestPairByCost(t *testing.T) {
	pods := single(4)
	for i := range pods {
		pods[i].Roles = RoleSet(0).With(Prefill)
		if i >= 2 {
			pods[i].Roles = RoleSet(0).With(Decode)
		}
	}
	f := fleetOf(t, pods)
	pair := func(prompt *text) (p, d *Lease) {
		a := ttft(prompt)
		a.Role = Prefill
		p = begin(t, f, a)
		a = ttft(prompt)
		a.Role, a.Near, a.HasNear = Decode, p.Ref(), true
		return p, begin(t, f, a)
	}
	p1, d1 := pair(words(run("one", 500)...))
	p2, d2 := pair(words(run("two", 100)...))
	if p1.Ref() == p2.Ref() || d1.Ref() == d2.Ref() {
		t.Fatalf("two pairs share a pod: %s %s, %s %s", p1.Pod().ID, d1.Pod().ID, p2.Pod().ID, d2.Pod().ID)
	}
	if b := of(t, f, d1.Pod().ID).Backlog; b.Uncached != 0 || b.Prompts != 8000 {
		t.Errorf("the decode pod is taken to compute: %+v", b)
	}
	for _, l := range []*Lease{p1, p2} {
		l.FirstByte(epoch)
		if b := of(t, f, l.Pod().ID).Backlog; b.Decoders != 0 || b.Uncached != 0 {
			t.Errorf("the prefill pod %s: %+v", l.Pod().ID, b)
		}
		l.End(epoch, outcome.Answered)
	}
	// The fewer tokens are decoded at d2, and the second turn of the first
	// conversation goes there although d1 holds its prompt.
	d1.FirstByte(epoch)
	d2.FirstByte(epoch)
	p3, d3 := pair(words(run("one", 510)...))
	if p3.Ref() != p1.Ref() {
		t.Errorf("prefill went to %s, %s holds the prompt", p3.Pod().ID, p1.Pod().ID)
	}
	if d3.Ref() != d2.Ref() {
		t.Errorf("decode went to %s, %s has less to decode", d3.Pod().ID, d2.Pod().ID)
	}
}
