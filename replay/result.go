package replay

import (
	"math"
	"slices"
)

// Result is how a Run went. Times are in ms, shares from 0 to 1.
type Result struct {
	Policy string
	Rate   float64 // requests a second

	// Times to the first byte.
	Mean, P50, P95, P99 float64
	// What of these is owed to routing: beyond the time that an idle pod would
	// have taken that holds all which any request before has computed.
	ExcessMean, ExcessP99 float64
	// Goodput is the share of requests whose first byte came within 1 s and 1.5
	// times the time that their whole prompt takes.
	Goodput float64
	// Hit is the share of blocks that were cached; HitBound that of the blocks
	// which one unlimited cache would have held.
	Hit, HitBound float64
	// Token is the mean time between tokens, Whole that of whole answers.
	Token, Whole float64
	// Fairness of the pods' busy time and of their numbers of requests: Jain's
	// index, 1 if all are equal, 1/pods if one has all.
	FairBusy, FairRequests float64
	// Queue is the longest queue at any pod.
	Queue int
	// Requests is how many each pod got.
	Requests []int
}

// The goal that goodput counts.
const (
	goalFixed = 1000
	goalWork  = 1.5
)

func (s *sim) result() *Result {
	r := &Result{Policy: s.Policy.Name, Rate: s.Rate, Requests: make([]int, s.Pods)}
	if r.Rate == 0 {
		r.Rate = s.Trace.Rate()
	}
	var first, excess []float64
	hit, blocks, good := 0, 0, 0
	between, answers := 0.0, 0
	for i := range s.jobs {
		j := &s.jobs[i]
		r.Requests[j.pod]++
		hit += j.matched
		blocks += len(j.Blocks)
		t := j.first - j.at
		first = append(first, t)
		held := float64(s.Trace.cached(j.Request, j.known))
		excess = append(excess, t-s.Engine.Work(held, float64(j.Input)-held))
		if t <= goalFixed+goalWork*s.Engine.Work(0, float64(j.Input)) {
			good++
		}
		r.Whole += j.done - j.at
		if j.Output > 1 {
			between += (j.done - j.first) / float64(j.Output-1)
			answers++
		}
	}
	n := float64(len(s.jobs))
	r.Mean, r.ExcessMean, r.Whole = mean(first), mean(excess), r.Whole/n
	slices.Sort(first)
	slices.Sort(excess)
	r.P50, r.P95, r.P99 = quantile(first, 0.5), quantile(first, 0.95), quantile(first, 0.99)
	r.ExcessP99 = quantile(excess, 0.99)
	r.Goodput = float64(good) / n
	r.Hit = float64(hit) / math.Max(1, float64(blocks))
	if s.Trace.Bound > 0 {
		r.HitBound = r.Hit / s.Trace.Bound
	}
	if answers > 0 {
		r.Token = between / float64(answers)
	}
	var busy, requests []float64
	for i, p := range s.pods {
		busy, requests = append(busy, p.busy), append(requests, float64(r.Requests[i]))
		r.Queue = max(r.Queue, p.longest)
	}
	r.FairBusy, r.FairRequests = Jain(busy), Jain(requests)
	return r
}

// Jain returns Jain's index of fairness.
func Jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / math.Max(1, float64(len(x)))
}

// quantile returns the value of sorted x below which a share q lies.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return x[min(len(x)-1, int(q*float64(len(x))))]
}
