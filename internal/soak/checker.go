package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// answer is what a client saw.
type answer struct {
	began, ended time.Time
	first        time.Duration // until the headers
	status       int           // 0 without an answer
	whole        bool          // it came to its declared end
	madeUp       bool          // an end that the pod has not sent
	left         bool          // the client did
	opened       time.Time     // the connection; zero if that is not known
	err          error
}

// entry is a request's line in the access log.
type entry struct {
	status    int
	outcome   string
	mode      string
	atPrefill bool // it has ended with a prefill leg that a pod had
}

// code is the value of the metric's label code.
func (e entry) code() string {
	switch e.outcome {
	case "client_gone":
		return "499"
	case "cut":
		return "cut"
	}
	return strconv.Itoa(e.status)
}

// generation is one that a pod began.
type generation struct {
	pod    *pod
	at     time.Time
	reused bool // on a connection that had been used
}

// record is all that is known of a request.
type record struct {
	mode, protocol string
	answer         *answer
	entries        []entry
	generations    []generation
}

// checker gathers what was seen and says what did not hold.
type checker struct {
	sent atomic.Int64
	held atomic.Int64 // not sent, for the crowd was too large

	mu       sync.Mutex
	records  map[string]*record
	sends    map[string]int // by mode
	wrong    []violation    // of the process as a whole, and of its counters
	requests []violation    // of single requests
	figures  figures
	loads    []span      // reloads
	closed   []time.Time // until when the server that each replaced closed connections
	failed   int         // requests that ended with a prefill leg that failed
}

// violation is something that did not hold. Those of a kind differ in figures only.
type violation struct{ kind, text string }

// span is a stretch of time.
type span struct{ from, to time.Time }

// meets reports whether the spans have a moment in common.
func (s span) meets(o span) bool { return !s.to.Before(o.from) && !o.to.Before(s.from) }

// figures are for the report.
type figures struct {
	clients     map[string]int // what they saw
	outcomes    map[string]int // of the access log
	protocols   map[string]int
	firsts      []time.Duration
	took        []time.Duration
	unaccepted  int                // ended by a reload before the handler saw them
	twice       int                // generations begun a second time, as the rule allows
	retries     map[string]float64 // of decode and single legs
	prefills    map[string]float64 // of prefill legs
	worstBudget float64            // retries of a window as a share of its requests
	goroutines  float64            // the most
	resident    float64
	blocks      float64
	bodies      float64
	scrapes     int
	bare        int // scrapes without a series of ours
}

// most violations of a kind are told of.
const most = 8

func (c *checker) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violateLocked(format, args...)
}

func (c *checker) violateLocked(format string, args ...any) {
	c.wrong = append(c.wrong, violation{format, fmt.Sprintf(format, args...)})
}

// requestLocked enters what did not hold of one request.
func (c *checker) requestLocked(format string, args ...any) {
	c.requests = append(c.requests, violation{format, fmt.Sprintf(format, args...)})
}

// violations lists what did not hold, the process and its counters first, at most
// so many of a kind. Guarded by mu.
func (c *checker) violations() (list []string) {
	seen := map[string]int{}
	for _, v := range slices.Concat(c.wrong, c.requests) {
		if seen[v.kind]++; seen[v.kind] <= most {
			list = append(list, v.text)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(seen)) {
		if n := seen[kind] - most; n > 0 {
			list = append(list, fmt.Sprintf("and %d more of the kind %q", n, kind))
		}
	}
	return list
}

// of returns the record of a request. Guarded by mu.
func (c *checker) of(id string) *record {
	if c.records == nil {
		c.records, c.sends = map[string]*record{}, map[string]int{}
	}
	r := c.records[id]
	if r == nil {
		r = new(record)
		c.records[id] = r
	}
	return r
}

func (c *checker) begin(r *request) {
	c.sent.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.of(r.id)
	rec.mode, rec.protocol = r.mode, r.protocol
	c.sends[r.mode]++
}

func (c *checker) end(r *request, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(r.id).answer = &a
}

func (c *checker) log(id string, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.of(id)
	rec.entries = append(rec.entries, e)
	if e.atPrefill && e.outcome != "client_gone" {
		c.failed++
	}
}

func (c *checker) generation(id string, g generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.of(id)
	rec.generations = append(rec.generations, g)
}

// least has the smaller figures of the two: what leaks shows under load and after it,
// while what a busy machine's queue of requests takes is gone when they have ended.
func least(a, b measured) measured {
	return measured{
		goroutines: min(a.goroutines, b.goroutines), heap: min(a.heap, b.heap), resident: min(a.resident, b.resident), rate: a.rate,
	}
}

// compare says whether the process takes more at the end than when it was warm.
func (c *checker) compare(before, after measured) {
	if after.goroutines > before.goroutines*5/4+50 {
		c.violate("goroutines have grown from %d to %d", before.goroutines, after.goroutines)
	}
	if after.heap > before.heap*5/4+8<<20 {
		c.violate("the heap has grown from %.1f to %.1f MiB", mib(before.heap), mib(after.heap))
	}
	if after.resident > before.resident*3/2+32<<20 {
		c.violate("resident memory has grown from %.1f to %.1f MiB", mib(before.resident), mib(after.resident))
	}
}

// account checks every request, and the counters against them.
func (c *checker) account(last testcaddy.Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	f.clients, f.outcomes, f.protocols = map[string]int{}, map[string]int{}, map[string]int{}
	c.drained()
	ends := map[string]*ends{"single": newEnds(), "dispatch": newEnds()}
	for id, r := range c.records {
		if r.answer == nil {
			c.requestLocked("%s: the pods or the log know a request that no client has ended", id)
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
	f.retries, f.prefills = map[string]float64{}, map[string]float64{}
	for _, balancer := range []string{"single", "dispatch"} {
		c.counters(last, balancer, ends[balancer])
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
	switch {
	case a.left:
		f.clients["left"]++
		// The log says whether that was before the end or after.
		if len(r.entries) == 0 && a.status != 0 {
			c.requestLocked("it is not in the log: %s", told)
		}
	case a.status == 0 && r.protocol == "h3" && outcome == "cut":
		f.clients["broken off"]++ // over HTTP/3 a reset overtakes even the headers
	case a.status == 0:
		f.clients["no answer"]++
		if len(r.entries) > 0 || !c.reloading(a) {
			c.requestLocked("it got no answer: %s", told)
		}
		f.unaccepted++
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
		// Only the end of a reused connection, within 100 ms after the request was
		// written, lets it be sent once more: to the same pod, or elsewhere if that
		// is gone. The pod had the request after that, so that the end came within
		// 100 ms of this.
		next := r.generations[k+1]
		if !g.reused || k > 0 || !g.pod.brokeWithin(span{g.at, g.at.Add(100 * time.Millisecond)}, next.pod != g.pod) {
			c.requestLocked("two generations, at %s and %v later at %s: %s", g.pod.Name, next.at.Sub(g.at), next.pod.Name, told)
		}
		f.twice++
	}
}

// loaded enters a reload that began then and is over.
func (c *checker) loaded(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads = append(c.loads, span{began, time.Now()})
}

// reloading reports whether a reload can have ended the request before the handler
// saw it: its connection was one of the replaced server's, and that server was still
// closing its connections. Guarded by mu.
func (c *checker) reloading(a *answer) bool {
	for k, load := range c.loads {
		if !a.opened.After(load.to) && a.ended.After(load.from) && a.began.Before(c.closed[k]) {
			return true
		}
	}
	return false
}

// drained finds out until when each replaced server closed connections: it looks
// for idle ones every half second until its last request has ended. Guarded by mu.
func (c *checker) drained() {
	c.closed = make([]time.Time, len(c.loads))
	for k, load := range c.loads {
		c.closed[k] = load.to
		for _, r := range c.records {
			if a := r.answer; a != nil && a.began.Before(load.to) && a.ended.After(c.closed[k]) {
				c.closed[k] = a.ended
			}
		}
		c.closed[k] = c.closed[k].Add(time.Second)
	}
}

// sample is a scrape's part of the budget.
type sample struct {
	at      time.Time
	sends   int
	retries float64 // less the prefill legs that failed
	failed  int     // see checker
}

// watch looks at the metrics all the time.
type watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startWatch(ctx context.Context, ca *caddy, c *checker) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel}
	w.done.Go(func() {
		samples := map[string][]sample{}
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				m, err := ca.metrics(ctx)
				if err != nil {
					if ctx.Err() == nil {
						c.violate("scraping: %v", err)
					}
					continue
				}
				c.look(m, samples)
			}
		}
	})
	return w
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// look checks what must hold at any time.
func (c *checker) look(m testcaddy.Metrics, samples map[string][]sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, now := &c.figures, time.Now()
	if !m.Has("calinix_body_bytes", "balancer", "single") || !m.Has("calinix_body_bytes", "balancer", "dispatch") {
		f.bare++ // the admin listener of a configuration that is being loaded
		return
	}
	f.scrapes++
	f.goroutines = max(f.goroutines, m.Get("go_goroutines"))
	f.resident = max(f.resident, m.Get("process_resident_memory_bytes"))
	f.bodies = max(f.bodies, m.Sum("calinix_body_bytes"))
	for _, balancer := range []string{"single", "dispatch"} {
		blocks := m.Sum("calinix_index_blocks", "balancer", balancer)
		f.blocks = max(f.blocks, blocks)
		if blocks > ceiling {
			c.violateLocked("the index of %s has %v blocks, its ceiling is %d", balancer, blocks, ceiling)
		}
		all := append(samples[balancer], sample{now, c.sends[balancer], m.Sum("calinix_retries_total", "balancer", balancer) - m.Sum("calinix_prefill_failures_total", "balancer", balancer), 0})
		if balancer == "dispatch" {
			all[len(all)-1].failed = c.failed
		}
		samples[balancer] = all
		// The budget's window is ten seconds; requests are counted when they
		// come, which the scrape before the window may not have seen yet.
		last := all[len(all)-1]
		for k, s := range all {
			if now.Sub(s.at) > 10*time.Second {
				continue
			}
			// A prefill leg that failed was tried again, outside the budget, or has
			// ended its request. The log may be a scrape late in saying the latter.
			retries := last.retries - s.retries + float64(last.failed-all[min(k+1, len(all)-1)].failed)
			requests := last.sends - all[max(0, k-2)].sends
			if retries > max(3, 0.1*float64(requests))+1 {
				c.violateLocked("%s: %v retries within %v, in which there were %d requests", balancer, retries, now.Sub(s.at), requests)
			}
			if now.Sub(s.at) > 9*time.Second && requests > 0 {
				f.worstBudget = max(f.worstBudget, retries/float64(requests))
			}
			break
		}
	}
}
