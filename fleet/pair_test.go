package fleet

import (
	"fmt"
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// racks makes a prefill and a decode pod on each of n racks.
func racks(n int) []Pod {
	var pods []Pod
	for _, role := range []Role{Prefill, Decode} {
		for i := range n {
			pods = append(pods, Pod{
				ID: fmt.Sprint(role, "-", i), URL: fmt.Sprintf("http://10.0.%d.%d:8000", role, i),
				Roles: RoleSet(0).With(role), Node: fmt.Sprint("rack-", i),
			})
		}
	}
	return pods
}

// pairAsk asks for both pods of a prompt.
func pairAsk(prompt *text, s selection.Strategy) (prefill, decode *Ask) {
	prefill, decode = ask(prompt), ask(prompt)
	prefill.Role, prefill.Weights, prefill.Strategy, prefill.TieBreak = Prefill, prefillWeights, s, selection.ByPodID
	decode.Role, decode.Weights, decode.Strategy, decode.TieBreak = Decode, decodeWeights, s, selection.ByPodID
	decode.HasNear, prefill.Toward = true, decode
	return prefill, decode
}

// TestPair: while the decode pod of the first rack is busy, prompts go to another rack
// with both legs, and those that a prefill pod has go on to that one.
func TestPair(t *testing.T) {
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		t.Run(s.String(), func(t *testing.T) {
			f := fleetOf(t, racks(3))
			pair := func(prompt *text) (p, d *Lease) {
				t.Helper()
				a, b := pairAsk(prompt, s)
				all, picked := f.Explain(epoch, a)
				p = begin(t, f, a)
				if all[picked].Ref != p.Ref() {
					t.Errorf("explained %s, picked %s", all[picked].ID, p.Pod().ID)
				}
				b.Near = p.Ref()
				return p, begin(t, f, b)
			}
			p, busy := pair(words(run("first", 500)...))
			if p.Pod().ID != "prefill-0" || busy.Pod().ID != "decode-0" {
				t.Fatalf("the first pair is %s and %s", p.Pod().ID, busy.Pod().ID)
			}
			p.FirstByte(epoch)
			p.End(epoch, outcome.Answered)
			p2, d2 := pair(words(run("second", 500)...))
			if p2.Pod().ID != "prefill-1" || d2.Pod().ID != "decode-1" {
				t.Errorf("the second pair is %s and %s", p2.Pod().ID, d2.Pod().ID)
			}
			if p3, _ := pair(words(run("first", 510)...)); p3.Pod().ID != "prefill-0" {
				t.Errorf("the prefill leg of the second turn is at %s", p3.Pod().ID)
			}
		})
	}
}

// TestPairSpare: with one leg's pod known, that of the other one is picked near it.
func TestPairSpare(t *testing.T) {
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		f := fleetOf(t, racks(3))
		near, _ := f.find("decode-2")
		a, _ := pairAsk(words(run("spare", 100)...), s)
		a.Toward, a.Near, a.HasNear = nil, near, true
		a.Weights.Locality = decodeWeights.Locality
		if l := begin(t, f, a); l.Pod().ID != "prefill-2" {
			t.Errorf("%s: the prefill leg of decode-2 is at %s", s, l.Pod().ID)
		}
		_, b := pairAsk(words(run("other", 100)...), s)
		b.Near, _ = f.find("prefill-1")
		if l := begin(t, f, b); l.Pod().ID != "decode-1" {
			t.Errorf("%s: the decode leg of prefill-1 is at %s", s, l.Pod().ID)
		}
	}
}

// TestPairWithoutDecodePod: no decode pod that can be had has a say.
func TestPairWithoutDecodePod(t *testing.T) {
	f := fleetOf(t, racks(2))
	for _, id := range []string{"decode-0", "decode-1"} {
		f.Drain(id, true)
	}
	a, _ := pairAsk(words(run("w", 20)...), selection.CacheAware)
	if l := begin(t, f, a); l.Pod().ID != "prefill-0" {
		t.Errorf("picked %s", l.Pod().ID)
	}
}

// TestPairAllocatesNothing once everything has grown to its size.
func TestPairAllocatesNothing(t *testing.T) {
	if racing {
		t.Skip("allocations are only counted without the race detector")
	}
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		f := fleetOf(t, racks(8))
		a, b := pairAsk(words(run("prompt-", 64)...), s)
		a.Session, b.Session = 1, 1
		var p, d Lease
		legs := func() {
			if err := f.Begin(epoch, a, &p); err != nil {
				t.Fatal(err)
			}
			b.Near = p.Ref()
			if err := f.Begin(epoch, b, &d); err != nil {
				t.Fatal(err)
			}
			for _, l := range []*Lease{&p, &d} {
				l.Start()
				l.FirstByte(epoch)
				l.End(epoch, outcome.Answered)
			}
		}
		for range 100 {
			legs()
		}
		if n := testing.AllocsPerRun(200, legs); n >= 1 {
			t.Errorf("%s: %v allocations a pair", s, n)
		}
	}
}

// BenchmarkPair is Begin and End of both legs, of a prompt of 32 blocks that is cached
// on a pod of each role; one picks the prefill pod by itself.
func BenchmarkPair(b *testing.B) {
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		for _, pods := range []int{8, 64} {
			for _, toward := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/pods=%d/pair=%v", s, 2*pods, toward), func(b *testing.B) {
					f := fleetOf(b, racks(pods))
					x, y := pairAsk(words(run("prompt-", 32)...), s)
					if !toward {
						x.Toward = nil
					}
					var p, d Lease
					b.ReportAllocs()
					for b.Loop() {
						if err := f.Begin(epoch, x, &p); err != nil {
							b.Fatal(err)
						}
						y.Near = p.Ref()
						if err := f.Begin(epoch, y, &d); err != nil {
							b.Fatal(err)
						}
						for _, l := range []*Lease{&p, &d} {
							l.Start()
							l.FirstByte(epoch)
							l.End(epoch, outcome.Answered)
						}
					}
				})
			}
		}
	}
}
