package enginesim

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// handout is the kv_transfer_params object that a prefill leg gets back and the
// decode leg brings along (vLLM's NIXL connector). All of it is compared.
type handout struct {
	DoRemotePrefill bool    `json:"do_remote_prefill"`
	DoRemoteDecode  bool    `json:"do_remote_decode"`
	RemoteBlockIDs  []int32 `json:"remote_block_ids"`
	RemoteEngineID  string  `json:"remote_engine_id"`
	RemoteRequestID string  `json:"remote_request_id"`
	RemoteHost      string  `json:"remote_host"`
	RemotePort      int     `json:"remote_port"`
	TPSize          int     `json:"tp_size"`
	RemoteNumTokens int     `json:"remote_num_tokens"`
}

// lease is the KV of a finished prefill that waits for its decode leg.
type lease struct {
	handout handout
	prompt  uint64  // promptHash of what was prefilled
	blocks  []int32 // pinned
	claimed bool
	stop    func() bool // of the expiry timer
}

// pastLeases remembers why the latest leases ended, so that a refusal can say so.
type pastLeases struct {
	reason map[string]string
	order  []string
}

const maxPastLeases = 4096

func (p *pastLeases) add(id, reason string) {
	if len(p.order) >= maxPastLeases {
		delete(p.reason, p.order[0])
		p.order = p.order[1:]
	}
	p.reason[id] = reason
	p.order = append(p.order, id)
}

// grantLease pins the blocks of a finished prefill leg for its decode leg. Under
// Engine.mu.
func (e *Engine) grantLease(s *sequence) {
	h := *s.hold
	h.DoRemotePrefill, h.RemoteEngineID, h.TPSize = true, e.id, 1
	h.RemoteBlockIDs = slices.Clone(s.blocks)
	h.RemoteNumTokens = len(s.prompt)
	s.hold = &h
	s.lease = h.RemoteRequestID
	if s.meeting != nil {
		// Never under a lock of another engine: the peers' is taken last.
		e.peers.arrive(s.meeting, nil)
	}
	l := &lease{handout: h, prompt: promptHash(s.root, s.prompt), blocks: s.blocks}
	e.leases[s.lease] = l
	e.count.LeasesGranted++
	e.expireLater(l)
}

// expireLater starts the lease's time. Under Engine.mu.
func (e *Engine) expireLater(l *lease) {
	id := l.handout.RemoteRequestID
	l.stop = e.clock.AfterFunc(time.Duration(e.set.KVLeaseDuration), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.endLease(id, "expired")
	})
}

// endLease frees a lease's blocks. Under Engine.mu.
func (e *Engine) endLease(id, reason string) {
	l := e.leases[id]
	if l == nil {
		return
	}
	l.stop()
	delete(e.leases, id)
	if l.claimed {
		reason = "already used"
	} else {
		e.count.LeasesExpired++
	}
	e.past.add(id, reason)
	e.pool.unpin(l.blocks)
	e.kick(e.clock.Now())
}

// grantClaim is the prefill engine's side of a claim: h must be what was handed out,
// for the same prompt, not expired and not used before. A claimed lease is pinned
// until releaseClaim, or for another lease duration if the decode engine is gone.
func (e *Engine) grantClaim(h *handout, prompt uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.RemoteEngineID != e.id {
		return fmt.Errorf("remote_engine_id %q is not this engine's (%s)", h.RemoteEngineID, e.id)
	}
	l := e.leases[h.RemoteRequestID]
	switch {
	case l == nil && e.past.reason[h.RemoteRequestID] != "":
		return fmt.Errorf("remote_request_id %q: KV %s", h.RemoteRequestID, e.past.reason[h.RemoteRequestID])
	case l == nil:
		return fmt.Errorf("remote_request_id %q: unknown", h.RemoteRequestID)
	case l.claimed:
		return fmt.Errorf("remote_request_id %q: KV already used", h.RemoteRequestID)
	case !slices.Equal(h.RemoteBlockIDs, l.handout.RemoteBlockIDs):
		return fmt.Errorf("remote_block_ids %v differ from what was handed out", h.RemoteBlockIDs)
	case h.RemoteHost != l.handout.RemoteHost || h.RemotePort != l.handout.RemotePort:
		return fmt.Errorf("remote_host %s, remote_port %d differ from what was handed out", h.RemoteHost, h.RemotePort)
	case h.TPSize != l.handout.TPSize || h.RemoteNumTokens != l.handout.RemoteNumTokens:
		return fmt.Errorf("tp_size %d, remote_num_tokens %d differ from what was handed out", h.TPSize, h.RemoteNumTokens)
	case prompt != l.prompt:
		return fmt.Errorf("remote_request_id %q: KV of another prompt", h.RemoteRequestID)
	}
	l.claimed = true
	l.stop()
	e.expireLater(l)
	return nil
}

// releaseClaim ends a lease whose KV was loaded, or whose decode leg was given up.
func (e *Engine) releaseClaim(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.leases[id]; l != nil && l.claimed {
		e.endLease(id, "")
	}
}

// claim is the decode engine's hold on a lease.
type claim struct {
	h      *handout
	peer   *Engine // where the lease is, if in this process; else reached over HTTP
	remote *Peers

	meeting *meeting // where the legs met; nil: nowhere
}

// takeClaim asks the engine that h names for its KV.
func (p *Peers) takeClaim(ctx context.Context, h *handout, prompt uint64) (*claim, error) {
	if peer := p.find(h.RemoteEngineID); peer != nil {
		return &claim{h: h, peer: peer}, peer.grantClaim(h, prompt)
	}
	return &claim{h: h, remote: p}, p.post(ctx, "claim", h, prompt)
}

// release frees the lease. It takes the other engine's lock: never call it under one.
func (c *claim) release() {
	if c.meeting != nil {
		c.peer.peers.take(c.meeting, nil)
	}
	if c.peer != nil {
		c.peer.releaseClaim(c.h.RemoteRequestID)
		return
	}
	go func() {
		// Fails only if that engine is gone; its lease then ends by itself.
		_ = c.remote.post(context.Background(), "release", c.h, 0)
	}()
}

// loaded puts a sequence whose KV has arrived in line for a slot.
func (e *Engine) loaded(s *sequence) {
	e.mu.Lock()
	if s.state != loading {
		e.mu.Unlock()
		return
	}
	c := s.claim
	s.claim = nil
	s.state = ready
	e.loading = slices.DeleteFunc(e.loading, func(r *sequence) bool { return r == s })
	e.ready = append(e.ready, s)
	if s.computed = s.stored; c != nil {
		s.computed = len(s.prompt)
	}
	e.offer(s)
	s.computed = min(s.computed, len(s.prompt)-1) // the last token is computed anew
	e.kick(e.clock.Now())
	e.mu.Unlock()
	if c != nil {
		c.release()
	}
}
