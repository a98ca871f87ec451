package replay

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// do does a run that must work.
func do(t testing.TB, r Run) *Result {
	t.Helper()
	res, err := r.Do()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// traceOf makes a trace of requests.
func traceOf(requests ...Request) *Trace {
	t := &Trace{Requests: requests, BlockTokens: mooncakeTokens}
	t.finish()
	return t
}

// span lists n blocks from the given one on.
func span(from, n int) []int32 {
	b := make([]int32, n)
	for i := range b {
		b[i] = int32(from + i)
	}
	return b
}

// TestOneRequest: alone at an idle pod a request takes what the formulas say.
func TestOneRequest(t *testing.T) {
	e := H100()
	r := do(t, Run{
		Trace:  traceOf(Request{Input: 10_000, Output: 11, Blocks: span(0, 20)}),
		Policy: named("roundRobin"), Pods: 1, Engine: e,
	})
	if want := e.Work(0, 10_000); math.Abs(r.Mean-want) > 1e-6 {
		t.Errorf("first byte after %v ms, want %v", r.Mean, want)
	}
	// Ten more tokens: contexts of 10,000 to 10,009.
	if want := e.Step + e.Read*(10_000+4.5); math.Abs(r.Token-want) > 1e-6 {
		t.Errorf("%v ms a token, want %v", r.Token, want)
	}
	if r.ExcessMean > 1e-6 || r.Goodput != 1 || r.Hit != 0 {
		t.Errorf("excess %v, goodput %v, hit %v", r.ExcessMean, r.Goodput, r.Hit)
	}
}

// TestCachedRequest: what an earlier request has computed is not computed again,
// but for the last token.
func TestCachedRequest(t *testing.T) {
	e := H100()
	r := do(t, Run{
		Trace: traceOf(
			Request{Input: 10_240, Output: 1, Blocks: span(0, 20)},
			Request{At: 1e6, Input: 10_240, Output: 1, Blocks: span(0, 20)},
		),
		Policy: named("roundRobin"), Pods: 1, Engine: e,
	})
	if want := (e.Work(0, 10_240) + e.Step + e.Context*10_239.5) / 2; math.Abs(r.Mean-want) > 1e-6 {
		t.Errorf("first bytes after %v ms on average, want %v", r.Mean, want)
	}
	if r.Hit != 0.5 || r.HitBound != 1 {
		t.Errorf("hit %v, of the bound %v", r.Hit, r.HitBound)
	}
}

// TestFirstComeFirstServed: a long prompt delays a short one behind it by all of
// its steps but the rest of the last.
func TestFirstComeFirstServed(t *testing.T) {
	e := H100()
	r := do(t, Run{
		Trace: traceOf(
			Request{Input: 40_960, Output: 1, Blocks: span(0, 80)},
			Request{At: 1, Input: 512, Output: 1, Blocks: span(100, 1)},
		),
		Policy: named("roundRobin"), Pods: 1, Engine: e,
	})
	both := e.Work(0, 40_960) + e.Work(0, 512)
	if want := (both - e.Work(0, 512) + both - 1) / 2; math.Abs(r.Mean-want) > 1 {
		t.Errorf("first bytes after %v ms on average, want about %v", r.Mean, want)
	}
}

// TestSkippedSteps: taking steps of decoding together changes nothing.
func TestSkippedSteps(t *testing.T) {
	trace := Conversations(400, 3)
	for _, name := range []string{"expectedTTFT", "seed", "llm-d", "oracle"} {
		r := Run{Trace: trace, Policy: named(name), Pods: 4, Engine: H100(), Rate: 3, Seed: 1}
		r.Engine.CacheBlocks = 300
		skipped := do(t, r)
		r.Engine.EachStep = true
		each := do(t, r)
		if math.Abs(skipped.Mean-each.Mean) > 1e-3 || math.Abs(skipped.Whole-each.Whole) > 1e-3 ||
			!reflect.DeepEqual(skipped.Requests, each.Requests) {
			t.Errorf("%s: %+v, each step by itself %+v", name, skipped, each)
		}
	}
}

// TestNothingIsLeft: after a run the pods hold nothing of any request, every
// request has had its first byte after it came and its end after that, and the
// product's fleet is idle.
func TestNothingIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := Conversations(rapid.IntRange(1, 120).Draw(t, "requests"), rapid.Uint64().Draw(t, "seed"))
		s := &sim{
			Run: Run{
				Trace: trace, Pods: rapid.IntRange(1, 5).Draw(t, "pods"), Engine: H100(),
				Rate: rapid.Float64Range(0.5, 50).Draw(t, "rate"), Policy: rapid.SampledFrom(Policies()).Draw(t, "policy"),
			},
			jobs: make([]job, len(trace.Requests)),
		}
		s.Engine.CacheBlocks = rapid.SampledFrom([]int{0, 1, 50, 400}).Draw(t, "cache")
		s.Engine.KVTokens = rapid.SampledFrom([]int{20_000, 460_800}).Draw(t, "memory")
		rt := s.Policy.make(s)
		for i := range s.Pods {
			s.pods = append(s.pods, s.newPod(i, rt))
		}
		s.play(rt)
		for _, p := range s.pods {
			for b, pins := range p.cache.pins {
				if pins > 1 {
					t.Fatalf("block %d is still in use", b)
				}
			}
			if p.active != 0 || p.context != 0 || p.running() != 0 || p.waiting.len() != 0 || p.cache.n > p.cache.capacity {
				t.Fatalf("left: %+v", p)
			}
		}
		for i := range s.jobs {
			if j := &s.jobs[i]; j.first <= j.at || j.done < j.first {
				t.Fatalf("request %d came at %v, began at %v, ended at %v", i, j.at, j.first, j.done)
			}
		}
		if p, ok := rt.(*product); ok {
			for _, st := range p.fleet.Snapshot() {
				if b := st.Backlog; st.Inflight != 0 || b.Uncached != 0 || b.Prompts != 0 || b.Decoding != 0 {
					t.Fatalf("%s: %+v", st.ID, st)
				}
			}
		}
	})
}
