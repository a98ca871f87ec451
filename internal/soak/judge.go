package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// account checks every request, and the counters against them.
func (c *checker) account(last testcaddy.Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	ends := map[string]*ends{"single": newEnds(), "dispatch": newEnds()}
	for id, r := range c.records {
		switch {
		case r.answer == nil:
			c.requestLocked("%s: the pods or the log know a request that no client has ended", id)
			continue
		case r.mode == control:
			c.control(id, r)
			continue
		}
		c.request(id, r)
		for _, e := range r.entries {
			f.outcomes[e.outcome]++
			if e.atPrefill {
				ends[r.mode].prefill[e.outcome]++
			} else {
				ends[r.mode].codes[e.code()]++
			}
		}
	}
	for _, balancer := range []string{"single", "dispatch"} {
		c.counters(last, balancer, ends[balancer])
	}
	c.unlucky()
}

// control checks one to Caddy's own handler: that answers always. Guarded by mu.
func (c *checker) control(id string, r *record) {
	f, a := &c.figures, r.answer
	f.controls++
	switch {
	case a.status == 0 && c.unaccepted(a):
		f.unanswered++
	case a.status != 200 || !a.whole || a.madeUp || r.asked > 0 || len(r.entries) > 0:
		c.requestLocked("%s over %s, to Caddy's own handler: status %d, whole %v, error %v, after %v", id, r.protocol, a.status, a.whole, a.err, a.ended.Sub(a.began).Round(time.Millisecond))
	}
}

// unlucky checks that reloads have kept no more requests from our handlers than from
// Caddy's own. Which they meet is chance, if no handler has a part in it: then those
// to Caddy's own are three standard deviations fewer than their share once in a
// thousand runs. Guarded by mu.
func (c *checker) unlucky() {
	f := &c.figures
	ours, stayed := 0, 0
	for _, n := range f.unaccepted {
		ours += n
	}
	for _, n := range f.clients {
		stayed += n
	}
	stayed -= f.clients["left"]
	part := float64(f.controls) / float64(f.controls+stayed)
	all := float64(ours + f.unanswered)
	if float64(f.unanswered) < all*part-3*math.Sqrt(all*part*(1-part)) {
		c.violateLocked("reloads have kept %d of %d requests from our handlers, and %d of %d from Caddy's own", ours, stayed, f.unanswered, f.controls)
	}
}

// request checks one. Guarded by mu.
func (c *checker) request(id string, r *record) {
	f, a := &c.figures, r.answer
	f.protocols[r.protocol]++
	outcome := "none"
	if len(r.entries) > 0 {
		outcome = r.entries[0].outcome
	}
	told := fmt.Sprintf("%s %s over %s: status %d, whole %v, left %v, error %v, after %v; the log has %+v", id, r.mode, r.protocol, a.status, a.whole, a.left, a.err, a.ended.Sub(a.began).Round(time.Millisecond), r.entries)
	if len(r.entries) > 1 {
		c.requestLocked("it ended more than once: %s", told)
	}
	if a.ended.Sub(a.began) > patience-time.Second {
		c.requestLocked("it hung: %s", told)
	}
	if a.madeUp {
		c.requestLocked("an end was made up: %s", told)
	}
	if len(r.entries) == 0 && (r.asked > 0 || a.status != 0) {
		c.requestLocked("a pod has seen it %d times, and it is not in the log: %s", r.asked, told)
	}
	switch {
	case a.left:
		f.clients["left"]++ // the log says whether that was before the end or after
	case a.status == 0 && r.protocol == "h3" && outcome == "cut":
		f.clients["broken off"]++ // over HTTP/3 a reset overtakes even the headers
	case a.status == 0:
		f.clients["no answer"]++
		if len(r.entries) > 0 || !c.unaccepted(a) {
			c.requestLocked("it got no answer: %s", told)
		}
		f.unaccepted[r.protocol]++
	case a.whole && a.status < 400:
		f.clients[strconv.Itoa(a.status)]++
		f.firsts, f.took = append(f.firsts, a.first), append(f.took, a.ended.Sub(a.began))
		if outcome != "answered" {
			c.requestLocked("a whole answer: %s", told)
		}
	case a.whole:
		f.clients[strconv.Itoa(a.status)]++
		if len(r.entries) == 0 || r.entries[0].status != a.status || outcome == "answered" || outcome == "cut" && !r.entries[0].atPrefill {
			c.requestLocked("a refusal: %s", told)
		}
	default:
		f.clients["broken off"]++
		if outcome != "cut" {
			c.requestLocked("a broken answer: %s", told)
		}
	}
	for k, g := range r.generations[:max(0, len(r.generations)-1)] {
		// Only the end of a connection that was in the pool, within 100 ms after the
		// request was written, lets it be sent once more: to the same pod, or
		// elsewhere if that is gone. The pod had the request after that, so that the
		// end came within 100 ms of this.
		next := r.generations[k+1]
		if k > 0 || !g.pooled(a.began) || !g.pod.brokeWithin(g.at, 100*time.Millisecond, next.pod != g.pod) {
			c.requestLocked("two generations, at %s (request %d on its connection) and %v later at %s: %s", g.pod.Name, g.onConn, next.at.Sub(g.at), next.pod.Name, told)
		}
		f.twice++
	}
}

// pooled reports whether the connection was made for another request than this one,
// which the client sent then. net/http calls it reused, be it that the other one has
// used it or that another connection came free for that one meanwhile.
func (g *generation) pooled(sent time.Time) bool {
	return g.onConn > 1 || g.pod.Conns()[g.conn-1].Opened.Before(sent)
}
