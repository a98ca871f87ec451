package enginesim

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// meeting is where a prefill and a decode leg that are sent at once find each
// other, by an id that both carry. Engines of one process meet; those of different
// processes do not.
type meeting struct {
	key  string
	ends chan struct{} // closed when the KV is there, or will never be
	gone chan struct{} // closed when the KV was taken, or will never be

	// The rest is guarded by Peers.mu.
	producer *Engine
	consumer *Engine
	err      error // why the KV will never be there
	lost     error // why it will never be taken
	ended    bool
	left     bool
}

// join returns the meeting of that key for a producer or a consumer. An id serves
// one of each.
func (p *Peers) join(key string, e *Engine, produce bool) (*meeting, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.past.reason[key]; why != "" {
		return nil, fmt.Errorf("%s: %s", key, why)
	}
	m := p.rooms[key]
	if m == nil {
		m = &meeting{key: key, ends: make(chan struct{}), gone: make(chan struct{})}
		p.rooms[key] = m
	}
	as := &m.consumer
	if produce {
		as = &m.producer
	}
	if *as != nil {
		return nil, fmt.Errorf("%s: already in use", key)
	}
	*as = e
	return m, nil
}

// arrive says that the producer's KV is there, or why it never will be.
func (p *Peers) arrive(m *meeting, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.ended {
		m.ended, m.err = true, err
		close(m.ends)
	}
	p.leave(m, err != nil)
}

// take says that the consumer has the KV, or why it never will.
func (p *Peers) take(m *meeting, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.left {
		m.left, m.lost = true, err
		close(m.gone)
	}
	p.leave(m, err != nil)
}

// leave ends a meeting when both have, or one for good. Guarded by mu.
func (p *Peers) leave(m *meeting, failed bool) {
	if p.rooms[m.key] == m && (failed || m.ended && m.left) {
		delete(p.rooms, m.key)
		p.past.add(m.key, "was used before")
	}
}

// meet makes the job's sequences producers, or consumers, of the keys.
func (j *job) meet(keys []string, produce bool) error {
	for i, key := range keys {
		m, err := j.e.peers.join(key, j.e, produce)
		if err != nil {
			j.part(err)
			return err
		}
		j.meetings = append(j.meetings, m)
		if produce {
			j.seqs[i].hold, j.seqs[i].meeting = &handout{RemoteRequestID: key}, m
		}
	}
	return nil
}

// part ends the job's part in its meetings, if it has not ended yet.
func (j *job) part(err error) {
	for _, m := range j.meetings {
		if j.leg == "prefill" {
			j.e.peers.arrive(m, err)
		} else {
			j.e.peers.take(m, err)
		}
	}
}

var errOtherLeft = errors.New("the request was aborted")

// receive waits for the KV of a decode leg's sequences and claims it.
func (j *job) receive(ctx context.Context) *apiError {
	if j.leg != "decode" || len(j.meetings) == 0 {
		return nil
	}
	late := make(chan struct{})
	stop := j.e.clock.AfterFunc(time.Duration(j.set.KVWaitTimeout), func() { close(late) })
	defer stop()
	for i, m := range j.meetings {
		var err error
		select {
		case <-m.ends:
			err = j.takeFrom(m, j.seqs[i])
		case <-late:
			err = fmt.Errorf("%s: the prefill leg did not come in %v", m.key, time.Duration(j.set.KVWaitTimeout))
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			j.part(err)
			refusal := j.loadFailure(err)
			if refusal != nil {
				j.e.cancel(j.seqs)
			}
			return refusal
		}
	}
	return nil
}

// takeFrom claims the KV that a meeting's producer holds.
func (j *job) takeFrom(m *meeting, s *sequence) error {
	j.e.peers.mu.Lock()
	producer, err := m.producer, m.err
	j.e.peers.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: the prefill engine gave up: %w", m.key, err)
	}
	if err := j.expected(producer); err != nil {
		return err
	}
	if err := producer.grantMeeting(m.key, promptHash(s.root, s.prompt)); err != nil {
		return err
	}
	s.claim = &claim{h: &handout{RemoteRequestID: m.key}, peer: producer, meeting: m}
	return nil
}

// grantMeeting is grantClaim for legs that have met.
func (e *Engine) grantMeeting(key string, prompt uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.leases[key]
	switch {
	case l == nil:
		return fmt.Errorf("%s: KV %s", key, orDefault(e.past.reason[key], "unknown"))
	case l.claimed:
		return fmt.Errorf("%s: KV already used", key)
	case l.prompt != prompt:
		return fmt.Errorf("%s: KV of another prompt", key)
	}
	l.claimed = true
	l.stop()
	e.expireLater(l)
	return nil
}

// send waits until a prefill leg's KV was taken: SGLang's prefill server answers no
// sooner.
func (j *job) send(ctx context.Context) *apiError {
	if j.leg != "prefill" || j.set.KVConnector != "sglang" {
		return nil
	}
	late := make(chan struct{})
	stop := j.e.clock.AfterFunc(time.Duration(j.set.KVWaitTimeout), func() { close(late) })
	defer stop()
	for _, m := range j.meetings {
		select {
		case <-m.gone:
			if m.lost != nil {
				return j.loadFailure(fmt.Errorf("KVTransferError(%s): Decode instance could be dead: %w", m.key, m.lost))
			}
		case <-late:
			return j.loadFailure(fmt.Errorf("KVTransferError(%s): the decode leg did not come in %v", m.key, time.Duration(j.set.KVWaitTimeout)))
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// store puts a block into the store that engines share.
func (p *Peers) store(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored[key] = true
}
