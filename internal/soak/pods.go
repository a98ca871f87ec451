package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// manner is what a pod does with requests at the moment.
type manner int32

const (
	normal  manner = iota
	slow           // answers late, and streams slowly
	cutting        // breaks off in the middle of every third answer
	losing         // takes every third request and breaks off before any answer
	busy           // 503
)

// pod is a fake pod with a role.
type pod struct {
	*fakepod.Pod
	role   string
	manner atomic.Int32
	served atomic.Int64
	ill    bool // the script's

	mu     sync.Mutex
	breaks []breakage
}

// breaking notes when the pod's connections are broken by how, after which it may be
// gone.
func (p *pod) breaking(how func(), gone bool) {
	began := time.Now()
	p.mu.Lock()
	p.breaks = append(p.breaks, breakage{began, began.Add(time.Hour), gone})
	k := len(p.breaks) - 1
	p.mu.Unlock()
	how()
	p.mu.Lock()
	p.breaks[k].to = time.Now()
	p.mu.Unlock()
}

// brokeWithin reports whether its connections were broken so soon after the time, with
// gone by its death. It may have been just before: a busy machine lets a pod tell late
// of a request that it had in its buffer by then.
func (p *pod) brokeWithin(at time.Time, after time.Duration, gone bool) bool {
	from := at.Add(-after)
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.breaks, func(b breakage) bool {
		return (b.gone || !gone) && !b.to.Before(from) && !b.from.After(at.Add(after))
	})
}

// breakage is when a pod's connections were broken, and whether it was gone then.
type breakage struct {
	from, to time.Time
	gone     bool
}

type pods struct {
	all []*pod
}

func startPods(s settings, c *checker) (*pods, error) {
	ps := new(pods)
	for _, role := range []struct {
		name string
		n    int
	}{{"single", s.single}, {"prefill", s.prefill}, {"decode", s.decode}} {
		for k := range role.n {
			p := &pod{role: role.name}
			f, err := fakepod.Start(fakepod.Options{Name: fmt.Sprintf("%s-%d", role.name, k+1), Keep: 32})
			if err != nil {
				ps.close()
				return nil, err
			}
			p.Pod = f
			f.Set(fakepod.Func(func(r fakepod.Request) fakepod.Reply { return p.reply(r, c) }))
			ps.all = append(ps.all, p)
		}
	}
	return ps, nil
}

func (ps *pods) close() {
	for _, p := range ps.all {
		p.Close()
	}
}

func (ps *pods) of(role string) (list []*pod) {
	for _, p := range ps.all {
		if p.role == role {
			list = append(list, p)
		}
	}
	return list
}

// handover is what a prefill pod answers for the decode leg.
var handover = json.RawMessage(`{"do_remote_prefill":true,"remote_block_ids":[[1,2,3]],"remote_engine_id":"soak"}`)

// reply answers a request as the pod's manner is, and enters the generation that
// begins with it.
func (p *pod) reply(r fakepod.Request, c *checker) fakepod.Reply {
	id := r.Header.Get("X-Calinix-Request-Id")
	c.asked(id)
	n := p.served.Add(1)
	m := manner(p.manner.Load())
	if m == busy {
		return fakepod.Reply{Status: 503}
	}
	if p.role != "prefill" {
		c.generation(id, generation{pod: p, at: time.Now(), conn: r.Conn, onConn: r.OnConn})
	}
	reply := fakepod.Reply{Delay: 5 * time.Millisecond, Gap: 10 * time.Millisecond}
	if p.role == "prefill" {
		reply.KV = handover
	}
	switch {
	case m == slow:
		reply.Delay, reply.Gap = 400*time.Millisecond, 60*time.Millisecond
	case m == cutting && n%3 == 0:
		reply.Cut, reply.At = fakepod.Reset, fakepod.HalfBody
	case m == losing && n%3 == 0:
		reply.Delay, reply.Cut = 150*time.Millisecond, fakepod.Reset
	}
	return reply
}
