package fleet

import (
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
)

// TestUndo: the blocks of a leg that failed before its first byte go, unless
// the pod has computed the prompt; those of another leg are there when it has been
// answered.
func TestUndo(t *testing.T) {
	prompt := run("w", 30)
	outcome.All(func(o outcome.Outcome) {
		t.Run(o.String(), func(t *testing.T) {
			f := fleetOf(t, single(1))
			blocks := func(want int) {
				t.Helper()
				if n := of(t, f, "pod-0").Blocks; n != want {
					t.Errorf("%d blocks, want %d", n, want)
				}
			}
			kept := 30
			if o.UndoRegistration() {
				kept = 0
			}
			l := begin(t, f, ask(words(prompt...)))
			blocks(30)
			l.End(epoch, o)
			blocks(kept)

			l = begin(t, f, ask(words(prompt...)))
			l.FirstByte(epoch)
			l.End(epoch, o)
			blocks(30) // computed, whatever came then

			f = fleetOf(t, single(1))
			l = begin(t, f, ask(words(prompt...)))
			other := begin(t, f, ask(words(prompt[:10]...)))
			l.End(epoch, o)
			blocks(kept)
			other.FirstByte(epoch)
			blocks(max(kept, 10))
			other.End(epoch, outcome.Answered)
		})
	})
}

// TestPhases: each call counts once and in order only.
func TestPhases(t *testing.T) {
	f := fleetOf(t, single(1))
	counts := func(inflight, running int) {
		t.Helper()
		if s := of(t, f, "pod-0"); s.Inflight != inflight || s.Running[Single] != running {
			t.Errorf("%d legs, %d running, want %d and %d", s.Inflight, s.Running[Single], inflight, running)
		}
	}
	var zero Lease
	zero.Start()
	zero.FirstByte(epoch)
	zero.End(epoch, outcome.Answered)
	counts(0, 0)

	l := begin(t, f, ask(nil))
	counts(1, 0)
	l.Start()
	l.Start()
	counts(1, 1)
	l.FirstByte(epoch)
	l.Start()
	l.FirstByte(epoch)
	counts(1, 1)
	l.End(epoch, outcome.Answered)
	l.End(epoch, outcome.Cut)
	l.Start()
	l.FirstByte(epoch)
	counts(0, 0)

	unstarted := begin(t, f, ask(nil))
	unstarted.FirstByte(epoch)
	counts(1, 1)
	unstarted.End(epoch, outcome.Answered)
	counts(0, 0)

	if err := f.Begin(epoch, ask(nil), l); err != nil { // a lease that has ended can be used again
		t.Fatal(err)
	}
	counts(1, 0)
	l.End(epoch, outcome.Answered)
	counts(0, 0)
}

// TestForget: a pod that lost its cache loses its entries and its sessions, one
// that was merely down keeps them.
func TestForget(t *testing.T) {
	f := fleetOf(t, single(4))
	prompt := run("w", 30)
	a := ask(words(prompt...))
	a.Session = 99
	l := begin(t, f, a)
	l.End(epoch, outcome.Answered)
	id := l.Pod().ID
	known := func(depth int, sticky float64) {
		t.Helper()
		all, _ := f.Explain(epoch, a)
		for _, c := range all {
			if c.ID == id && (c.Depth != depth || c.Sticky != sticky) {
				t.Errorf("depth %d, sticky %v, want %d and %v", c.Depth, c.Sticky, depth, sticky)
			}
		}
	}
	known(30, 100)
	f.SetUp(l.Ref(), false, false)
	f.SetUp(l.Ref(), true, false)
	known(30, 100)
	f.SetUp(l.Ref(), false, true)
	f.SetUp(l.Ref(), true, false)
	known(0, 0)
	again := begin(t, f, a)
	if again.Depth != 0 {
		t.Errorf("depth %d", again.Depth)
	}
	again.End(epoch, outcome.Answered)

	begin(t, f, a).End(epoch, outcome.Answered)
	f.Forget() // blocks of another kind; sessions stay
	id = again.Pod().ID
	known(0, 100)
	if n := f.index.Blocks(); n != 0 {
		t.Errorf("%d blocks left", n)
	}
}
