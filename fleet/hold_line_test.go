package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/outcome"
)

// line is a fleet in which legs are held, with a clock, an alarm, and those who wait
// for their turn.
type line struct {
	*Fleet
	t     testing.TB
	now   time.Time
	alarm time.Time
	armed bool
	legs  map[*Hold]*waiter
	turn  *Hold
	sent  []*waiter // in the order in which they got a pod
}

// waiter is a leg of a line.
type waiter struct {
	name  string
	at    time.Time // when it came
	ask   *Ask
	lease Lease
	err   error // of its last Begin
}

func newLine(t testing.TB, pods []Pod, o Overload) *line {
	t.Helper()
	n := &line{t: t, now: epoch, legs: map[*Hold]*waiter{}}
	n.Fleet = New(Options{
		Index: index.New(index.Options{}), Sessions: Sessions{TTL: time.Hour, Max: 1000}, Seed: 1,
		Alarm: func(at time.Time) { n.alarm, n.armed = at, true },
	})
	n.SetOverload(o)
	apply(t, n.Fleet, pods)
	return n
}

// come begins a leg with a prompt of so many tokens, of which nobody has any.
func (n *line) come(name string, tokens int) *waiter {
	a := ttft(words(name))
	a.Tokens, a.Hold = tokens, new(Hold)
	return n.join(name, a)
}

func (n *line) join(name string, a *Ask) *waiter {
	w := &waiter{name: name, at: n.now, ask: a}
	h := a.Hold
	h.Turn = func() {
		if n.turn != nil {
			n.t.Errorf("%s gets a turn that %s has", name, n.legs[n.turn].name)
		}
		n.turn = h
	}
	n.legs[h] = w
	n.begin(w)
	n.settle()
	return w
}

func (n *line) begin(w *waiter) {
	if w.err = n.Begin(n.now, w.ask, &w.lease); w.err == nil {
		n.sent = append(n.sent, w)
		w.lease.Start()
	}
	if !errors.Is(w.err, ErrHeld) {
		delete(n.legs, w.ask.Hold)
	}
}

// settle lets those whose turn it is use it, and the alarm ring if it is due.
func (n *line) settle() {
	for n.turn != nil || n.armed && !n.alarm.After(n.now) {
		if h := n.turn; h != nil {
			n.turn = nil
			n.begin(n.legs[h])
			continue
		}
		n.armed = false
		n.Tick(n.now)
	}
}

// pass lets time pass.
func (n *line) pass(d time.Duration) {
	end := n.now.Add(d)
	for n.armed && !n.alarm.After(end) {
		if n.alarm.After(n.now) {
			n.now = n.alarm
		}
		n.settle()
	}
	n.now = end
	n.settle()
}

func (n *line) first(w *waiter) { w.lease.FirstByte(n.now); n.settle() }
func (n *line) end(w *waiter)   { w.lease.End(n.now, outcome.Answered); n.settle() }
func (n *line) leave(w *waiter) {
	n.Leave(n.now, w.ask.Hold)
	delete(n.legs, w.ask.Hold)
	n.settle()
}

// order names those that were sent.
func (n *line) order() string {
	var names []string
	for _, w := range n.sent {
		names = append(names, w.name)
	}
	return strings.Join(names, " ")
}

func (n *line) want(order string) {
	n.t.Helper()
	if got := n.order(); got != order {
		n.t.Errorf("sent %s, want %s", got, order)
	}
}
