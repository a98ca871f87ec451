package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// TestRoomFollowsTheWords: a cache is measured in the engine's tokens, and how
// many of them a block of the index has depends on the words.
func TestRoomFollowsTheWords(t *testing.T) {
	f := New(Options{Index: index.New(index.Options{}), Capacity: Capacity{Tokens: 16000, BlockTokens: 16}})
	apply(t, f, single(2))
	room := func(id string, low, high int) {
		t.Helper()
		if s := of(t, f, id); s.Room < low || s.Room > high || s.Cache != 16000 {
			t.Errorf("%s: room for %d blocks, want %d to %d; a cache of %d", id, s.Room, low, high, s.Cache)
		}
	}
	room("pod-0", 1000, 1000)
	send := func(id string, tokens int, n int) {
		t.Helper()
		for i := range n {
			a := ask(words(run(fmt.Sprint("p", i, "-"), 100)...))
			a.Tokens = tokens
			for _, s := range f.Snapshot() {
				if s.ID != id {
					a.Exclude.Set(int(s.Ref.Slot))
				}
			}
			begin(t, f, a).End(epoch, outcome.Answered)
		}
	}
	send("pod-0", 3200, 1) // blocks of 32 tokens
	room("pod-0", 500, 500)
	room("pod-1", 1000, 1000)
	send("pod-0", 3200, 20)
	if n := of(t, f, "pod-0").Blocks; n != 500 {
		t.Errorf("%d blocks, want as many as there is room for", n)
	}
	send("pod-0", 1600, 30) // the old ones fade
	room("pod-0", 900, 1000)
	send("pod-1", 800, 1)
	room("pod-1", 2000, 2000)

	f.SetCapacity(Capacity{Tokens: 800, BlockTokens: 16})
	if s := of(t, f, "pod-1"); s.Room != 100 || s.Blocks > 100 {
		t.Errorf("%+v", s)
	}
	f.Forget() // blocks are of another kind from now on
	if s := of(t, f, "pod-1"); s.Room != 50 {
		t.Errorf("room for %d blocks", s.Room)
	}
	f.SetCapacity(Capacity{})
	if s := of(t, f, "pod-1"); s.Room != 0 || s.Cache != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLearntCache: what the engine says goes before the configuration, if it is
// to be learnt, and goes with the pod.
func TestLearntCache(t *testing.T) {
	f := fleetOf(t, single(2))
	caches := func(want string) {
		t.Helper()
		var got []string
		for _, s := range f.Snapshot() {
			got = append(got, fmt.Sprint(s.Cache, "/", s.Room))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("caches %v, want %s", got, want)
		}
	}
	f.SetCapacity(Capacity{Tokens: 1600, Learn: true, BlockTokens: 16})
	ref, _ := f.find("pod-0")
	f.SetCache(ref, 3200)
	caches("3200/200 1600/100")
	f.SetCapacity(Capacity{Tokens: 1600, BlockTokens: 16})
	caches("1600/100 1600/100")
	f.SetCapacity(Capacity{Learn: true, BlockTokens: 16})
	caches("3200/200 0/0")
	f.SetCache(ref, 0)
	caches("0/0 0/0")
	f.SetCache(ref, 160)
	pods := single(2)
	pods[0].URL = "http://elsewhere:1"
	apply(t, f, pods)
	f.SetCache(ref, 320) // late news of the pod before
	caches("0/0 0/0")
}
