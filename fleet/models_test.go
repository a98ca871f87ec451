package fleet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// where returns the pods at which n requests for the model run, in order.
func (f *Fleet) where(t testing.TB, model string, n int) (ids []string) {
	t.Helper()
	seen := map[string]bool{}
	for range n {
		a := ask(nil)
		a.Model, a.Strategy = []byte(model), selection.RoundRobin
		l := begin(t, f, a)
		seen[l.Pod().ID] = true
		l.End(epoch, outcome.Answered)
	}
	for id := range seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func wantPods(t testing.TB, f *Fleet, model string, want ...string) {
	t.Helper()
	if got := f.where(t, model, 12); !slices.Equal(got, want) {
		t.Errorf("model %q runs at %v, want %v", model, got, want)
	}
}

// TestModels: a request goes to pods that name its model or none at all; an
// adapter is a model like any other.
func TestModels(t *testing.T) {
	pods := single(4)
	pods[0].Models = []string{"big"}
	pods[1].Models = []string{"big", "big-sql"}
	pods[2].Models = []string{"small"}
	f := fleetOf(t, pods[:3])
	wantPods(t, f, "big", "pod-0", "pod-1")
	wantPods(t, f, "big-sql", "pod-1")
	wantPods(t, f, "small", "pod-2")
	wantPods(t, f, "", "pod-0", "pod-1", "pod-2")
	a := ask(nil)
	a.Model = []byte("unknown")
	var refused *UnavailableError
	if err := f.Begin(epoch, a, new(Lease)); !errors.As(err, &refused) || refused.Cause != ErrNoModel || f.Serves(a.Model).Roles != 0 {
		t.Errorf("an unknown model: %v, %v", err, f.Serves(a.Model))
	}
	if all, picked := f.Explain(epoch, a); picked != -1 || all[0].Filtered != "other model" {
		t.Errorf("explained as %+v", all)
	}
	ref, _ := f.find("pod-2")
	f.SetUp(ref, false, false)
	a.Model = []byte("small")
	if err := f.Begin(epoch, a, new(Lease)); !errors.Is(err, ErrNoneUp) {
		t.Errorf("a model whose pod is down: %v", err)
	}
	f.SetUp(ref, true, false)

	// A pod without models takes any.
	apply(t, f, pods)
	wantPods(t, f, "unknown", "pod-3")
	wantPods(t, f, "small", "pod-2", "pod-3")
	// Without any names there is nothing to tell models by.
	apply(t, f, single(2))
	wantPods(t, f, "unknown", "pod-0", "pod-1")
	if f.NamesModels() || f.Serves([]byte("unknown")).Roles != RoleSet(0).With(Single) {
		t.Error("models of pods that are gone are remembered")
	}
}

// TestLearnedModels: what a pod says counts unless the configuration says it, and
// is forgotten with the pod.
func TestLearnedModels(t *testing.T) {
	pods := single(3)
	pods[0].Models = []string{"a"}
	f := fleetOf(t, pods)
	r0, _ := f.find("pod-0")
	r1, _ := f.find("pod-1")
	f.SetModels(r0, []string{"b"})
	wantPods(t, f, "b", "pod-1", "pod-2")
	f.SetModels(r1, []string{"b"})
	wantPods(t, f, "a", "pod-0", "pod-2")
	wantPods(t, f, "b", "pod-1", "pod-2")
	f.SetModels(r1, []string{"b", "c"}) // an adapter is loaded
	wantPods(t, f, "c", "pod-1", "pod-2")
	if s := of(t, f, "pod-1"); !slices.Equal(s.Models, []string{"b", "c"}) || s.Declared {
		t.Errorf("%+v", s)
	}
	apply(t, f, pods) // a reload keeps it
	wantPods(t, f, "a", "pod-0", "pod-2")
	moved := slices.Clone(pods)
	moved[1].URL = "http://elsewhere:1"
	apply(t, f, moved)
	wantPods(t, f, "a", "pod-0", "pod-1", "pod-2")
	f.SetModels(r1, []string{"old"}) // of the pod that is gone
	wantPods(t, f, "a", "pod-0", "pod-1", "pod-2")
}

// TestModelsByRole: the roles in which a model is served, and the strategy that
// its pods ask for.
func TestModelsByRole(t *testing.T) {
	pods := single(4)
	pods[0].Models = []string{"m"}
	pods[1].Roles, pods[1].Models = RoleSet(0).With(Prefill), []string{"m", "d"}
	pods[2].Roles, pods[2].Models = RoleSet(0).With(Decode), []string{"d"}
	pods[2].Strategy, pods[2].HasStrategy = selection.SessionAffinity, true
	pods[3].Models = []string{"m"}
	pods[3].Strategy, pods[3].HasStrategy = selection.Prefix, true
	pods[3].Models = append(pods[3].Models, "own", "other")
	pods[3].Strategies = map[string]selection.Strategy{"own": selection.LeastLoaded}
	f := fleetOf(t, pods)
	for _, tt := range []struct {
		model string
		want  Service
	}{
		{"m", Service{RoleSet(0).With(Single).With(Prefill), true, selection.Prefix, true}},
		{"d", Service{RoleSet(0).With(Prefill).With(Decode), true, selection.SessionAffinity, true}},
		{"own", Service{RoleSet(0).With(Single), true, selection.LeastLoaded, true}},
		{"other", Service{RoleSet(0).With(Single), true, selection.Prefix, true}},
		{"x", Service{Named: true}},
	} {
		if got := f.Serves([]byte(tt.model)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.model, got, tt.want)
		}
	}
}

// TestModelsTakeNoLock: a request asks for its model without waiting for the picks
// of others.
func TestModelsTakeNoLock(t *testing.T) {
	f := fleetOf(t, single(1))
	f.mu.Lock()
	defer f.mu.Unlock()
	named := make(chan bool, 1)
	go func() { named <- f.NamesModels() || f.Serves([]byte("m")).Named }()
	select {
	case got := <-named:
		if got {
			t.Error("a model is named")
		}
	case <-time.After(10 * time.Second):
		t.Error("the question waits for the fleet's lock")
	}
}

// TestRingOfAModel: sessions of a model keep to its pods, as if the ring were of
// these alone.
func TestRingOfAModel(t *testing.T) {
	pods := single(8)
	for i := range pods {
		pods[i].Models = []string{fmt.Sprintf("m%d", i%2)}
	}
	f := fleetOf(t, pods)
	f.SetRings(160)
	evens := fleetOf(t, []Pod{pods[0], pods[2], pods[4], pods[6]})
	evens.SetRings(160)
	for k := range 200 {
		a := hashed(fmt.Sprint(k))
		a.Model = []byte("m0")
		if got, want := at(t, f, a), at(t, evens, a); got != want {
			t.Errorf("session %d at %s, want %s", k, got, want)
		}
	}
}
