package replay

import (
	"math"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
)

// TestHoldPastSaturation: beyond what the pods can do, holding keeps most requests in
// time; below, it changes next to nothing.
func TestHoldPastSaturation(t *testing.T) {
	base := gateRun(Conversations(3000, 4), named("expectedTTFT"), 0)
	base.Pods = 4
	full, err := base.Sustained(0.99)
	if err != nil {
		t.Fatal(err)
	}
	at := func(p Policy, load float64) *Result {
		r := base
		r.Policy, r.Rate = p, load*full
		return do(t, r)
	}
	without, with := at(named("expectedTTFT"), 0.8), at(named("expectedTTFT+hold"), 0.8)
	if with.Mean > 1.03*without.Mean || with.Goodput < without.Goodput-0.005 {
		t.Errorf("at 80 %%: mean %v with holding, %v without; goodput %v, %v", with.Mean, without.Mean, with.Goodput, without.Goodput)
	}
	without, with = at(named("expectedTTFT"), 1.5), at(named("expectedTTFT+hold"), 1.5)
	t.Logf("at 150 %%: mean %v with holding, %v without; goodput %v, %v", with.Mean, without.Mean, with.Goodput, without.Goodput)
	if with.Mean > 0.6*without.Mean || with.Goodput < without.Goodput+0.2 {
		t.Errorf("at 150 %%: mean %v with holding, %v without; goodput %v, %v", with.Mean, without.Mean, with.Goodput, without.Goodput)
	}
	never := fleet.DefaultOverload()
	never.Above = 24 * time.Hour
	if never := at(Holding(never), 1.5); never.Mean != without.Mean || never.P99 != without.P99 {
		t.Errorf("a threshold that is never passed: mean %v, without %v", never.Mean, without.Mean)
	}
}

// TestTransit: what is sent takes its time, there and back, and a router that keeps
// one request at a pod loses that time.
func TestTransit(t *testing.T) {
	one := Conversations(1, 1)
	r := gateRun(one, named("expectedTTFT"), 1)
	near := do(t, r).Mean
	r.Transit = 40
	if got := do(t, r).Mean; math.Abs(got-near-40) > 1e-6 {
		t.Errorf("a single request takes %v, without transit %v", got, near)
	}
	busy := gateRun(Conversations(500, 3), named("expectedTTFT+hold"), 50)
	busy.Pods = 2
	near = do(t, busy).Whole
	busy.Transit = 40
	if got := do(t, busy).Whole; got < near+40 {
		t.Errorf("busy pods: %v with transit, %v without", got, near)
	}
}
