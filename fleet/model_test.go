package fleet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
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

func (m *model) apply(t *rapid.T) {
	var desired []Pod
	for i := range 6 {
		if !rapid.Bool().Draw(t, "wanted") {
			continue
		}
		p := Pod{
			ID:       fmt.Sprint("pod-", i),
			URL:      fmt.Sprintf("http://host-%d:%d", i, rapid.IntRange(1, 2).Draw(t, "port")),
			Roles:    RoleSet(rapid.IntRange(1, 7).Draw(t, "roles")),
			Draining: rapid.IntRange(0, 3).Draw(t, "draining") == 0,
			Down:     rapid.IntRange(0, 3).Draw(t, "down") == 0,
			Limited:  rapid.Bool().Draw(t, "limited"),
		}
		p.MaxConns = rapid.IntRange(0, 4).Draw(t, "maxConns")
		desired = append(desired, p)
	}
	desired = rapid.Permutation(desired).Draw(t, "order")
	diff, err := m.f.Apply(m.now, desired)
	if err != nil {
		t.Fatal(err)
	}
	var next []*modelPod
	var added, removed []string
	for _, p := range desired {
		same := func(q *modelPod) bool { return q.ID == p.ID && q.URL == p.URL }
		if i := slices.IndexFunc(m.pods, same); i >= 0 {
			q := m.pods[i]
			q.Pod = p
			next = append(next, q)
			continue
		}
		q := &modelPod{Pod: p, up: !p.Down}
		if i := slices.IndexFunc(m.gone, same); i >= 0 {
			q = m.gone[i]
			q.Pod, q.up, q.drained = p, !p.Down, nil
			m.gone = slices.Delete(m.gone, i, i+1)
		}
		added = append(added, p.ID)
		next = append(next, q)
	}
	for _, p := range m.pods {
		if !slices.Contains(next, p) {
			removed = append(removed, p.ID)
			p.life++
			if m.inflight(p) > 0 {
				m.gone = append(m.gone, p)
			}
		}
	}
	m.pods = next
	for _, p := range m.pods {
		p.ref, _ = m.f.find(p.ID)
	}
	if !slices.Equal(diff.Added, added) || !slices.Equal(diff.Removed, removed) {
		t.Fatalf("diff %+v, want added %v, removed %v", diff, added, removed)
	}
}

func (m *model) begin(t *rapid.T) {
	a := &Ask{
		Role:     Role(rapid.IntRange(0, Roles-1).Draw(t, "role")),
		Session:  rapid.Uint64Range(0, 3).Draw(t, "session"),
		Strategy: selection.Strategy(rapid.IntRange(0, 4).Draw(t, "strategy")),
		Whole:    rapid.Bool().Draw(t, "whole"),
		Tokens:   rapid.SampledFrom([]int{0, 0, 1, 1000, 20000}).Draw(t, "tokens"),
		TieBreak: selection.TieBreak(rapid.IntRange(0, 1).Draw(t, "tieBreak")),
		Weights:  selection.SingleWeights(),
	}
	if n := rapid.IntRange(0, 3).Draw(t, "prompt"); n > 0 {
		prompt := words(run(fmt.Sprint("prompt", n, "-"), rapid.IntRange(1, 30).Draw(t, "words"))...)
		a.Chain, a.Key, a.HasKey = prompt, prompt.key(), rapid.Bool().Draw(t, "hasKey")
	}
	if len(m.pods) > 0 && rapid.IntRange(0, 3).Draw(t, "exclude") == 0 {
		a.Exclude.Set(int(rapid.SampledFrom(m.pods).Draw(t, "excluded").ref.Slot))
	}
	if len(m.legs) > 0 && rapid.Bool().Draw(t, "hasNear") {
		a.Near, a.HasNear = rapid.SampledFrom(m.legs).Draw(t, "near").lease.Ref(), true
	}

	var candidates []*modelPod
	up, busy := 0, 0
	for _, p := range m.pods {
		if m.usable(p, a.Role, &index.Bitmap{}) {
			up++
		}
		if m.usable(p, a.Role, &a.Exclude) {
			if m.full(p) {
				busy++
			} else {
				candidates = append(candidates, p)
			}
		}
	}
	if len(candidates) > 1 && a.HasNear {
		candidates = slices.DeleteFunc(candidates, func(p *modelPod) bool { return p.ref == a.Near })
	}
	explained, picked := m.f.Explain(m.now, a)
	for _, c := range explained {
		returns := false
		if p := m.served(a.Session, a.Role); p != nil && a.Session != 0 {
			returns = p.ref == c.Ref
		}
		if returns != (c.Sticky == 100) {
			t.Fatalf("session %d returns to %s: %v, want %v", a.Session, c.ID, c.Sticky == 100, returns)
		}
	}

	l := &Lease{}
	a.Later = rapid.Bool().Draw(t, "later")
	err := m.f.Begin(m.now, a, l)
	l.Complete(m.now)
	switch {
	case len(candidates) > 0:
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(candidates, func(p *modelPod) bool { return p.ref == l.Ref() })
		if i < 0 {
			t.Fatalf("%v is no candidate", l.Ref())
		}
		if explained[picked].Ref != l.Ref() || explained[picked].Depth != l.Depth {
			t.Fatalf("picked %s, explained %s", l.Pod().ID, explained[picked].ID)
		}
		m.settle()
		leg := &modelLeg{pod: candidates[i], role: a.Role, lease: l, due: -1}
		m.weigh(leg, a)
		m.legs = append(m.legs, leg)
		if a.Session != 0 {
			m.note(a.Session, a.Role, candidates[i])
		}
	case busy > 0 && !errors.Is(err, ErrAllFull),
		busy == 0 && up > 0 && !errors.Is(err, ErrNoneLeft),
		busy == 0 && up == 0 && !errors.Is(err, ErrNoneUp):
		t.Fatalf("%v with %d busy of %d that are up", err, busy, up)
	}
}

// weigh puts the leg into its pod's queue.
func (m *model) weigh(l *modelLeg, a *Ask) {
	blocks := 0
	if a.Chain != nil {
		blocks = len(a.Chain.(*text).hashes)
	}
	if l.tokens = int64(a.Tokens); l.tokens == 0 {
		l.tokens = int64(blocks) * 16
	}
	l.tokens = max(l.tokens, 1)
	held := int64(0)
	if blocks > 0 {
		held = l.tokens * int64(l.lease.Depth) / int64(blocks)
	}
	switch {
	case a.Role == Prefill:
		l.duty = selection.Compute
	case a.Role == Decode && a.HasNear:
		l.duty = selection.Generate
	}
	if l.duty != selection.Generate {
		l.uncached = max(1, l.tokens-held)
	}
	took := l.uncached * 1e9 / 2000
	l.pod.empty = max(l.pod.empty, m.at()) + took
	if a.Whole {
		l.due = m.at() + took
	}
}

func (m *model) note(key uint64, role Role, p *modelPod) {
	last := time.Time{}
	for r := range Role(Roles) {
		if s, ok := m.known[modelSession{key, r}]; ok && s.at.After(last) {
			last = s.at
		}
	}
	if m.now.Sub(last) >= m.ttl { // a session that was forgotten begins anew
		for r := range Role(Roles) {
			delete(m.known, modelSession{key, r})
		}
	}
	m.known[modelSession{key, role}] = modelServed{p, p.life, m.now}
}

func (m *model) end(t *rapid.T, i int) {
	l := m.legs[i]
	if rapid.Bool().Draw(t, "started") {
		l.lease.Start()
	}
	o := outcome.Outcome(rapid.IntRange(1, 13).Draw(t, "outcome"))
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		l.lease.End(m.now, o)
	}
	m.settle()
	m.compute(l, m.at())
	m.legs = slices.Delete(m.legs, i, i+1)
	if i := slices.Index(m.gone, l.pod); i >= 0 && m.inflight(l.pod) == 0 {
		m.gone = slices.Delete(m.gone, i, i+1)
	}
}

func (m *model) check(t *rapid.T) {
	m.f.mu.Lock()
	m.f.settle(m.at())
	m.f.mu.Unlock()
	m.settle()
	all := m.f.Snapshot()
	if len(all) != len(m.pods) {
		t.Fatalf("%d pods, want %d", len(all), len(m.pods))
	}
	occupied := map[uint8]string{}
	for i, p := range m.pods {
		s, running := all[i], [Roles]int{}
		for _, l := range m.legs {
			if l.pod == p && l.running {
				running[l.role]++
			}
		}
		if s.ID != p.ID || s.URL != p.URL || s.Ref != p.ref || s.Up != p.up || s.Draining != p.drains() ||
			s.Inflight != m.inflight(p) || s.Running != running {
			t.Fatalf("pod %d is %+v, want %+v with %d legs, running %v", i, s, p, m.inflight(p), running)
		}
		if want := m.backlog(p); s.Backlog != want {
			t.Fatalf("backlog of %s is %+v, want %+v", p.ID, s.Backlog, want)
		}
		occupied[s.Ref.Slot] = p.ID
	}
	for _, p := range m.gone {
		if who, taken := occupied[p.ref.Slot]; taken {
			t.Fatalf("the slot of %s, which has legs, was given to %s", p.ID, who)
		}
		occupied[p.ref.Slot] = p.ID
	}
	for i := range m.f.slots {
		s := &m.f.slots[i]
		if _, taken := occupied[uint8(i)]; taken == (s.life == free) || s.life == wiping {
			t.Fatalf("slot %d is in state %d, taken: %v", i, s.life, taken)
		}
		if s.life == free && (m.f.index.PodBlocks(uint8(i)) != 0 || m.f.view.Inflight(uint8(i)) != 0) {
			t.Fatalf("free slot %d: %d blocks, %d legs", i, m.f.index.PodBlocks(uint8(i)), m.f.view.Inflight(uint8(i)))
		}
	}
	for _, l := range m.legs {
		if l.lease.Ref() != l.pod.ref || m.f.slots[l.pod.ref.Slot].gen != l.pod.ref.Gen {
			t.Fatalf("a leg of %v is held by %v", l.pod.ref, l.lease.Ref())
		}
	}
}

// TestModel drives fleet and model with the same random events.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{now: epoch, known: map[modelSession]modelServed{}, ttl: 10 * time.Second}
		m.f = New(Options{Index: index.New(index.Options{}), Sessions: Sessions{TTL: m.ttl, Max: 100}, Seed: 1})
		m.f.Expire(epoch) // the clock begins here
		pick := func(t *rapid.T) *modelPod {
			if len(m.pods) == 0 {
				t.Skip("no pods")
			}
			return rapid.SampledFrom(m.pods).Draw(t, "pod")
		}
		leg := func(t *rapid.T) int {
			if len(m.legs) == 0 {
				t.Skip("no legs")
			}
			return rapid.IntRange(0, len(m.legs)-1).Draw(t, "leg")
		}
		m.apply(t)
		t.Repeat(map[string]func(*rapid.T){
			"":       m.check,
			"apply":  m.apply,
			"begin":  m.begin,
			"begin2": m.begin,
			"start": func(t *rapid.T) {
				l := m.legs[leg(t)]
				l.lease.Start()
				l.running = true
			},
			"first byte": func(t *rapid.T) {
				l := m.legs[leg(t)]
				l.lease.FirstByte(m.now)
				l.running = true
				if !l.answered {
					m.settle()
					m.compute(l, m.at())
				}
				l.answered = true
			},
			"end": func(t *rapid.T) { m.end(t, leg(t)) },
			"set up": func(t *rapid.T) {
				p, forget := pick(t), rapid.Bool().Draw(t, "forget")
				p.up = rapid.Bool().Draw(t, "up")
				m.f.SetUp(p.ref, p.up, forget)
				if forget {
					p.life++
					if n := m.f.index.PodBlocks(p.ref.Slot); n != 0 {
						t.Fatalf("%d blocks after the pod lost its cache", n)
					}
				}
			},
			"stale news": func(t *rapid.T) {
				p := pick(t)
				m.f.SetUp(Ref{p.ref.Slot, p.ref.Gen - 1}, !p.up, true)
			},
			"drain": func(t *rapid.T) {
				p, on := pick(t), rapid.Bool().Draw(t, "on")
				p.drained = &on
				if !m.f.Drain(p.ID, on) {
					t.Fatalf("no pod %s", p.ID)
				}
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 6000).Draw(t, "ms")) * time.Millisecond)
				if rapid.Bool().Draw(t, "expire") {
					m.f.Expire(m.now)
				}
			},
		})
		for len(m.legs) > 0 {
			m.end(t, 0)
		}
		m.check(t)
		if len(m.gone) > 0 {
			t.Fatalf("%d pods still leaving", len(m.gone))
		}
		if _, err := m.f.Apply(m.now, nil); err != nil {
			t.Fatal(err)
		}
		m.pods = nil
		m.check(t)
		if n := m.f.index.Blocks(); n != 0 {
			t.Fatalf("%d blocks left of nobody", n)
		}
	})
}
