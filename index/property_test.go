package index

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// treeChain returns the chain of a conversation: each choice is a further block,
// and chains that begin with the same choices begin with the same blocks.
func treeChain(choices []byte) *fakeChain {
	c := &fakeChain{}
	h := uint64(0)
	for _, b := range choices {
		h = (h ^ uint64(b) + 1) * 1099511628211
		h ^= h >> 29
		c.hashes = append(c.hashes, h)
	}
	return c
}

// looseChain returns a chain of blocks that are parts of any other chain, too, in
// another order, and may come twice: nothing in the index relies on chains to be
// prefixes of each other.
func looseChain(blocks []byte) *fakeChain {
	c := &fakeChain{}
	for _, b := range blocks {
		c.hashes = append(c.hashes, uint64(b)) // shard and bucket come from mixing
	}
	return c
}

func chains(loose bool) *rapid.Generator[*fakeChain] {
	return rapid.Custom(func(t *rapid.T) *fakeChain {
		if loose {
			return looseChain(rapid.SliceOfN(rapid.ByteMax(40), 0, 20).Draw(t, "blocks"))
		}
		n := rapid.IntRange(0, 45).Draw(t, "blocks")
		choices := make([]byte, n)
		for i := range choices {
			choices[i] = 0
		}
		// Mostly straight, with a few turns.
		for range rapid.IntRange(0, 3).Draw(t, "turns") {
			if n > 0 {
				choices[rapid.IntRange(0, n-1).Draw(t, "at")] = rapid.ByteMax(2).Draw(t, "to")
			}
		}
		return treeChain(choices)
	})
}

// TestModel: whatever is done to an index, it answers and keeps what the naive
// model does, in the same order.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loose := rapid.Bool().Draw(t, "loose")
		ceiling := rapid.SampledFrom([]int{0, 8, 40, 200}).Draw(t, "maxBlocks")
		ttl := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "ttl")
		tw := newTwin(Options{MaxBlocks: ceiling, StaleTTL: ttl})
		pods := rapid.SampledFrom([]int{0, 1, 63, 64, 130, 255})
		candidates := rapid.Custom(func(t *rapid.T) Bitmap {
			return rapid.SampledFrom([]Bitmap{All(256), All(64), Of(0, 1, 63, 64, 130, 255), Of(130), Of(255, 1), {}}).Draw(t, "set")
		})
		at := time.Duration(0)
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		reg := func() *twinReg {
			if len(tw.regs) == 0 {
				t.Skip("no registration yet")
			}
			return &tw.regs[rapid.IntRange(0, len(tw.regs)-1).Draw(t, "registration")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { ok(tw.compare()) },
			"register": func(t *rapid.T) {
				tw.register(at, pods.Draw(t, "pod"), chains(loose).Draw(t, "chain"), nil)
			},
			"ask and register": func(t *rapid.T) {
				c := chains(loose).Draw(t, "chain")
				ok(tw.query(c, candidates.Draw(t, "candidates")))
				tw.register(at, pods.Draw(t, "pod"), c, &tw.q)
				tw.register(at, pods.Draw(t, "second pod"), c, &tw.q)
			},
			"promise": func(t *rapid.T) {
				tw.promise(at, pods.Draw(t, "pod"), chains(loose).Draw(t, "chain"))
			},
			"undo": func(*rapid.T) {
				r := reg()
				r.chain.Complete()
				tw.undo(r)
			},
			"keep": func(*rapid.T) { tw.keep(at, reg()) },
			"query": func(t *rapid.T) {
				ok(tw.query(chains(loose).Draw(t, "chain"), candidates.Draw(t, "candidates")))
			},
			"wipe": func(t *rapid.T) {
				p := pods.Draw(t, "pod")
				if got, want := tw.x.Wipe(uint8(p)), tw.m.wipe(p); got != want {
					t.Fatalf("wiped %d, want %d", got, want)
				}
			},
			"set capacity": func(t *rapid.T) {
				p, n := pods.Draw(t, "pod"), rapid.SampledFrom([]int{-1, 0, 1, 5, 30, 100}).Draw(t, "blocks")
				tw.x.SetCapacity(uint8(p), n)
				tw.m.setCapacity(p, n)
			},
			"configure": func(t *rapid.T) {
				o := Options{
					MaxBlocks: rapid.SampledFrom([]int{0, 8, 40, 200}).Draw(t, "maxBlocks"),
					StaleTTL:  rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "ttl"),
				}
				tw.x.Configure(o)
				tw.m.configure(o)
			},
			"wait": func(t *rapid.T) {
				at += rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second}).Draw(t, "for")
			},
			"expire": func(*rapid.T) {
				tw.x.Expire(epoch.Add(at))
				tw.m.expire(at)
			},
		})
	})
}
