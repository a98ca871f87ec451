package fleet

import (
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// later begins a leg that leaves its prompt, of 100 blocks, to Complete.
func later(t *testing.T, f *Fleet) *Lease {
	t.Helper()
	a := ask(words(run("w", 100)...))
	a.Later = true
	l := begin(t, f, a)
	if got := of(t, f, "pod-0").Blocks; got != 0 {
		t.Fatalf("%d blocks are registered at once", got)
	}
	return l
}

func TestPromptIsRegisteredLater(t *testing.T) {
	f := fleetOf(t, single(1))
	l := later(t, f)
	l.Complete(epoch)
	l.Complete(epoch) // nothing is left
	if got := of(t, f, "pod-0").Blocks; got != 100 || l.Blocks != 100 {
		t.Errorf("%d blocks are registered, the lease says %d", got, l.Blocks)
	}
	l.End(epoch, outcome.Answered)
	if got := of(t, f, "pod-0").Blocks; got != 100 {
		t.Errorf("%d blocks are left", got)
	}
	if l := later(t, fleetOf(t, single(1))); l.Blocks != 0 {
		t.Errorf("the length of the chain is known too soon: %d", l.Blocks)
	}
}

func TestEndCompletesWhatNobodyHas(t *testing.T) {
	f := fleetOf(t, single(1))
	l := later(t, f)
	l.End(epoch, outcome.Answered)
	if got := of(t, f, "pod-0").Blocks; got != 100 {
		t.Errorf("%d blocks are registered", got)
	}
	l.Complete(epoch) // too late
}

func TestFailedLegTakesBackItsPrompt(t *testing.T) {
	for _, completed := range []bool{false, true} {
		f := fleetOf(t, single(1))
		l := later(t, f)
		if completed {
			l.Complete(epoch)
		}
		l.End(epoch, outcome.Unreachable)
		l.Complete(epoch)
		if got := of(t, f, "pod-0").Blocks; got != 0 {
			t.Errorf("completed %v: %d blocks are left", completed, got)
		}
	}
}

// What another leg has come to rely on stays, and what was this leg's alone goes.
func TestFailedLegLeavesWhatOthersUse(t *testing.T) {
	f := fleetOf(t, single(1))
	l := later(t, f)
	begin(t, f, ask(words(run("w", 10)...))).End(epoch, outcome.Answered)
	l.Complete(epoch)
	l.End(epoch, outcome.Unreachable)
	if got := of(t, f, "pod-0").Blocks; got != 10 {
		t.Errorf("%d blocks are left, want 10", got)
	}
}

// A pod that has lost its cache since the pick is not credited with the prompt.
func TestForgottenPodGetsNothing(t *testing.T) {
	f := fleetOf(t, single(1))
	l := later(t, f)
	f.SetUp(l.Ref(), true, true)
	l.Complete(epoch)
	if got := of(t, f, "pod-0").Blocks; got != 0 {
		t.Errorf("%d blocks are registered", got)
	}
}

// For a prompt nothing goes before its first byte, however much of it is registered,
// and nothing at all if the pod refuses it; with the first byte as much goes as it
// has added.
func TestPromptDisplacesWithItsFirstByte(t *testing.T) {
	const room, others = 100, 80
	for _, c := range []struct {
		name string
		end  func(l *Lease)
		left int // of the others' blocks
	}{
		{"refused", func(l *Lease) { l.Complete(epoch); l.End(epoch, outcome.Refused4xx) }, others},
		{"refused at once", func(l *Lease) { l.End(epoch, outcome.Refused4xx) }, others},
		{"answered", func(l *Lease) { l.Complete(epoch); l.FirstByte(epoch) }, room - 90},
		{"answered before it is registered", func(l *Lease) { l.FirstByte(epoch); l.Complete(epoch) }, room - 90},
		{"ended without a first byte", func(l *Lease) { l.End(epoch, outcome.ClientGone) }, room - 90},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fleetOf(t, single(1))
			ref, _ := f.find("pod-0")
			f.index.SetCapacity(ref.Slot, room)
			begin(t, f, ask(words(run("o", others)...))).End(epoch, outcome.Answered)
			depth := func() int {
				var q index.Query
				f.index.Query(&q, words(run("o", others)...), index.Of(int(ref.Slot)))
				return q.Depth(int(ref.Slot))
			}
			a := ask(words(run("w", 90)...))
			a.Later = true
			l := begin(t, f, a)
			if got := depth(); got != others {
				t.Fatalf("%d of %d blocks are left at the pick", got, others)
			}
			c.end(l)
			if got := depth(); got != c.left {
				t.Errorf("%d of %d blocks are left, want %d", got, others, c.left)
			}
			l.End(epoch, outcome.Answered)
			if got := of(t, f, "pod-0").Blocks; got > room || depth() != c.left {
				t.Errorf("in the end %d blocks in a room of %d, %d of the others'", got, room, depth())
			}
		})
	}
}

func TestCompleteBesideEnd(t *testing.T) {
	for i := range 200 {
		f := fleetOf(t, single(1))
		a := ask(words(run("w", 100)...))
		a.Later = true
		l := begin(t, f, a)
		var wg sync.WaitGroup
		wg.Go(func() { l.Complete(epoch) })
		wg.Go(func() { l.End(epoch, [...]outcome.Outcome{outcome.Unreachable, outcome.Answered}[i%2]) })
		wg.Wait()
		want := 100 * (i % 2)
		if got := of(t, f, "pod-0").Blocks; got != want {
			t.Fatalf("leg %d: %d blocks are registered, want %d", i, got, want)
		}
	}
}

// slow is a chain that tells of each use, and waits, once it is shared.
type slow struct {
	*text
	used chan chan struct{} // gets what ends the use; nil: it is not shared yet
}

func (s *slow) Hashes() []uint64 {
	if s.used != nil {
		end := make(chan struct{})
		s.used <- end
		<-end
	}
	return s.text.Hashes()
}

// When the first byte has been told, and all is registered, nobody uses the chain:
// not another goroutine either that tells the first byte, or ends the leg, at the same
// time. Its owner gives it away.
func TestFirstByteEndsTheUseOfTheChain(t *testing.T) {
	for name, other := range map[string]func(*Lease){
		"first byte": func(l *Lease) { l.FirstByte(epoch) },
		"failed":     func(l *Lease) { l.End(epoch, outcome.Refused5xx) },
		"left":       func(l *Lease) { l.End(epoch, outcome.ClientGone) },
	} {
		c := &slow{text: words(run("w", 100)...)}
		a := ask(c.text)
		a.Chain = c
		l := begin(t, fleetOf(t, single(1)), a)
		c.used = make(chan chan struct{})
		var both sync.WaitGroup
		both.Go(func() { other(l) })
		end := <-c.used // it is at it
		told := make(chan struct{})
		both.Go(func() {
			l.FirstByte(epoch)
			close(told)
		})
		select {
		case <-told:
			t.Errorf("%s: the chain is still in use", name)
		case <-time.After(20 * time.Millisecond): // it waits, as far as can be seen
		}
		close(end)
		both.Wait()
	}
}
