package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// fault is one that a pod can have: what begins it and what ends it.
type fault struct {
	name       string
	begin, end func(*pod)
}

func be(m manner) func(*pod) { return func(p *pod) { p.manner.Store(int32(m)) } }

var faults = []fault{
	{"crash and restart", func(p *pod) { p.breaking(p.Crash, true) }, func(p *pod) { _ = p.Restart() }},
	{"hang", func(p *pod) { p.Freeze() }, func(p *pod) { p.Thaw() }},
	{"flap", func(p *pod) { p.Healthy(false) }, func(p *pod) { p.Healthy(true) }},
	{"slow", be(slow), be(normal)},
	{"cut in the middle", be(cutting), be(normal)},
	{"loss before the answer", be(losing), be(normal)},
	{"503", be(busy), be(normal)},
	{"reset of reused connections", func(p *pod) { p.ResetOnReuse(true) }, func(p *pod) { p.ResetOnReuse(false) }},
	{"all connections reset", func(p *pod) { p.breaking(p.ResetConns, false) }, func(*pod) {}},
	{"idle connections closed", func(p *pod) { p.CloseIdle(20 * time.Millisecond) }, func(p *pod) { p.CloseIdle(0) }},
}

// script brings faults and reloads about.
type script struct {
	rng    *rand.Rand
	pods   *pods
	caddy  *caddy
	c      *checker
	counts map[string]int
	loads  int
}

func newScript(s settings, ps *pods, ca *caddy, c *checker) *script {
	return &script{rng: rand.New(rand.NewPCG(s.seed, 1)), pods: ps, caddy: ca, c: c, counts: map[string]int{}}
}

// ending is a fault that lasts.
type ending struct {
	at  time.Time
	pod *pod
	end func(*pod)
}

// run goes on until the time, and then heals all pods.
func (s *script) run(ctx context.Context, until time.Time) {
	var running []ending
	nextFault, nextLoad := time.Now(), time.Now().Add(3*time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for now := time.Now(); now.Before(until) && ctx.Err() == nil; now = <-tick.C {
		running = heal(running, now)
		if now.After(nextFault) {
			nextFault = now.Add(time.Duration(300+s.rng.IntN(900)) * time.Millisecond)
			if e, ok := s.strike(now); ok {
				running = append(running, e)
			}
		}
		if now.After(nextLoad) {
			nextLoad = now.Add(time.Duration(3+s.rng.IntN(6)) * time.Second)
			s.loads++
			began := time.Now()
			if err := s.caddy.reload(ctx); err != nil && ctx.Err() == nil {
				s.c.violate("reload %d: %v", s.loads, err)
			}
			s.c.reloaded(began)
		}
	}
	heal(running, until.Add(time.Hour))
}

// strike picks a pod that is well, while most of its role are, and a fault.
func (s *script) strike(now time.Time) (ending, bool) {
	p := s.pods.all[s.rng.IntN(len(s.pods.all))]
	f := faults[s.rng.IntN(len(faults))]
	lasts := time.Duration(500+s.rng.IntN(3500)) * time.Millisecond
	same := s.pods.of(p.role)
	ill := 0
	for _, other := range same {
		if other.ill {
			ill++
		}
	}
	if p.ill || 2*(ill+1) > len(same)+1 {
		return ending{}, false
	}
	p.ill = true
	s.counts[f.name]++
	f.begin(p)
	return ending{now.Add(lasts), p, f.end}, true
}

// heal ends the faults whose time has come and returns the others.
func heal(running []ending, now time.Time) (left []ending) {
	for _, e := range running {
		if now.Before(e.at) {
			left = append(left, e)
			continue
		}
		e.end(e.pod)
		e.pod.ill = false
	}
	return left
}
