package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// answer is what a client saw.
type answer struct {
	began, ended time.Time
	first        time.Duration // until the first byte of the body, or its end
	status       int           // 0 without an answer
	whole        bool          // it came to its declared end
	madeUp       bool          // an end that the pod has not sent
	left         bool          // the client did
	conn         *connection   // nil: it had none, and nothing was sent
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
	conn   int // number of the connection at the pod
	onConn int // number of the request on it
}

// record is all that is known of a request.
type record struct {
	mode, protocol string
	answer         *answer
	entries        []entry
	asked          int // how often a pod had it
	generations    []generation
}

// checker gathers what was seen and says what did not hold.
type checker struct {
	sent atomic.Int64
	held atomic.Int64 // not sent, for the crowd was too large

	mu       sync.Mutex
	records  map[string]*record
	sends    map[string]int // by mode
	open     map[string]int // of these, not ended
	wrong    []violation    // of the process as a whole, and of its counters
	requests []violation    // of single requests
	figures  figures
	conns    map[string]*connection // by the client's address
	reloads  []reload
	samples  []sample
	busy     time.Duration // in which requests were sent
}

func newChecker() *checker {
	return &checker{
		records: map[string]*record{}, sends: map[string]int{}, open: map[string]int{}, conns: map[string]*connection{},
		figures: figures{
			clients: map[string]int{}, outcomes: map[string]int{}, protocols: map[string]int{}, unaccepted: map[string]int{},
			retries: map[string]float64{}, prefills: map[string]float64{},
		},
	}
}

// violation is something that did not hold. Those of a kind differ in figures only.
type violation struct{ kind, text string }

// figures are for the report.
type figures struct {
	clients     map[string]int // what they saw
	outcomes    map[string]int // of the access log
	protocols   map[string]int
	firsts      []time.Duration
	took        []time.Duration
	unaccepted  map[string]int     // ended by a reload before a handler had them, by protocol
	controls    int                // requests to Caddy's own handler
	unanswered  int                // of these, ended likewise
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
	c.open[r.mode]++
}

// end enters what came of a request; server is the configuration that has answered.
func (c *checker) end(r *request, a answer, server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(r.id).answer = &a
	c.open[r.mode]--
	if a.status != 0 {
		a.conn.server, a.conn.answered = server, a.ended
	}
}

func (c *checker) log(id string, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.of(id)
	rec.entries = append(rec.entries, e)
}

// asked enters that a pod has a request.
func (c *checker) asked(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(id).asked++
}

func (c *checker) generation(id string, g generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := c.of(id)
	rec.generations = append(rec.generations, g)
}

// reloaded enters a reload that began then and is over.
func (c *checker) reloaded(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloads = append(c.reloads, reload{began, time.Now()})
}
