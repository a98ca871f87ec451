package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// TestNobodyStarves: a leg is overtaken by shorter ones only, and by none that comes
// later by more than its own time divided by the ageing.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := held100
		o.Ageing = rapid.SampledFrom([]float64{0.05, 0.2, 1}).Draw(rt, "ageing")
		n := newLine(t, single(1), o)
		var all []*waiter
		for i := range rapid.IntRange(2, 60).Draw(rt, "legs") {
			all = append(all, n.come(fmt.Sprint("leg", i), rapid.IntRange(1, 20_000).Draw(rt, "tokens")))
			n.pass(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			if i := len(n.sent) - 1; rapid.Bool().Draw(rt, "first byte") {
				n.first(n.sent[i])
			}
		}
		for i := 0; i < len(n.sent); i++ {
			n.first(n.sent[i])
		}
		if len(n.sent) != len(all) {
			rt.Fatalf("%d of %d were sent", len(n.sent), len(all))
		}
		for i, early := range n.sent {
			for _, late := range n.sent[:i] {
				if !late.at.After(early.at) {
					continue
				}
				work := time.Duration(early.ask.Tokens) * time.Second / 2000
				if gap := late.at.Sub(early.at); gap > time.Duration(float64(work)/o.Ageing) {
					rt.Fatalf("%s (%v of work) was overtaken by %s, which came %v later", early.name, work, late.name, gap)
				}
				if late.ask.Tokens >= early.ask.Tokens {
					rt.Fatalf("%s (%d tokens) was overtaken by %s (%d)", early.name, early.ask.Tokens, late.name, late.ask.Tokens)
				}
			}
		}
	})
}

// TestNobodyWaitsForNothing: whatever happens, no leg is held that Begin would now
// send, nor one that it would refuse; and in the end none is left.
func TestNobodyWaitsForNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newLine(t, single(3), held100)
		legs := 0
		running := func() (all []*waiter) {
			for _, w := range n.sent {
				if w.lease.phase != ended {
					all = append(all, w)
				}
			}
			return all
		}
		one := func(of []*waiter) *waiter {
			if len(of) == 0 {
				rt.Skip("none")
			}
			return rapid.SampledFrom(of).Draw(rt, "leg")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				if n.turn != nil || n.held.turn != nil || n.Held() != len(n.legs) {
					rt.Fatalf("%d are held of %d, turn %v", n.Held(), len(n.legs), n.held.turn)
				}
				for _, h := range n.held.legs[:min(tried, len(n.held.legs))] {
					w := n.legs[h]
					all, picked := n.Explain(n.now, w.ask)
					if picked >= 0 && all[picked].Wait <= n.held.Above {
						rt.Fatalf("%s is held, and %s has to compute for %v", w.name, all[picked].ID, all[picked].Wait)
					}
					if picked < 0 && !slices.ContainsFunc(all, func(c Candidate) bool { return c.Filtered == "at maxConns" }) {
						rt.Fatalf("%s is held for no pod: %+v", w.name, all)
					}
				}
			},
			"come": func(rt *rapid.T) {
				legs++
				a := ttft(words(fmt.Sprint("leg", legs)))
				a.Tokens, a.Hold = rapid.SampledFrom([]int{1, 100, 300, 3000, 50_000}).Draw(rt, "tokens"), new(Hold)
				a.Whole = rapid.Bool().Draw(rt, "whole")
				n.join(fmt.Sprint("leg", legs), a)
			},
			"come without holding": func(rt *rapid.T) {
				a := ttft(words("straight"))
				a.Tokens = rapid.IntRange(1, 9000).Draw(rt, "tokens")
				w := &waiter{name: "straight", ask: a}
				if n.Begin(n.now, a, &w.lease) == nil {
					n.sent = append(n.sent, w)
				}
				n.settle()
			},
			"first byte": func(rt *rapid.T) { n.first(one(running())) },
			"end": func(rt *rapid.T) {
				one(running()).lease.End(n.now, rapid.SampledFrom([]outcome.Outcome{outcome.Answered, outcome.Unreachable, outcome.ClientGone}).Draw(rt, "outcome"))
				n.settle()
			},
			"leave": func(rt *rapid.T) {
				var waiting []*waiter
				for _, h := range n.held.legs {
					waiting = append(waiting, n.legs[h])
				}
				n.leave(one(waiting))
			},
			"wait": func(rt *rapid.T) {
				n.pass(time.Duration(rapid.IntRange(1, 4000).Draw(rt, "ms")) * time.Millisecond)
			},
			"set up": func(rt *rapid.T) {
				ref, _ := n.find(fmt.Sprint("pod-", rapid.IntRange(0, 2).Draw(rt, "pod")))
				n.SetUp(ref, rapid.Bool().Draw(rt, "up"), rapid.Bool().Draw(rt, "forget"))
				n.settle()
			},
			"drain": func(rt *rapid.T) {
				n.Drain(fmt.Sprint("pod-", rapid.IntRange(0, 2).Draw(rt, "pod")), rapid.Bool().Draw(rt, "on"))
				n.settle()
			},
			"apply": func(rt *rapid.T) {
				pods := single(3)[:rapid.IntRange(0, 3).Draw(rt, "pods")]
				for i := range pods {
					pods[i].Limited, pods[i].MaxConns = rapid.Bool().Draw(rt, "limited"), rapid.IntRange(1, 3).Draw(rt, "maxConns")
				}
				apply(t, n.Fleet, pods)
				n.settle()
			},
			"another threshold": func(rt *rapid.T) {
				o := held100
				o.Above = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond, 5 * time.Second}).Draw(rt, "above")
				n.SetOverload(o)
				n.settle()
			},
		})
		for all := running(); len(all) > 0; all = running() {
			n.end(all[0])
		}
		if n.Held() != 0 {
			rt.Fatalf("%d are held by pods that have nothing to do", n.Held())
		}
	})
}

// TestHeldStress holds legs of many goroutines at a fleet that changes all the time.
// Every one gets a pod, or is refused, or leaves; and none is left.
func TestHeldStress(t *testing.T) {
	const (
		pods    = 4
		workers = 16
		rounds  = 100
	)
	start := time.Now()
	now := func() time.Time { return epoch.Add(time.Since(start)) }
	bell := time.NewTimer(time.Hour)
	f := New(Options{
		Index: index.New(index.Options{}), Sessions: Sessions{TTL: time.Hour, Max: 100}, Seed: 1,
		Alarm: func(at time.Time) { bell.Reset(at.Sub(now())) },
	})
	o := held100
	o.Above, o.Max = time.Millisecond, workers-2
	f.SetOverload(o)
	wanted := single(pods)
	wanted[0].Limited, wanted[0].MaxConns = true, 2
	apply(t, f, wanted)

	stop := make(chan struct{})
	var others, all sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-bell.C:
				f.Tick(now())
			case <-stop:
				return
			}
		}
	})
	others.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			ref, _ := f.find("pod-1")
			f.SetUp(ref, rnd.IntN(2) == 0, rnd.IntN(4) == 0)
			f.Drain("pod-2", rnd.IntN(2) == 0)
			if _, err := f.Apply(epoch, wanted[:2+rnd.IntN(3)]); err != nil {
				t.Error(err)
			}
		}
	})
	var sent, held, left, refused atomic.Int64
	errLeft := errors.New("left")
	begin := func(a *Ask, l *Lease, patience time.Duration) error {
		turn := make(chan struct{}, 1)
		a.Hold = &Hold{Turn: func() { turn <- struct{}{} }}
		err := f.Begin(now(), a, l)
		if errors.Is(err, ErrHeld) {
			held.Add(1)
		}
		for errors.Is(err, ErrHeld) {
			select {
			case <-turn:
				err = f.Begin(now(), a, l)
			case <-time.After(patience):
				f.Leave(now(), a.Hold)
				return errLeft
			}
		}
		return err
	}
	for w := range workers {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 2))
			for i := range rounds {
				a := ttft(words(run(fmt.Sprint("prompt", rnd.IntN(9), "-"), 1+rnd.IntN(30))...))
				a.Later = true
				patience := time.Hour
				if i%3 == 0 {
					patience = time.Duration(rnd.IntN(200)) * time.Microsecond
				}
				var l Lease
				switch err := begin(a, &l, patience); {
				case errors.Is(err, errLeft):
					left.Add(1)
				case err != nil:
					refused.Add(1)
				default:
					sent.Add(1)
					l.Start()
					l.Complete(now())
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond) // it is computed
					if rnd.IntN(2) == 0 {
						l.FirstByte(now())
					}
					l.End(now(), outcome.Answered)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d sent, of %d that were held; %d left, %d refused", sent.Load(), held.Load(), left.Load(), refused.Load())
	if f.Held() != 0 || f.held.turn != nil {
		t.Errorf("%d are still held", f.Held())
	}
	if sent.Load() == 0 || held.Load() == 0 || left.Load() == 0 {
		t.Error("nothing was put to the test")
	}
}
