package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// TestBurst: legs with different prompts that begin before any has ended spread
// evenly over idle pods, whether they begin one by one or at once.
func TestBurst(t *testing.T) {
	for _, prompts := range []bool{true, false} {
		t.Run(fmt.Sprint("prompts=", prompts), func(t *testing.T) {
			f := fleetOf(t, single(4))
			leases := make([]Lease, 64)
			done := make(chan error)
			for i := range leases {
				go func() {
					a := ask(nil)
					if prompts {
						a = ask(words(run(fmt.Sprint("prompt", i, "-"), 40)...))
					}
					done <- f.Begin(epoch, a, &leases[i])
				}()
			}
			for range leases {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range f.Snapshot() {
				if s.Inflight != 16 {
					t.Errorf("%s holds %d of 64, want 16", s.ID, s.Inflight)
				}
			}
			for i := range leases {
				leases[i].End(epoch, outcome.Answered)
			}
			for _, s := range f.Snapshot() {
				if s.Inflight != 0 {
					t.Errorf("%s holds %d after all have ended", s.ID, s.Inflight)
				}
			}
		})
	}
}

func TestUnavailable(t *testing.T) {
	pods := single(2)
	pods[0].MaxConns, pods[0].Limited = 1, true
	pods[1].Roles = pods[1].Roles.With(Decode)
	f := fleetOf(t, pods)
	zero, _ := f.find("pod-0")
	one, _ := f.find("pod-1")

	refused := func(a *Ask, cause error, message string) {
		t.Helper()
		l := Lease{}
		err := f.Begin(epoch, a, &l)
		var u *UnavailableError
		if !errors.Is(err, cause) || !errors.As(err, &u) || u.Role != a.Role || err.Error() != message {
			t.Errorf("%v, want %q", err, message)
		}
		l.End(epoch, outcome.Answered) // must do nothing
	}
	refused(&Ask{Role: Prefill}, ErrNoneUp, "no prefill pod takes requests: all are down or draining")

	f.SetUp(one, false, false)
	l := begin(t, f, ask(nil))
	refused(ask(nil), ErrAllFull, "every single pod that is up is at its maxConns")
	refused(&Ask{Role: Decode}, ErrNoneUp, "no decode pod takes requests: all are down or draining")
	a := ask(nil)
	a.Exclude.Set(int(zero.Slot))
	refused(a, ErrNoneLeft, "no further single pod is up")
	f.SetUp(zero, false, false)
	refused(a, ErrNoneUp, "no single pod takes requests: all are down or draining")
	f.SetUp(one, true, false)
	l.End(epoch, outcome.Answered)

	f.Drain("pod-1", true)
	refused(&Ask{Role: Decode}, ErrNoneUp, "no decode pod takes requests: all are down or draining")
	f.Drain("pod-1", false)
	if id := begin(t, f, a).Pod().ID; id != "pod-1" {
		t.Errorf("picked %s", id)
	}
}

// TestPodOfSeveralRoles: its legs count together against its limit, and apart
// in the metrics.
func TestPodOfSeveralRoles(t *testing.T) {
	pods := single(1)
	pods[0].Roles = pods[0].Roles.With(Prefill).With(Decode)
	pods[0].MaxConns, pods[0].Limited = 3, true
	f := fleetOf(t, pods)
	prefill, decode, idle := begin(t, f, &Ask{Role: Prefill}), begin(t, f, &Ask{Role: Decode}), begin(t, f, ask(nil))
	prefill.Start()
	decode.Start()
	if err := f.Begin(epoch, ask(nil), &Lease{}); !errors.Is(err, ErrAllFull) {
		t.Errorf("a fourth leg: %v", err)
	}
	if s := of(t, f, "pod-0"); s.Inflight != 3 || s.Running != [Roles]int{Prefill: 1, Decode: 1} {
		t.Errorf("%+v", s)
	}
	prefill.End(epoch, outcome.Answered)
	idle.End(epoch, outcome.Unsent)
	if s := of(t, f, "pod-0"); s.Inflight != 1 || s.Running != [Roles]int{Decode: 1} {
		t.Errorf("%+v", s)
	}
}

func TestPrefixIsFollowed(t *testing.T) {
	f := fleetOf(t, single(4))
	turn := run("turn-one-", 50)
	first := begin(t, f, ask(words(turn...)))
	if first.Depth != 0 || first.Blocks != 50 {
		t.Errorf("depth %d of %d blocks", first.Depth, first.Blocks)
	}
	first.End(epoch, outcome.Answered)
	second := begin(t, f, ask(words(append(turn, run("turn-two-", 10)...)...)))
	if second.Pod() != first.Pod() || second.Depth != 50 || second.Blocks != 60 {
		t.Errorf("%s with depth %d of %d, first was at %s", second.Pod().ID, second.Depth, second.Blocks, first.Pod().ID)
	}
	third := begin(t, f, ask(nil))
	if third.Depth != 0 || third.Blocks != 0 {
		t.Errorf("depth %d of %d without a prompt", third.Depth, third.Blocks)
	}
	if l := begin(t, f, &Ask{Chain: words()}); l.Blocks != 0 {
		t.Errorf("%d blocks in an empty prompt", l.Blocks)
	}
}

// TestRotation: legs without a prompt take idle pods in turn.
func TestRotation(t *testing.T) {
	for name, a := range map[string]*Ask{
		"no prompt":   ask(nil),
		"round robin": {Strategy: selection.RoundRobin, Chain: words("same"), TieBreak: selection.ByPodID},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, single(3))
			var served []string
			for range 7 {
				l := begin(t, f, a)
				served = append(served, strings.TrimPrefix(l.Pod().ID, "pod-"))
				l.End(epoch, outcome.Answered)
			}
			if got := strings.Join(served, ""); got != "0120120" {
				t.Errorf("served by %s", got)
			}
		})
	}
	f := fleetOf(t, single(3))
	for range 3 {
		l := begin(t, f, &Ask{TieBreak: selection.ByPodID})
		if l.Pod().ID != "pod-0" {
			t.Errorf("by pod id, but %s", l.Pod().ID)
		}
		l.End(epoch, outcome.Answered)
	}
}

// TestKeyWithoutChain: where no index is kept, prompts still spread and find
// their pods again.
func TestKeyWithoutChain(t *testing.T) {
	f := fleetOf(t, single(4))
	served := map[string]int{}
	for i := range uint64(40) {
		a := &Ask{Weights: selection.SingleWeights(), Key: words(fmt.Sprint(i)).key(), HasKey: true}
		id := ""
		for range 3 {
			l := begin(t, f, a)
			if l.Pod().ID != id && id != "" {
				t.Errorf("prompt %d moved from %s to %s", i, id, l.Pod().ID)
			}
			id = l.Pod().ID
			l.End(epoch, outcome.Answered)
		}
		served[id]++
	}
	if len(served) != 4 {
		t.Errorf("served by %v", served)
	}
}

// TestRandom: the same seed, the same picks.
func TestRandom(t *testing.T) {
	picks := func(seed uint64) string {
		f := New(Options{Index: index.New(index.Options{}), Seed: seed})
		apply(t, f, single(10))
		var all strings.Builder
		for range 40 {
			l := begin(t, f, &Ask{Strategy: selection.Random})
			all.WriteString(strings.TrimPrefix(l.Pod().ID, "pod-"))
			l.End(epoch, outcome.Answered)
		}
		return all.String()
	}
	if a, b := picks(7), picks(7); a != b {
		t.Errorf("%s, then %s", a, b)
	}
	if a, b := picks(7), picks(8); a == b {
		t.Errorf("%s from two seeds", a)
	}
	if a, b := picks(0), picks(0); a == b {
		t.Errorf("%s twice without a seed", a)
	}
}

// TestNear: the decode pod on the prefill pod's node is taken before one in its
// zone, and that before one elsewhere.
func TestNear(t *testing.T) {
	pod := func(id, url, node, zone string, role Role) Pod {
		return Pod{ID: id, URL: url, Node: node, Zone: zone, Roles: RoleSet(0).With(role)}
	}
	f := fleetOf(t, []Pod{
		pod("far", "http://10.0.0.1:1", "", "west", Decode),
		pod("zone", "http://10.0.0.2:1", "", "east", Decode),
		pod("node", "http://10.0.0.3:1", "", "", Decode),
		pod("p", "http://10.0.0.3:2", "", "east", Prefill), // the node is the host of the URL
		pod("lonely", "http://10.0.0.4:2", "", "", Prefill),
	})
	want := map[string]float64{"far": 0, "zone": 50, "node": 100}
	prefill := begin(t, f, &Ask{Role: Prefill, Exclude: index.Of(4)})
	a := &Ask{Role: Decode, Weights: decodeWeights, Near: prefill.Ref(), HasNear: true}
	all, picked := f.Explain(epoch, a)
	for _, c := range all {
		if c.Locality != want[c.ID] {
			t.Errorf("%s: locality %v, want %v", c.ID, c.Locality, want[c.ID])
		}
	}
	if l := begin(t, f, a); l.Pod().ID != "node" || all[picked].ID != "node" {
		t.Errorf("picked %s, explained %s", l.Pod().ID, all[picked].ID)
	}
	// An unknown zone is near to no other.
	a.Near, _ = f.find("lonely")
	all, _ = f.Explain(epoch, a)
	for _, c := range all {
		if c.Locality != 0 {
			t.Errorf("%s: locality %v to a pod elsewhere", c.ID, c.Locality)
		}
	}
	// Also while the prefill pod is being removed and its leg still runs.
	a.Near = prefill.Ref()
	pods := []Pod{
		pod("far", "http://10.0.0.1:1", "", "west", Decode),
		pod("node", "http://10.0.0.3:1", "", "", Decode),
	}
	apply(t, f, pods)
	all, _ = f.Explain(epoch, a)
	if all[0].Locality != 0 || all[1].Locality != 100 {
		t.Errorf("%+v", all)
	}
	// A pod that is gone is near to nothing.
	prefill.End(epoch, outcome.Answered)
	for _, near := range []Ref{prefill.Ref(), {Slot: 200, Gen: 1}, {}} {
		a.Near = near
		all, _ = f.Explain(epoch, a)
		for _, c := range all {
			if c.Locality != 0 {
				t.Errorf("%s: locality %v to %v", c.ID, c.Locality, near)
			}
		}
	}
}

// interrupted is a chain that lets something happen after the index was asked
// and before the pick.
type interrupted struct {
	*text
	by func()
}

func (c *interrupted) Complete() int {
	c.Blocks()
	return c.text.Complete()
}

func (c *interrupted) Blocks() int {
	if by := c.by; by != nil {
		c.by = nil
		by()
	}
	return c.text.Blocks()
}

// TestFleetChangesDuringDecision: what the index said of a slot is not believed
// of the next pod in it, and a pod that went down meanwhile is not picked.
func TestFleetChangesDuringDecision(t *testing.T) {
	prompt := run("w", 20)
	start := func() (*Fleet, *Ask) {
		f := fleetOf(t, single(1))
		begin(t, f, ask(words(prompt...))).End(epoch, outcome.Answered)
		return f, ask(words(prompt...))
	}
	f, a := start()
	replace := func() {
		apply(t, f, nil)
		apply(t, f, single(2)[1:])
	}
	a.Chain = &interrupted{a.Chain.(*text), replace}
	if l := begin(t, f, a); l.Pod().ID != "pod-1" || l.Ref().Slot != 0 || l.Depth != 0 {
		t.Errorf("%s in slot %d is credited with %d blocks", l.Pod().ID, l.Ref().Slot, l.Depth)
	}
	f, a = start()
	a.Chain = &interrupted{a.Chain.(*text), replace}
	if all, _ := f.Explain(epoch, a); all[0].ID != "pod-1" || all[0].Depth != 0 {
		t.Errorf("explained as %+v", all[0])
	}
	f, a = start()
	a.Chain = &interrupted{a.Chain.(*text), func() { f.SetUp(Ref{0, 1}, false, false) }}
	if err := f.Begin(epoch, a, &Lease{}); !errors.Is(err, ErrNoneUp) {
		t.Errorf("error %v", err)
	}
}
