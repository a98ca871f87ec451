package enginesim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// Engine is one simulated engine: an http.Handler with a queue, a KV cache and a
// scheduler. Safe for concurrent use. It runs no goroutine of its own but for the
// clock's timers and the release of leases at engines of other processes.
type Engine struct {
	clock Clock
	peers *Peers
	id    string // unique to this engine, as vLLM's engine_id

	mu         sync.Mutex // guards all below
	set        Settings   // defaults filled in
	generation int64      // of the configuration that set came from
	health     int        // status of /health while it is overridden; else 0
	pool       *blockPool
	waiting    []*sequence
	loading    []*sequence
	ready      []*sequence
	running    []*sequence
	stepping   bool // a step runs, and a timer will call tick at stepEnd
	stepEnd    time.Time
	leases     map[string]*lease
	past       pastLeases
	count      Counters
}

// New returns an engine that is known to peers until Close. Errors name the setting
// that is wrong. Cost: about 50 bytes a block.
func New(set Settings, clock Clock, peers *Peers) (*Engine, error) {
	set, err := set.WithDefaults()
	if err != nil {
		return nil, fmt.Errorf("simulated engine: %w", err)
	}
	e := &Engine{
		clock:  clock,
		peers:  peers,
		id:     orDefault(set.EngineID, randomHex(16)),
		set:    set,
		pool:   newBlockPool(set.NumGPUBlocks),
		leases: map[string]*lease{},
		past:   pastLeases{reason: map[string]string{}},
		count:  Counters{Finished: map[string]uint64{}, Requests: map[string]uint64{}},
	}
	peers.add(e)
	return e, nil
}

// Close makes the engine unknown to its peers. Requests that still run end normally,
// and leases end in their own time.
func (e *Engine) Close() { e.peers.remove(e) }

// ID is the engine_id that kv_transfer_params carry.
func (e *Engine) ID() string { return e.id }

// Configure changes the settings of an engine that may be serving. generation orders
// configurations: one older than the current is ignored, so a handler of a replaced
// configuration cannot undo its successor. The shape of the cache cannot change.
func (e *Engine) Configure(set Settings, generation int64) error {
	set, err := set.WithDefaults()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if set.Shape() != e.set.Shape() {
		return fmt.Errorf("simulated engine %q: cannot change %s to %s while it lives", e.set.Name, e.set.Shape(), set.Shape())
	}
	if generation >= e.generation {
		e.set, e.generation = set, generation
		e.kick(e.clock.Now())
	}
	return nil
}

// Settings returns the settings in force, defaults filled in.
func (e *Engine) Settings() Settings {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}

// SetHealth makes /health answer with this status whatever the settings say; 0 gives
// the settings their say again.
func (e *Engine) SetHealth(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.health = status
}

func (e *Engine) healthStatus() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return orDefault(e.health, e.set.HealthStatus)
}

// ResetCache forgets all cached blocks, as a restart would; what is in use stays
// pinned.
func (e *Engine) ResetCache() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool.reset()
}

// submit queues sequences that belong together, in order.
func (e *Engine) submit(seqs []*sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range seqs {
		s.cached = -1
		e.waiting = append(e.waiting, s)
	}
	e.kick(e.clock.Now())
}

// cancel aborts those of the sequences that have not ended, and gives their claims
// back.
func (e *Engine) cancel(seqs []*sequence) {
	e.mu.Lock()
	var claims []*claim
	for _, s := range seqs {
		if s.claim != nil {
			claims = append(claims, s.claim)
			s.claim = nil
		}
		e.abort(s)
	}
	e.kick(e.clock.Now())
	e.mu.Unlock()
	for _, c := range claims {
		if c.meeting != nil {
			e.peers.take(c.meeting, errOtherLeft)
		}
		c.release()
	}
}

// progress is how far a sequence is.
type progress struct {
	out, cached int
	done        bool
	lease       string
}

func (e *Engine) progress(s *sequence) progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	return progress{out: s.out, cached: max(0, s.cached), done: s.state == ended, lease: s.lease}
}

// follow calls each for every piece of progress until all sequences have ended, each
// fails or ctx is done; in the last two cases the rest is cancelled and the error
// returned. The sequences share one notify channel.
func (e *Engine) follow(ctx context.Context, seqs []*sequence, each func(i int, p progress) error) error {
	last := make([]progress, len(seqs))
	for left := len(seqs); left > 0; {
		select {
		case <-ctx.Done():
			e.cancel(seqs)
			return ctx.Err()
		case <-seqs[0].notify:
		}
		for i, s := range seqs {
			p := e.progress(s)
			if p == last[i] {
				continue
			}
			if p.done && !last[i].done {
				left--
			}
			last[i] = p
			if err := each(i, p); err != nil {
				e.cancel(seqs)
				return err
			}
		}
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}
