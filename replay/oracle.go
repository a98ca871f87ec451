package replay

// oracle expects the time to the first byte from what no router can know: what
// the pods' caches hold and what is left to compute of every prompt that waits
// there. It knows the engine's costs, attention included.
type oracle struct {
	counts
	known *ownership // what was sent to a pod and not evicted since
	held  []float64  // tokens of prompts under way
	work  []float64  // as estimated when routed, by job
}

const (
	oracleGamma = 0.25   // share of its own work that a request counts again
	oracleHeld  = 0.0005 // ms for a token of a prompt under way
)

func newOracle(s *sim) router {
	x := &oracle{
		counts: countsOf(s), known: newOwnership(s, 0),
		held: make([]float64, s.Pods), work: make([]float64, len(s.jobs)),
	}
	s.changes.wanted, s.changes.tell = true, x.known.hear
	return x
}

func (x *oracle) route(j *job, now float64) int {
	x.known.match(j.Blocks)
	pick := lowest(&x.s.draw, x.s.Pods, func(p int) float64 {
		return x.wait(p, now) + (1+oracleGamma)*x.compute(j, x.depth(j, p)) + oracleHeld*x.held[p]
	})
	j.believed = x.known.depth[pick]
	x.work[j.id] = x.compute(j, j.believed)
	x.known.learn(pick, j.Blocks)
	x.held[pick] += float64(j.Input)
	return x.send(pick)
}

// depth is how many leading blocks the pod holds, or will by the time those
// before in its queue are done.
func (x *oracle) depth(j *job, p int) int {
	d := 0
	for d < len(j.Blocks) && (x.s.pods[p].cache.has(j.Blocks[d]) || x.known.owners[j.Blocks[d]]>>p&1 == 1) {
		d++
	}
	return d
}

func (x *oracle) compute(j *job, depth int) float64 {
	held := x.s.Trace.cached(j.Request, depth)
	return x.s.Engine.Work(float64(held), float64(j.Input-held))
}

// wait is the time until the pod has computed what it has.
func (x *oracle) wait(p int, now float64) float64 {
	pod, t := x.s.pods[p], 0.0
	for i, j := range pod.filling {
		done := j.computed
		if i < len(pod.chunks) {
			done += pod.chunks[i]
		}
		t += x.s.Engine.Work(float64(done), float64(max(0, j.Input-done)))
	}
	for _, j := range pod.waiting.rest() {
		t += x.work[j.id]
	}
	if !pod.idle() && len(pod.filling) > 0 {
		t += pod.end - now
	}
	return t
}

func (x *oracle) done(j *job, now float64) {
	x.counts.done(j, now)
	x.held[j.pod] -= float64(j.Input)
}

func (x *oracle) warm(p int, held []int32) { x.known.learn(p, held) }
