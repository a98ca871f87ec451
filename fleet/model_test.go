package fleet

import (
	"slices"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/selection"
)

// model is the fleet told in the plainest way: lists that are searched.
type model struct {
	f     *Fleet
	now   time.Time
	pods  []*modelPod // as configured
	gone  []*modelPod // removed, with legs left
	legs  []*modelLeg
	known map[modelSession]modelServed
	ttl   time.Duration
}

type modelPod struct {
	Pod
	up      bool
	drained *bool // what Drain said
	life    int   // raised when the pod loses its cache
	ref     Ref
	empty   int64 // when its queue will be empty
}

type modelLeg struct {
	pod     *modelPod
	role    Role
	running bool
	lease   *Lease

	tokens, uncached int64
	duty             selection.Duty
	computed         bool
	answered         bool
	due              int64 // when the first byte is taken for come, -1: never
}

type modelSession struct {
	key  uint64
	role Role
}

type modelServed struct {
	pod  *modelPod
	life int
	at   time.Time
}

func (p *modelPod) drains() bool {
	if p.drained != nil {
		return *p.drained
	}
	return p.Draining
}

func (m *model) inflight(p *modelPod) (n int) {
	for _, l := range m.legs {
		if l.pod == p {
			n++
		}
	}
	return n
}

// at is the time on the fleet's clock.
func (m *model) at() int64 { return int64(m.now.Sub(epoch)) }

// compute says that the leg's prompt is computed at a time.
func (m *model) compute(l *modelLeg, at int64) {
	if l.computed {
		return
	}
	l.computed = true
	waiting := int64(0)
	for _, o := range m.legs {
		if o.pod == l.pod && !o.computed {
			waiting += o.uncached
		}
	}
	l.pod.empty = at + waiting*1e9/2000
}

// settle takes first bytes for come in the order in which they are due.
func (m *model) settle() {
	for {
		var next *modelLeg
		for _, l := range m.legs {
			if !l.computed && l.due >= 0 && l.due <= m.at() && (next == nil || l.due < next.due) {
				next = l
			}
		}
		if next == nil {
			return
		}
		m.compute(next, next.due)
	}
}

// backlog sums up the legs of a pod.
func (m *model) backlog(p *modelPod) selection.Backlog {
	b := selection.Backlog{Empty: p.empty}
	for _, l := range m.legs {
		if l.pod != p {
			continue
		}
		b.Prompts += l.tokens
		if !l.computed {
			b.Uncached += l.uncached
		} else if l.duty != selection.Compute {
			b.Decoding += l.tokens
			b.Decoders++
		}
	}
	return b
}

// usable says whether the pod may be picked, its limit apart.
func (m *model) usable(p *modelPod, role Role, exclude *index.Bitmap) bool {
	return p.Roles.Has(role) && p.up && !p.drains() && !exclude.Has(int(p.ref.Slot))
}

func (m *model) full(p *modelPod) bool { return p.Limited && m.inflight(p) >= p.MaxConns }

// served is the pod to which the session returns, nil if none.
func (m *model) served(key uint64, role Role) *modelPod {
	// A session is remembered as a whole: a request in any role keeps it.
	last := time.Time{}
	for r := range Role(Roles) {
		if s, ok := m.known[modelSession{key, r}]; ok && s.at.After(last) {
			last = s.at
		}
	}
	s := m.known[modelSession{key, role}]
	if s.pod == nil || m.now.Sub(last) >= m.ttl || s.life != s.pod.life || !slices.Contains(m.pods, s.pod) {
		return nil
	}
	return s.pod
}
