package replay

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCache compares the cache with lists that are searched.
func TestCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 6).Draw(t, "capacity")
		c := newCache(12, capacity)
		var unused []int32 // the oldest first
		users := map[int32]int{}
		var told []int32 // what is held, by what the cache tells
		c.inserted = func(b int32) { told = append(told, b) }
		c.evicted = func(b int32) { told = slices.DeleteFunc(told, func(x int32) bool { return x == b }) }
		room := func() bool {
			if len(unused)+len(users) < capacity {
				return true
			}
			if len(unused) == 0 {
				return false
			}
			unused = unused[1:]
			return true
		}
		block := rapid.Int32Range(0, 11)
		t.Repeat(map[string]func(*rapid.T){
			"pin": func(t *rapid.T) {
				b := block.Draw(t, "block")
				want := true
				switch i := slices.Index(unused, b); {
				case users[b] > 0:
					users[b]++
				case i >= 0:
					unused = slices.Delete(unused, i, i+1)
					users[b] = 1
				default:
					if want = room(); want {
						users[b] = 1
					}
				}
				if got := c.pin(b); got != want {
					t.Fatalf("pin(%d) = %v", b, got)
				}
			},
			"unpin": func(t *rapid.T) {
				for b := range int32(12) {
					if users[b] == 0 {
						continue
					}
					c.unpin(b)
					if users[b]--; users[b] == 0 {
						delete(users, b)
						unused = append(unused, b)
					}
					return
				}
				t.Skip("nothing is in use")
			},
			"touch": func(t *rapid.T) {
				b := block.Draw(t, "block")
				c.touch(b)
				if users[b] > 0 {
					return
				}
				if i := slices.Index(unused, b); i >= 0 {
					unused = append(slices.Delete(unused, i, i+1), b)
				} else if room() {
					unused = append(unused, b)
				}
			},
			"forget": func(t *rapid.T) {
				b := block.Draw(t, "block")
				c.forget(b)
				unused = slices.DeleteFunc(unused, func(x int32) bool { return x == b })
			},
			"": func(t *rapid.T) {
				var held []int32
				for b := range int32(12) {
					if c.has(b) != (users[b] > 0 || slices.Contains(unused, b)) {
						t.Fatalf("block %d is held: %v; unused %v, in use %v", b, c.has(b), unused, users)
					}
					if c.has(b) {
						held = append(held, b)
					}
				}
				slices.Sort(told)
				if !slices.Equal(told, held) || c.n != len(held) {
					t.Fatalf("%d held, told %v, held %v", c.n, told, held)
				}
			},
		})
	})
}

// TestOwnership compares the depths with a walk along each pod's blocks.
func TestOwnership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.IntRange(1, MaxPods).Draw(t, "pods")
		s := &sim{Run: Run{Pods: pods, Trace: &Trace{Blocks: 8}}}
		o := newOwnership(s, rapid.SampledFrom([]int{0, 3}).Draw(t, "capacity"))
		for range rapid.IntRange(0, 20).Draw(t, "learnt") {
			o.learn(rapid.IntRange(0, pods-1).Draw(t, "pod"), span(0, rapid.IntRange(1, 8).Draw(t, "blocks")))
			o.hear(change{pod: rapid.IntRange(0, pods-1).Draw(t, "other"), block: rapid.Int32Range(0, 7).Draw(t, "gone")})
		}
		want := span(0, rapid.IntRange(1, 8).Draw(t, "asked"))
		o.match(want)
		for p := range pods {
			depth := 0
			for depth < len(want) && o.owners[want[depth]]>>p&1 == 1 {
				depth++
			}
			if o.depth[p] != depth {
				t.Fatalf("pod %d: depth %d, want %d", p, o.depth[p], depth)
			}
		}
	})
}
