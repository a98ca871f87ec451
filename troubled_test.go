package calinix_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	calinix "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/enginesim"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// leaseClock is the machine's clock, but that leases and waits of engines, which
// take half a minute and more, run out when the test says so.
type leaseClock struct {
	mu   sync.Mutex
	next int
	long map[int]func()
}

func (c *leaseClock) clock() enginesim.Clock {
	system := enginesim.SystemClock()
	c.long = map[int]func(){}
	return enginesim.Clock{Now: system.Now, AfterFunc: func(d time.Duration, f func()) func() bool {
		if d < 25*time.Second {
			return system.AfterFunc(d, f)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next++
		id := c.next
		c.long[id] = f
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			_, waits := c.long[id]
			delete(c.long, id)
			return waits
		}
	}}
}

// runOut lets all leases and waits run out.
func (c *leaseClock) runOut() {
	c.mu.Lock()
	all := c.long
	c.long = map[int]func(){}
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// troubledSite is a site before two prefill and two decode engines that are not
// Caddy's, so that they can fail.
type troubledSite struct {
	*site
	h               *handing
	cl              *testcaddy.Client
	prefill, decode [2]*troubledEngine
	bootstrap       [2]func() // ends the bootstrap server of a prefill engine that has one
	clock           leaseClock
}

// troubled runs the site. simKeys are those of the engines, keys the directive's, and
// dispatchKeys those of its section dispatch. Of equal pods the first is picked.
func (h *handing) troubled(t *testing.T, simKeys, keys string, dispatchKeys ...string) *troubledSite {
	t.Helper()
	s := &troubledSite{h: h}
	clock, peers := s.clock.clock(), enginesim.NewPeers()
	lists := map[string]string{}
	for leg, engines := range map[string]*[2]*troubledEngine{"prefill": &s.prefill, "decode": &s.decode} {
		for n := range engines {
			side := testcaddy.Port(t)
			e := newTroubledEngine(t, h.settings(t, leg, n, side, simKeys), clock, peers)
			if engines[n] = e; h.side && leg == "prefill" {
				s.bootstrap[n] = e.listenAt(t, side)
			}
			lists[leg] += fmt.Sprintf("pod %s-%d %s {\n%s}\n", leg, n+1, e.URL, h.pod(leg, n, 0, side))
		}
	}
	s.site = serveBehind(t, "gate", fmt.Sprintf("tie_break pod_id\nheader_up X-Leg {gate.leg}\n%s\ndispatch {\nconnector %s\n%s\nprefill {\n%s}\ndecode {\n%s}\n}\n",
		keys, h.name, strings.Join(dispatchKeys, "\n"), lists["prefill"], lists["decode"]), testcaddy.Plain())
	s.cl = s.Client(t, testcaddy.H1)
	return s
}

// settings are those of an engine, as the directive inference_sim reads them.
func (h *handing) settings(t *testing.T, leg string, n, side int, keys string) enginesim.Settings {
	t.Helper()
	sim := new(calinix.InferenceSim)
	if err := sim.UnmarshalCaddyfile(caddyfile.NewTestDispenser("inference_sim {\n" + h.engineKeys(leg, n, side) + keys + "}")); err != nil {
		t.Fatal(err)
	}
	return sim.Settings
}

// all are the engines of the site.
func (s *troubledSite) all() []*troubledEngine {
	return []*troubledEngine{s.prefill[0], s.prefill[1], s.decode[0], s.decode[1]}
}

// counts is how many legs each engine has got: two prefill and two decode engines.
func (s *troubledSite) counts() (n [4]int) {
	for i, e := range s.all() {
		n[i] = len(e.legs())
	}
	return n
}

// since is how many prefill and decode legs there were since those counts.
func (s *troubledSite) since(then [4]int) (prefill, decode int) {
	now := s.counts()
	return now[0] + now[1] - then[0] - then[1], now[2] + now[3] - then[2] - then[3]
}

// transferred is how many tokens have been handed over.
func (s *troubledSite) transferred() (n uint64) {
	for _, e := range s.all() {
		n += e.Stats().TransferredTokens
	}
	return n
}

// leases is how many prompts are kept for a decode leg, and how many had to be given
// up since none came.
func (s *troubledSite) leases() (pinned int, expired uint64) {
	for _, e := range s.all() {
		st := e.Stats()
		pinned, expired = pinned+st.Leases, expired+st.LeasesExpired
	}
	return pinned, expired
}

// idle waits until no leg runs, neither for the site nor at the engines.
func (s *troubledSite) idle(t *testing.T) {
	t.Helper()
	s.waitIdle(t)
	eventually(t, "idle engines", func() bool {
		for _, e := range s.all() {
			if st := e.Stats(); st.Running+st.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// serves checks that the next request is answered as if nothing had been.
func (s *troubledSite) serves(t *testing.T) {
	t.Helper()
	for _, e := range s.all() {
		e.has(nil)
	}
	a := s.cl.Post(t, chatPath, chat("what comes next", `"max_tokens":3`))
	if a.Status != 200 || a.Err != nil {
		t.Errorf("the next request: %v", a)
	}
	s.idle(t)
}
