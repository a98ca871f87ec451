package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/calinix/caddy-calinix/index"
)

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
