package replay

import (
	"testing"
	"time"
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
	without, with = at(named("expectedTTFT"), 1.2), at(named("expectedTTFT+hold"), 1.2)
	if with.Mean > 0.6*without.Mean || with.Goodput < without.Goodput+0.2 {
		t.Errorf("at 120 %%: mean %v with holding, %v without; goodput %v, %v", with.Mean, without.Mean, with.Goodput, without.Goodput)
	}
	if never := at(Holding(24*time.Hour), 1.2); never.Mean != without.Mean || never.P99 != without.P99 {
		t.Errorf("a threshold that is never passed: mean %v, without %v", never.Mean, without.Mean)
	}
}
