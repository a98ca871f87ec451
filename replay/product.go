package replay

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

// Constants are what the product is configured with in a Run; the zero value
// stands for the defaults.
type Constants struct {
	TTFT selection.TTFT
	// Capacity is how many blocks the index keeps of a pod, in units of what the
	// pod's cache holds; 0: 1.
	Capacity float64
	// Overload says when requests are held; Max stays out of it.
	Overload fleet.Overload
}

// The product's defaults of its ring.
const (
	ringNodes = 160
	ringBound = 1.25
)

// Strategy returns the policy that is this product with a strategy.
func Strategy(name string, s selection.Strategy, c Constants) Policy {
	return Policy{
		Name: name, Note: "this product", Product: true,
		make: func(x *sim) router { return newProduct(x, s, c) },
	}
}

// product drives the product's own fleet.
type product struct {
	fleet  *fleet.Fleet
	index  *index.Index
	slots  []uint8 // by pod
	pods   [selection.Slots]int
	leases []fleet.Lease
	chains []blocks
	ask    fleet.Ask
	each   int // tokens in a block

	holds []fleet.Hold // by job, if requests are held
	turn  *job         // whose turn it is, nil if nobody's
	alarm float64      // when the fleet wants to be called, infinite: not
}

func newProduct(s *sim, strategy selection.Strategy, c Constants) router {
	p := &product{
		index:  index.New(index.Options{}),
		leases: make([]fleet.Lease, len(s.jobs)),
		chains: make([]blocks, len(s.jobs)),
		ask: fleet.Ask{
			Strategy: strategy, Weights: selection.SingleWeights(), TTFT: c.TTFT, HasKey: true,
			HasHash: true, VirtualNodes: ringNodes, LoadFactor: ringBound,
		},
		each: s.Trace.BlockTokens, alarm: math.Inf(1),
	}
	p.fleet = fleet.New(fleet.Options{
		Index: p.index, Sessions: fleet.Sessions{TTL: 30 * time.Minute, Max: 100_000}, Seed: s.Seed + 1,
		Alarm: func(at time.Time) { p.alarm = millis(at) },
	})
	if c.Overload.Above > 0 {
		c.Overload.Max = len(s.jobs)
		p.fleet.SetOverload(c.Overload)
		p.holds = make([]fleet.Hold, len(s.jobs))
	}
	p.fleet.SetRings(ringNodes)
	pods := make([]fleet.Pod, s.Pods)
	for i := range pods {
		pods[i] = fleet.Pod{ID: "pod-" + strconv.Itoa(i), Roles: fleet.RoleSet(0).With(fleet.Single)}
	}
	if _, err := p.fleet.Apply(moment(0), pods); err != nil {
		panic(err) // Do has checked their number
	}
	capacity := s.Engine.CacheBlocks
	if c.Capacity > 0 && capacity > 0 {
		capacity = max(1, int(c.Capacity*float64(capacity)))
	}
	for i, st := range p.fleet.Snapshot() {
		p.slots = append(p.slots, st.Ref.Slot)
		p.pods[st.Ref.Slot] = i
		p.index.SetCapacity(st.Ref.Slot, capacity)
	}
	return p
}

// start is when simulated time begins.
var start = time.Unix(1_000_000_000, 0)

// moment turns simulated time into the product's.
func moment(ms float64) time.Time { return start.Add(time.Duration(ms * 1e6)) }

// millis is the other way round, not earlier.
func millis(at time.Time) float64 { return float64(at.Sub(start)+1) / 1e6 }

func (p *product) route(j *job, now float64) int {
	p.chains[j.id] = blocks{hashes: j.hashes, tokens: j.Input, each: p.each}
	return p.send(j, now)
}

// send routes the job, or leaves it with those that are held.
func (p *product) send(j *job, now float64) int {
	c, l := &p.chains[j.id], &p.leases[j.id]
	a := p.ask
	if p.holds != nil {
		a.Hold = &p.holds[j.id]
		a.Hold.Turn = func() { p.turn = j }
	}
	a.Chain, a.Tokens = c, j.Input
	a.Key = j.hashes[len(j.hashes)-1] ^ uint64(j.Input)
	a.Session = mix(uint64(j.Session)) | 1
	a.Hash = a.Session
	if a.Strategy == selection.Prefix {
		a.Hash = j.hashes[0]
	}
	switch err := p.fleet.Begin(moment(now), &a, l); {
	case errors.Is(err, fleet.ErrHeld):
		return nowhere
	case err != nil:
		panic(err) // pods without a limit that are always up
	}
	l.Start()
	j.believed = l.Depth
	return p.pods[l.Ref().Slot]
}

func (p *product) first(j *job, now float64) { p.leases[j.id].FirstByte(moment(now)) }
func (p *product) done(j *job, now float64)  { p.leases[j.id].End(moment(now), outcome.Answered) }

func (p *product) due() float64 { return p.alarm }

func (p *product) released(now float64) *job {
	if p.alarm <= now {
		p.alarm = math.Inf(1)
		p.fleet.Tick(moment(now))
	}
	for p.turn != nil {
		j := p.turn
		p.turn = nil
		if j.pod = p.send(j, now); j.pod != nowhere {
			return j
		}
	}
	return nil
}

func (p *product) warm(pod int, held []int32) {
	c := &blocks{hashes: make([]uint64, len(held))}
	for i, b := range held {
		c.hashes[i] = mix(uint64(b))
	}
	p.index.Register(moment(0), p.slots[pod], c, nil)
}

// blocks is the chain of a request whose blocks a trace has named. Its text has
// a byte for each token.
type blocks struct {
	hashes []uint64
	hashed int
	tokens int
	each   int
}

// Extend implements [fleet.Chain].
func (b *blocks) Extend(n int) int {
	b.hashed = max(b.hashed, min(n, len(b.hashes)))
	return b.hashed
}

// Complete implements [fleet.Chain].
func (b *blocks) Complete() int { return b.Extend(len(b.hashes)) }

// Hashes implements [fleet.Chain].
func (b *blocks) Hashes() []uint64 { return b.hashes[:b.hashed] }

// End implements [fleet.Chain].
func (b *blocks) End(k int) int { return min((k+1)*b.each, b.tokens) }

// Bytes implements [fleet.Chain].
func (b *blocks) Bytes() int { return b.tokens }

// Blocks implements [fleet.Chain].
func (b *blocks) Blocks() int { return len(b.hashes) }
