package calinix

import (
	"runtime"
	"sync"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
)

// What is expensive to make anew for each request.
var (
	requests = sync.Pool{New: func() any { return new(prompt.Request) }}
	chains   = sync.Pool{New: func() any { return new(chain.Chain) }}
)

// keptBlocks is the longest chain whose memory is kept for the next request.
const keptBlocks = 1 << 13

// heavies holds a place for each large body between being read and a pod being
// picked: in that time its prompt takes as much memory once more. More at once
// than there are processors would not be faster.
var heavies = make(chan struct{}, runtime.GOMAXPROCS(0))

// heavyBody is the size from which on a body is a large one.
const heavyBody = 256 << 10

// picked begins, beside the leg, what the decision has left undone: the rest of
// the prompt's chain is hashed and registered. Then what was needed to pick pods
// is given back. Nobody may use the chain before settle has returned.
func (x *exchange) picked() {
	switch {
	case x.late:
	case x.prompt && x.h.indexed:
		x.late = true
		go x.settle()
	default:
		x.late = true
		x.settle()
	}
}

// settle returns when what picked has begun is done; if nobody does it yet, it does
// it itself. Of a further pick the chain then tells enough.
func (x *exchange) settle() {
	if !x.late {
		return
	}
	x.settled.Do(func() {
		if x.prompt && x.h.indexed {
			for _, l := range x.leases {
				l.Complete(x.read.Add(x.held))
			}
			x.chain.Finish()
			x.h.blocksHit.Add(float64(x.depth))
			x.h.blocksMissed.Add(float64(len(x.chain.Hashes()) - x.depth))
		}
		if x.prompt && x.h.logTrace {
			x.chain.Finish()
			x.trace()
		}
		x.parted()
	})
}

// parted gives back what was made of the body.
func (x *exchange) parted() {
	if x.request != nil {
		x.request.Reset()
		requests.Put(x.request)
		x.request = nil
	}
	if x.heavy {
		x.heavy = false
		<-heavies
	}
}

// answering gives back what no further leg needs: the answer has begun.
func (x *exchange) answering() {
	x.settle()
	x.payload, x.handed = nil, cargo{}
	if x.body != nil {
		x.body.release()
	}
	if x.chain != nil {
		if len(x.chain.Hashes()) <= keptBlocks {
			x.chain.Reset(chain.Options{}, 0, nil)
			chains.Put(x.chain)
		}
		x.chain = nil
	}
}

// release gives back what the exchange holds, and writes the log fields. It
// runs also when the request ends in a panic.
func (x *exchange) release() {
	for _, l := range x.leases {
		l.End(x.h.now(), outcome.Unsent) // has no effect unless something has panicked
	}
	x.settle()
	if x.running != nil {
		x.running.Add(-1)
	}
	x.parted()
	x.answering()
	x.log()
}
