package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// hashed is a request whose key has that hash.
func hashed(key string) *Ask {
	a := ask(nil)
	a.Strategy = selection.SessionAffinity
	a.Hash, a.HasHash = selection.IDHash(key), true
	a.VirtualNodes, a.LoadFactor = 160, 1.25
	return a
}

// at returns the pod of a request that ends at once.
func at(t testing.TB, f *Fleet, a *Ask) string {
	t.Helper()
	l := begin(t, f, a)
	defer l.End(epoch, outcome.Answered)
	return l.Pod().ID
}

// TestRingOverApply: 10,000 sessions at 20 pods. A session stays at its pod while
// others come, a pod that goes hands on its own and no other, and when it comes
// back, in whatever slot, everything is as before.
func TestRingOverApply(t *testing.T) {
	const pods, keys = 20, 10_000
	f := fleetOf(t, single(pods))
	f.SetRings(160)
	where := func() []string {
		all := make([]string, keys)
		for k := range all {
			all[k] = at(t, f, hashed(fmt.Sprintf("session-%d", k)))
		}
		return all
	}
	first := where()
	fewer := append(single(pods)[:7:7], single(pods)[8:]...)
	apply(t, f, fewer)
	moved := 0
	for k, id := range where() {
		if id == first[k] {
			continue
		}
		moved++
		if first[k] != "pod-7" {
			t.Fatalf("session %d went from %s to %s", k, first[k], id)
		}
	}
	if limit := 1.3 / pods * keys; float64(moved) > limit {
		t.Errorf("%d sessions moved, want at most %.0f", moved, limit)
	}
	st := f.Rings()
	if len(st) != 1 || st[0].Changes != 1 || st[0].Moved < 0.9*float64(moved)/keys || st[0].Moved > 1.1*float64(moved)/keys {
		t.Errorf("%+v after %d of %d sessions moved", st, moved, keys)
	}
	apply(t, f, append([]Pod{{ID: "other", URL: "http://x:1", Roles: fewer[0].Roles}}, fewer...)) // takes the slot
	apply(t, f, append(fewer, single(pods)[7]))
	for k, id := range where() {
		if id != first[k] {
			t.Fatalf("session %d is at %s, was at %s", k, id, first[k])
		}
	}
	if _, err := f.Apply(epoch, append(fewer, single(pods)[7])); err != nil || f.Rings()[0].Changes != 3 {
		t.Errorf("%+v, %v after an Apply that changes nothing", f.Rings(), err)
	}
}

// TestRingUnderSkew: one request in ten is of one session. No pod ever holds more
// than 1.25 times the mean and one, and who is at the bound passes on to the same
// pod as long as nothing changes.
func TestRingUnderSkew(t *testing.T) {
	const pods = 20
	f := fleetOf(t, single(pods))
	f.SetRings(160)
	rnd := rand.New(rand.NewPCG(3, 4))
	var leases []*Lease
	passed := 0
	for n := range 5000 {
		key := fmt.Sprintf("session-%d", rnd.IntN(10_000))
		if rnd.IntN(10) == 0 {
			key = "hot"
		}
		l := begin(t, f, hashed(key))
		leases = append(leases, l)
		if !l.Home {
			passed++
		}
		if len(leases) > 300 { // some end in any order
			i := rnd.IntN(len(leases))
			leases[i].End(epoch, outcome.Answered)
			leases[i] = leases[len(leases)-1]
			leases = leases[:len(leases)-1]
			continue
		}
		for _, s := range f.Snapshot() {
			if most := 1.25*float64(len(leases))/pods + 1; float64(s.Inflight) > most {
				t.Fatalf("after %d requests %s holds %d, want at most %.2f", n, s.ID, s.Inflight, most)
			}
		}
	}
	if passed == 0 {
		t.Error("nothing was passed on")
	}
}

// TestRingSkips: a pod that is down, drained, full, excluded or of another role
// hands its keys on, and gets them back.
func TestRingSkips(t *testing.T) {
	pods := single(5)
	pods[4].Roles = RoleSet(0).With(Decode)
	for i := range pods {
		pods[i].MaxConns, pods[i].Limited = 1, true
	}
	f := fleetOf(t, pods)
	f.SetRings(160)
	a := hashed("a session")
	home := at(t, f, a)
	ref, _ := f.find(home)
	back := func(what string) {
		t.Helper()
		if id := at(t, f, a); id != home {
			t.Errorf("%s: at %s, want %s again", what, id, home)
		}
	}
	var other string
	check := func(what string) {
		t.Helper()
		id := at(t, f, a)
		if id == home || id == "pod-4" || other != "" && id != other {
			t.Errorf("%s: at %s; home is %s, the other one %q", what, id, home, other)
		}
		other = id
	}
	f.SetUp(ref, false, false)
	check("down")
	f.SetUp(ref, true, false)
	back("up")
	f.Drain(home, true)
	check("drained")
	f.Drain(home, false)
	back("not drained")
	a.Exclude.Set(int(ref.Slot))
	check("excluded")
	a.Exclude.Clear(int(ref.Slot))
	l := begin(t, f, a)
	check("full")
	l.End(epoch, outcome.Answered)
	back("not full")
}

// TestFallbacks: what a request without a key, or a fleet without a ring, falls
// back to. Nothing is refused.
func TestFallbacks(t *testing.T) {
	f := fleetOf(t, single(4))
	f.SetRings(160)
	// No key and no load: in turn.
	a := hashed("x")
	a.HasHash = false
	a.HasKey, a.Key = true, 42 // the prompt does not tie it to a pod
	for i := range 8 {
		l := begin(t, f, a)
		if want := fmt.Sprintf("pod-%d", i%4); l.Pod().ID != want || l.Strategy != selection.RoundRobin || l.Fallback != selection.NoKey|selection.LoadUnknown {
			t.Fatalf("request %d: %s by %v because of %b, want %s in turn", i, l.Pod().ID, l.Strategy, l.Fallback, want)
		}
		l.End(epoch, outcome.Answered)
	}
	// No key, but load: where there is least.
	busy := begin(t, f, a)
	for range 3 {
		l := begin(t, f, a)
		if l.Pod().ID == busy.Pod().ID || l.Strategy != selection.LeastLoaded || l.Fallback != selection.NoKey {
			t.Fatalf("%s by %v because of %b", l.Pod().ID, l.Strategy, l.Fallback)
		}
	}
	// A key, but no ring.
	a = hashed("x")
	a.VirtualNodes = 7
	if l := begin(t, f, a); l.Strategy != selection.LeastLoaded || l.Fallback != selection.RingEmpty {
		t.Fatalf("by %v because of %b", l.Strategy, l.Fallback)
	}
	f.SetRings(7)
	if l := begin(t, f, a); l.Strategy != selection.SessionAffinity || l.Fallback != 0 || !l.Home {
		t.Fatalf("by %v because of %b, home %v", l.Strategy, l.Fallback, l.Home)
	}
	f.SetRings()
	if got := len(f.Rings()); got != 0 {
		t.Errorf("%d rings", got)
	}
}

// TestExplainOnTheRing: Explain names the pod that Begin then picks, also where
// the strategy falls back.
func TestExplainOnTheRing(t *testing.T) {
	f := fleetOf(t, single(6))
	f.SetRings(160)
	for k := range 50 {
		a := hashed(fmt.Sprint(k))
		a.HasHash = k%3 > 0
		if k%5 == 0 {
			a.Strategy = selection.PowerOfTwo
		}
		all, picked := f.Explain(epoch, a)
		l := begin(t, f, a) // none ends: load grows
		if all[picked].ID != l.Pod().ID {
			t.Errorf("key %d: explained %s, picked %s", k, all[picked].ID, l.Pod().ID)
		}
		if a.HasHash && a.Strategy == selection.SessionAffinity && all[picked].Score != 100 {
			t.Errorf("key %d: score %v", k, all[picked].Score)
		}
	}
}
