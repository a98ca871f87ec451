package replay

import (
	"fmt"
	"math"
)

// MaxPods is how many pods a Run can have: some reference models keep the pods
// of a block in one word.
const MaxPods = 64

// Run is one trace through one fleet under one policy.
type Run struct {
	Trace  *Trace
	Policy Policy
	Pods   int // 1 to MaxPods
	Engine Engine
	// Rate is at how many requests a second the trace is played; 0: its own pace.
	Rate float64
	// Seed is for policies that draw lots.
	Seed uint64
	// Slow says how many times slower than Engine the pods are, by their number;
	// those that it does not reach are as fast.
	Slow []float64
	// Transit is how many ms a request takes to reach its pod, and the news of its
	// answer to come back: a pod that has nothing else to do is idle meanwhile.
	Transit float64
	// Warm returns the blocks of one prefix that pod p holds at the start; nil:
	// none.
	Warm func(p int) []int32
}

// router picks pods. It is told what a router sees: that an answer has begun and
// that it has ended.
type router interface {
	// route picks a pod for the job, and notes in it how many leading blocks the
	// pod is believed to hold. A holder may say nowhere.
	route(j *job, now float64) int
	first(j *job, now float64)
	done(j *job, now float64)
	// warm says that a pod holds blocks from the start.
	warm(p int, blocks []int32)
}

// holder is a router that may keep requests back.
type holder interface {
	router
	// due is when the next one may be released though nothing else happens;
	// infinite if there is none.
	due() float64
	// released returns one that now has its pod, nil if there is none.
	released(now float64) *job
}

// nowhere is the pod of a request that is kept back.
const nowhere = -1

// sim is the state of a Run.
type sim struct {
	Run
	pods []*pod
	jobs []job
	draw random
	way  transit

	changes changes // of the pods' caches, for routers that are told
	scraped *scrape // the pods' gauges, for routers that look at them
	now     float64
}

// Do runs it. A Run may be done by several goroutines at a time.
func (r Run) Do() (*Result, error) {
	switch {
	case r.Trace == nil || len(r.Trace.Requests) == 0:
		return nil, fmt.Errorf("no requests to replay")
	case r.Pods < 1 || r.Pods > MaxPods:
		return nil, fmt.Errorf("%d pods, want 1 to %d", r.Pods, MaxPods)
	case r.Engine.KVTokens < 1 || r.Engine.Chunk <= r.Engine.Running || r.Engine.Running < 1:
		return nil, fmt.Errorf("engine: want a chunk of more tokens than sequences run, and room for tokens")
	}
	s := &sim{Run: r, way: transit{late: r.Transit}, draw: random{r.Seed*7919 + 17}, jobs: make([]job, len(r.Trace.Requests))}
	rt := r.Policy.make(s)
	for i := range r.Pods {
		s.pods = append(s.pods, s.newPod(i, rt))
	}
	if r.Warm != nil {
		for i, p := range s.pods {
			blocks := r.Warm(i)
			for k := len(blocks) - 1; k >= 0; k-- {
				p.cache.touch(blocks[k])
			}
			rt.warm(i, blocks)
		}
	}
	s.play(rt)
	return s.result(), nil
}

func (s *sim) newPod(i int, rt router) *pod {
	p := &pod{
		engine: &s.Engine, slow: 1, tokens: s.Trace.BlockTokens, end: math.Inf(1),
		cache:    newCache(s.Trace.Blocks, s.Engine.capacity()),
		computed: func(j *job, now float64) { s.way.send(now, func(at float64) { rt.first(j, at) }) },
		finished: func(j *job, now float64) { s.way.send(now, func(at float64) { rt.done(j, at) }) },
	}
	if i < len(s.Slow) && s.Slow[i] > 0 {
		p.slow = s.Slow[i]
	}
	if s.changes.wanted {
		p.cache.inserted = func(b int32) { s.changes.note(change{s.now, i, b, true}) }
		p.cache.evicted = func(b int32) { s.changes.note(change{s.now, i, b, false}) }
	}
	return p
}

// play lets things happen in the order of their times. A pod's step goes before
// a request that comes at the same time.
func (s *sim) play(rt router) {
	pace := 1.0
	if s.Rate > 0 {
		pace = s.Rate / s.Trace.Rate()
	}
	next, h := 0, holderOf(rt)
	for {
		for j := h.released(s.now); j != nil; j = h.released(s.now) {
			s.post(j)
		}
		arrival := math.Inf(1)
		if next < len(s.jobs) {
			arrival = s.Trace.Requests[next].At / pace
		}
		var due *pod
		step := math.Inf(1)
		for _, p := range s.pods { // so few that no queue is faster
			if p.end < step {
				step, due = p.end, p
			}
		}
		alarm, letter := math.Max(s.now, h.due()), s.way.due()
		if s.now = min(arrival, step, alarm, letter); math.IsInf(s.now, 1) {
			return
		}
		s.changes.apply(s.now)
		if s.scraped != nil {
			s.scraped.look(s)
		}
		switch {
		case step <= s.now:
			due.step()
		case letter <= s.now:
			s.way.arrive()
		case alarm <= s.now:
			// released does what is due
		default:
			j := &s.jobs[next]
			j.Request, j.id, j.at = &s.Trace.Requests[next], next, arrival
			next++
			if j.pod = rt.route(j, s.now); j.pod != nowhere {
				s.post(j)
			}
		}
	}
}

// post sends the job to its pod.
func (s *sim) post(j *job) {
	s.way.send(s.now, func(at float64) { s.pods[j.pod].push(j, at) })
}

// holderOf returns the router as one that may keep requests back.
func holderOf(rt router) holder {
	if h, ok := rt.(holder); ok {
		return h
	}
	return straight{rt}
}

// straight is a router that keeps nothing back.
type straight struct{ router }

func (straight) due() float64          { return math.Inf(1) }
func (straight) released(float64) *job { return nil }

// change is a block that a pod's cache has taken or given up.
type change struct {
	at    float64
	pod   int
	block int32
	held  bool
}

// changes brings the changes of the pods' caches to a router, some time later.
type changes struct {
	wanted bool
	late   float64 // ms
	tell   func(change)
	queue  []change
	head   int
}

func (c *changes) note(x change) {
	x.at += c.late
	c.queue = append(c.queue, x)
}

func (c *changes) apply(now float64) {
	for c.head < len(c.queue) && c.queue[c.head].at <= now {
		c.tell(c.queue[c.head])
		c.head++
	}
	if c.head > 4096 && 2*c.head > len(c.queue) {
		c.queue = append(c.queue[:0], c.queue[c.head:]...)
		c.head = 0
	}
}

// scrape is what a router knows that reads the pods' gauges once in a while.
type scrape struct {
	every   float64 // ms
	next    float64
	waiting []int
	usage   []float64 // share of the KV memory that is in use
}

// look reads the gauges if it was time to since the last look: between two
// events they do not change.
func (c *scrape) look(s *sim) {
	if c.next > s.now {
		return
	}
	c.next += (math.Floor((s.now-c.next)/c.every) + 1) * c.every
	for i, p := range s.pods {
		c.waiting[i] = p.waiting.len()
		c.usage[i] = float64(p.active) / float64(s.Engine.KVTokens)
	}
}
