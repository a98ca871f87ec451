package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/selection"
)

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
