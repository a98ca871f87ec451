package health

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/outcome"
)

// Ref names a pod's place in the fleet. News about a pod that was removed
// cannot reach its successor in the slot.
type Ref = fleet.Ref

// Pod is a pod as the Checker sees it.
type Pod struct {
	Ref
	ID  string
	URL string // scheme, host and port, perhaps a path; probes are sent below it
	// Down: the pod counts as down until it has passed healthyThreshold
	// probes in a row. It is a start value: a known pod keeps its verdict.
	Down bool
}

// Marks is told the verdicts; in the product it is the fleet.
//
// SetUp says that the pod is up or down from now on, and with forget that its
// index entries are to go. It is called under the Checker's lock, in the order
// of the verdicts, and must not call the Checker.
type Marks interface {
	SetUp(ref Ref, up, forget bool)
}

var _ Marks = (*fleet.Fleet)(nil)

// Prober asks a pod once how it is. It returns soon after ctx ends; the result
// of a probe whose ctx was canceled is ignored.
type Prober interface {
	Probe(ctx context.Context, pod Pod) Result
}

// Result is what one probe came to.
type Result struct {
	Kind Kind
	// Detail names status or error for people: "503 Service Unavailable",
	// "x509: certificate signed by unknown authority".
	Detail string
}

// Settings are the thresholds and times of a configuration.
type Settings struct {
	Interval  time.Duration // between the starts of two probes of a pod
	Timeout   time.Duration // for one probe as a whole
	Healthy   int           // consecutive good results that bring a pod up
	Unhealthy int           // consecutive bad results that take it down
	// Failures is how many failed requests within Window mark a pod down; 0
	// turns that off.
	Failures int
	Window   time.Duration
}

// Event is a verdict that turned, or a pod that lost its cache while it was
// down.
type Event struct {
	Pod    Pod
	Up     bool   // the verdict now
	WasUp  bool   // the verdict before; the same as Up if only Forget is news
	Forget bool   // the pod's index entries went
	Reason string // why, for logs and event handlers
}

// Status is what is known of a pod.
type Status struct {
	Up      bool
	Decided bool   // false until a probe result or a passive mark has come
	Pass    int    // consecutive good probe results up to now
	Fail    int    // consecutive bad probe results up to now
	Last    Result // of the last probe
}

// Checker watches pods. It is safe for concurrent use.
type Checker struct {
	marks  Marks
	report func(Event)

	settings atomic.Pointer[Settings] // written under mu, read freely

	mu     sync.Mutex
	prober Prober
	pods   map[Ref]*watch
	run    context.Context // nil unless started
	stop   context.CancelFunc
	loops  sync.WaitGroup
}

// watch is one pod under watch. The Checker's mutex guards it.
type watch struct {
	pod    Pod
	streak streak
	window window
	last   Result
	marks  int // passive marks so far: a probe that was under way at one proves nothing
	cancel context.CancelFunc
	done   chan struct{} // closed when the latest loop has ended; nil if there was none
}

// New returns a Checker that has no pods and does not run. report is called
// for every Event, without a lock held, on the goroutine that brought it about;
// nil if nobody listens.
func New(marks Marks, report func(Event)) *Checker {
	if report == nil {
		report = func(Event) {}
	}
	c := &Checker{marks: marks, report: report, pods: map[Ref]*watch{}}
	c.settings.Store(&Settings{})
	return c
}

// Configure takes over the settings and the prober of a configuration. Probes
// that are under way with the old ones are given up, new ones begin at once;
// verdicts and streaks stay. Before the first Configure nothing is probed.
func (c *Checker) Configure(s Settings, p Prober) {
	s.Interval = max(s.Interval, time.Millisecond)
	s.Healthy = max(s.Healthy, 1)
	s.Unhealthy = max(s.Unhealthy, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings.Store(&s)
	c.prober = p
	for _, w := range c.pods {
		c.launch(w)
	}
}

// Set makes pods the pods under watch. Those that were already there keep
// verdict, streak and rhythm; those that are not among them any more are
// forgotten; new ones are probed at once.
func (c *Checker) Set(pods []Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.pods
	c.pods = make(map[Ref]*watch, len(pods))
	for _, p := range pods {
		w := gone[p.Ref]
		delete(gone, p.Ref)
		switch {
		case w == nil:
			w = &watch{pod: p, streak: newStreak(p.Down)}
			c.launch(w)
		case w.pod != p:
			w.pod = p
			c.launch(w)
		}
		c.pods[p.Ref] = w
	}
	for _, w := range gone {
		w.halt()
	}
}

// Start begins to probe; the probes end with ctx or with Stop. A Checker that
// runs already goes on as it is.
func (c *Checker) Start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		if c.run.Err() == nil {
			return
		}
		c.stop()
	}
	c.run, c.stop = context.WithCancel(ctx)
	for _, w := range c.pods {
		c.launch(w)
	}
}

// Stop ends the probes and returns when no goroutine is left. Verdicts stay,
// and Start may follow. It must not be called from Marks or the report.
func (c *Checker) Stop() {
	c.mu.Lock()
	if c.run != nil {
		c.stop()
		c.run, c.stop = nil, nil
	}
	for _, w := range c.pods {
		w.halt()
	}
	c.mu.Unlock()
	c.loops.Wait()
}

// Ended takes in how a leg at the pod ended. It costs a look at the settings
// unless the outcome is a failure and passive marks are on.
func (c *Checker) Ended(now time.Time, ref Ref, o outcome.Outcome) {
	s := c.settings.Load()
	if s.Failures <= 0 || !o.PassiveFailure() {
		return
	}
	c.mu.Lock()
	w := c.pods[ref]
	if w == nil || !w.streak.up || !w.window.failed(now, s.Failures, s.Window) {
		c.mu.Unlock()
		return
	}
	w.marks++
	forget := w.streak.markDown()
	c.marks.SetUp(ref, false, forget)
	e := Event{Pod: w.pod, WasUp: true, Forget: forget}
	c.mu.Unlock()
	e.Reason = fmt.Sprintf("%d failed requests within %s, the last one %s", s.Failures, s.Window, o)
	c.report(e)
}

// Status returns what is known of a pod; false if it is not under watch.
func (c *Checker) Status(ref Ref) (Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pods[ref]
	if w == nil {
		return Status{}, false
	}
	return Status{
		Up: w.streak.up, Decided: w.streak.decided,
		Pass: w.streak.pass, Fail: w.streak.fail, Last: w.last,
	}, true
}

// took enters a probe result, unless the probe's loop was halted meanwhile
// or a passive mark fell into it, and reports what follows.
func (c *Checker) took(ctx context.Context, w *watch, marks int, r Result) {
	c.mu.Lock()
	if ctx.Err() != nil || r.Kind == OK && w.marks != marks {
		c.mu.Unlock()
		return
	}
	s := c.settings.Load()
	w.last = r
	was := w.streak.up
	changed, forget := w.streak.observe(r.Kind, s.Healthy, s.Unhealthy)
	if !changed && !forget {
		c.mu.Unlock()
		return
	}
	c.marks.SetUp(w.pod.Ref, w.streak.up, forget)
	if changed {
		w.window = window{}
	}
	e := Event{Pod: w.pod, Up: w.streak.up, WasUp: was, Forget: forget}
	pass, fail := w.streak.pass, w.streak.fail
	c.mu.Unlock()
	if e.Up {
		e.Reason = fmt.Sprintf("passed %d probes in a row", pass)
	} else {
		e.Reason = fmt.Sprintf("failed %d probes in a row, the last one (%s): %s", fail, r.Kind, r.Detail)
	}
	c.report(e)
}
