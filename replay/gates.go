package replay

import (
	"fmt"

	"github.com/calinix/caddy-calinix/selection"
)

// Gate is a figure with its bound.
type Gate struct {
	Name  string
	Value float64
	Bound float64
	// Least says that Value must be at least Bound, else at most.
	Least bool
}

// Pass says whether the figure is within its bound.
func (g *Gate) Pass() bool {
	if g.Least {
		return g.Value >= g.Bound
	}
	return g.Value <= g.Bound
}

// String returns the gate as one line that ends in pass or miss.
func (g *Gate) String() string {
	sign, verdict := "<=", "miss"
	if g.Least {
		sign = ">="
	}
	if g.Pass() {
		verdict = "pass"
	}
	return fmt.Sprintf("%-58s %8.4f %s %7.4f  %s", g.Name, g.Value, sign, g.Bound, verdict)
}

// gatePods is the number of pods at which the gates are judged.
const gatePods = 16

// The rates at which the published conversation trace is judged, in requests a
// second: 80 % and 95 % of what 16 pods serve with 99 % goodput.
const (
	conversation80 = 12.99
	conversation95 = 15.4
	// The strategies are judged within what the pods can do; holding, beyond it too.
	conversation110 = 17.82
)

// conversation tells the published conversation trace of Mooncake.
func (t *Trace) conversation() bool {
	tokens := 0
	for i := range t.Requests {
		tokens += t.Requests[i].Input
	}
	return len(t.Requests) == 12_031 && t.Blocks == 182_790 && tokens == 144_793_823
}

// judge collects gates.
type judge struct {
	gates []Gate
	bench *bench
}

func (j *judge) most(name string, value, bound float64) {
	j.gates = append(j.gates, Gate{name, value, bound, false})
}

func (j *judge) least(name string, value, bound float64) {
	j.gates = append(j.gates, Gate{name, value, bound, true})
}

// Report is what Gates has found.
type Report struct {
	Gates []Gate
	// Results are of every policy at 80 % and at 95 % load.
	Results []*Result
}

// Passed says whether all gates are passed.
func (r *Report) Passed() bool {
	for i := range r.Gates {
		if !r.Gates[i].Pass() {
			return false
		}
	}
	return true
}

// Gates replays the trace under all policies and judges the product's strategy
// expectedTTFT by what it promises: on the published conversation trace every
// figure, on any other those that hold everywhere. told is as in All, with a
// number of runs that is not known before.
func Gates(t *Trace, told func(done int)) (*Report, error) {
	b := newBench(told)
	j := &judge{bench: b}
	judged := j.anywhere
	if t.conversation() {
		judged = j.conversation
	}
	at80, at95, err := rates(t, b)
	if err != nil {
		return nil, err
	}
	for _, p := range Policies() {
		b.plan(p.Name+"@80", gateRun(t, p, at80))
		b.plan(p.Name+"@95", gateRun(t, p, at95))
	}
	j.plan(t, at80)
	if err := b.do(); err != nil {
		return nil, err
	}
	if err := judged(t); err != nil {
		return nil, err
	}
	r := &Report{Gates: j.gates}
	for _, load := range []string{"@80", "@95"} {
		for _, p := range Policies() {
			r.Results = append(r.Results, b.of(p.Name+load))
		}
	}
	return r, nil
}

// rates returns the two rates at which the trace is judged.
func rates(t *Trace, b *bench) (at80, at95 float64, err error) {
	if t.conversation() {
		return conversation80, conversation95, nil
	}
	full, err := b.sustained(t, 0.99, "oracle")
	if err != nil {
		return 0, 0, err
	}
	return 0.8 * full[0], 0.95 * full[0], nil
}

func gateRun(t *Trace, p Policy, rate float64) Run {
	return Run{Trace: t, Policy: p, Pods: gatePods, Engine: H100(), Rate: rate, Seed: 1}
}

// ours is expectedTTFT with other constants or another idea of the caches.
func ours(name string, c Constants) Policy { return Strategy(name, selection.ExpectedTTFT, c) }

// plan adds the runs that only the published trace needs.
func (j *judge) plan(t *Trace, at80 float64) {
	if !t.conversation() {
		return
	}
	for _, c := range []float64{0.75, 1.25} {
		j.bench.plan(fmt.Sprint("capacity", c), gateRun(t, ours("capacity", Constants{Capacity: c}), at80))
	}
	for _, rate := range []float64{200, 10_000} {
		k := selection.DefaultTTFT()
		k.PrefillRate = rate
		j.bench.plan(fmt.Sprint("rate", rate), gateRun(t, ours("rate", Constants{TTFT: k}), at80))
	}
	for _, p := range []string{"expectedTTFT", "expectedTTFT+hold"} {
		j.bench.plan(p+"@110", gateRun(t, named(p), conversation110))
	}
	slow := gateRun(t, named("expectedTTFT"), at80)
	slow.Slow = []float64{3: 2, 7: 2, 11: 2}
	j.bench.plan("slow", slow)
	whole := gateRun(t, named("expectedTTFT"), 13.84) // 80 % with so large a cache
	whole.Engine.CacheBlocks = t.Blocks / gatePods
	j.bench.plan("whole cache", whole)
	for _, rate := range []float64{200, 600, 1000} {
		hot := HotPrefix(10_000, rate, 7)
		j.bench.plan(fmt.Sprint("hot", rate), hotRun(hot, named("expectedTTFT")))
		j.bench.plan(fmt.Sprint("hot seed", rate), hotRun(hot, named("seed")))
	}
	j.bench.plan("hot short", hotRun(HotPrefix(1000, 200, 7), named("expectedTTFT")))
}

// conversation judges what was promised for the published trace.
func (j *judge) conversation(t *Trace) error {
	b := j.bench
	us, seed, llmd, oracle := b.of("expectedTTFT@80"), b.of("seed@80"), b.of("llm-d@80"), b.of("oracle@80")
	j.most("p99 of first byte / seed", us.P99/seed.P99, 0.65)
	j.most("p99 of first byte / llm-d", us.P99/llmd.P99, 0.80)
	j.most("excess p99 / seed", us.ExcessP99/seed.ExcessP99, 0.30)
	j.most("excess p99 / llm-d", us.ExcessP99/llmd.ExcessP99, 0.40)
	j.most("mean of first byte / seed", us.Mean/seed.Mean, 0.55)
	j.most("mean of first byte / llm-d", us.Mean/llmd.Mean, 0.70)
	j.most("mean of first byte / SGLang", us.Mean/b.of("sglang@80").Mean, 0.60)
	j.most("mean of first byte / Dynamo", us.Mean/b.of("dynamo@80").Mean, 0.90)
	j.most("mean of first byte / oracle", us.Mean/oracle.Mean, 1.05)
	j.most("mean of whole answers / llm-d", us.Whole/llmd.Whole, 1)
	j.least("goodput at 80 % load", us.Goodput, 0.995)
	j.least("goodput at 95 % load", b.of("expectedTTFT@95").Goodput, 0.985)
	full, err := b.sustained(t, 0.95, "expectedTTFT", "seed", "llm-d", "sglang")
	if err != nil {
		return err
	}
	j.least("rate with 95 % goodput / seed", full[0]/full[1], 2.2)
	j.least("rate with 95 % goodput / llm-d", full[0]/full[2], 1.6)
	j.least("rate with 95 % goodput / SGLang", full[0]/full[3], 2.2)
	j.least("block hits / bound, caches of 1/16 of all blocks", b.of("whole cache").HitBound, 0.83)
	j.least("fairness of busy time", us.FairBusy, 0.99)
	j.most("longest queue at a pod", float64(us.Queue), 10)
	j.hot()
	j.least("seed's static benchmark, four factors: Jain at least", StaticFairness(), 0.7517-0.0005)
	j.most("seed's static benchmark, four factors: Jain at most", StaticFairness(), 0.7517+0.0005)
	for _, c := range []float64{0.75, 1.25} {
		j.most(fmt.Sprintf("mean when capacity is taken for %g of the true one", c), b.of(fmt.Sprint("capacity", c)).Mean/us.Mean, 1.12)
	}
	for _, rate := range []float64{200, 10_000} {
		j.most(fmt.Sprintf("mean when prefillRate is %g, the engine's 20000", rate), b.of(fmt.Sprint("rate", rate)).Mean/us.Mean, 1.05)
	}
	j.least("goodput with 3 of 16 pods twice as slow", b.of("slow").Goodput, 0.97)
	j.overload()
	return nil
}

// overload judges what holding requests brings: nothing is lost where it is not
// needed.
func (j *judge) overload() {
	b := j.bench
	for _, load := range []string{"80", "95"} {
		j.most("requests held: mean at "+load+" % load / without", b.of("expectedTTFT+hold@"+load).Mean/b.of("expectedTTFT@"+load).Mean, 1.03)
	}
	j.least("requests held: goodput at 95 % load", b.of("expectedTTFT+hold@95").Goodput, 0.985)
	j.most("requests held: mean at 110 % load / without", b.of("expectedTTFT+hold@110").Mean/b.of("expectedTTFT@110").Mean, 0.35)
	j.least("requests held: goodput at 110 % load", b.of("expectedTTFT+hold@110").Goodput, 0.85)
}

// hot judges the hot prefix.
func (j *judge) hot() {
	for _, rate := range []float64{200, 600, 1000} {
		us, seed := j.bench.of(fmt.Sprint("hot", rate)), j.bench.of(fmt.Sprint("hot seed", rate))
		name := fmt.Sprintf("hot prefix, 10000 at %g/s: ", rate)
		j.least(name+"fairness of requests", us.FairRequests, 0.95)
		j.least(name+"block hits", us.Hit, 0.99)
		j.most(name+"p99 / seed", us.P99/seed.P99, 0.75)
	}
	short := j.bench.of("hot short")
	j.least("hot prefix, 1000 at 200/s: fairness of requests", short.FairRequests, 0.93)
	j.least("hot prefix, 1000 at 200/s: fairness of busy time", short.FairBusy, 0.98)
	j.least("hot prefix, 1000 at 200/s: block hits", short.Hit, 0.975)
}

// anywhere judges what holds on every trace.
func (j *judge) anywhere(*Trace) error {
	b := j.bench
	us := b.of("expectedTTFT@80")
	j.most("mean of first byte / oracle", us.Mean/b.of("oracle@80").Mean, 1.05)
	j.most("mean of first byte / Dynamo", us.Mean/b.of("dynamo@80").Mean, 0.90)
	j.most("p99 of first byte / llm-d", us.P99/b.of("llm-d@80").P99, 0.90)
	j.most("p99 of first byte / seed", us.P99/b.of("seed@80").P99, 0.65)
	j.least("goodput at 80 % load", us.Goodput, 0.99)
	j.least("goodput at 95 % load", b.of("expectedTTFT@95").Goodput, 0.98)
	j.least("fairness of busy time", us.FairBusy, 0.98)
	return nil
}
