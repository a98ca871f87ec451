package replay

import "math"

// seed is the four-factor score as it was first published: load against a
// maxConns of 100, prompts and sessions learnt when the answer is complete, never
// forgotten, ties to the first pod.
type seed struct {
	counts
	known  *ownership
	served map[int32]int
}

const seedMaxConns = 100

func newSeed(s *sim) router {
	return &seed{counts: countsOf(s), known: newOwnership(s, 0), served: map[int32]int{}}
}

func (x *seed) route(j *job, _ float64) int {
	x.known.match(j.Blocks)
	sticky, returns := x.served[j.Session]
	pick, best := -1, -1.0
	for p, n := range x.inflight {
		if n >= seedMaxConns {
			continue
		}
		score := 0.6*100*float64(x.known.depth[p])/float64(len(j.Blocks)) +
			0.3*math.Max(0, 100*(1-float64(n)/seedMaxConns))
		if returns && sticky == p {
			score += 0.1 * 100
		}
		if score > best {
			pick, best = p, score
		}
	}
	if pick < 0 { // it would refuse the request; sending it keeps the runs comparable
		pick = lowest(&x.s.draw, x.s.Pods, func(p int) float64 { return float64(x.inflight[p]) })
	}
	j.believed = x.known.depth[pick]
	return x.send(pick)
}

func (x *seed) done(j *job, now float64) {
	x.counts.done(j, now)
	x.known.learn(j.pod, j.Blocks)
	x.served[j.Session] = j.pod
}

func (x *seed) warm(p int, held []int32) { x.known.learn(p, held) }
