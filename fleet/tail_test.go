package fleet

import (
	"sync"
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
)

// later begins a leg that leaves the tail of its prompt, of 100 blocks.
func later(t *testing.T, f *Fleet) *Lease {
	t.Helper()
	a := ask(words(run("w", 100)...))
	a.Later = true
	l := begin(t, f, a)
	if got := of(t, f, "pod-0").Blocks; got == 0 || got >= 100 {
		t.Fatalf("%d blocks are registered at once", got)
	}
	return l
}

func TestTailIsRegisteredLater(t *testing.T) {
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

func TestFailedLegTakesBackHeadAndTail(t *testing.T) {
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

// What another leg has come to rely on stays, and the tail that was this leg's
// alone goes.
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

// A pod that has lost its cache since the pick is not credited with a tail.
func TestForgottenPodGetsNoTail(t *testing.T) {
	f := fleetOf(t, single(1))
	l := later(t, f)
	f.SetUp(l.Ref(), true, true)
	l.Complete(epoch)
	if got := of(t, f, "pod-0").Blocks; got != 0 {
		t.Errorf("%d blocks are registered", got)
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
