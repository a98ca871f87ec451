package fakepod

import (
	"fmt"
	"strings"
	"testing"
)

// Pods are the pods of one test.
type Pods []*Pod

// NewPods starts one pod for each name, for the length of a test; o applies to
// all of them.
func NewPods(tb testing.TB, o Options, names ...string) Pods {
	tb.Helper()
	ps := make(Pods, len(names))
	for k, name := range names {
		o.Name = name
		ps[k] = New(tb, o)
	}
	return ps
}

// Pod returns the pod with this name and panics if there is none.
func (ps Pods) Pod(name string) *Pod {
	for _, p := range ps {
		if p.Name == name {
			return p
		}
	}
	panic("no fake pod named " + name)
}

// Set makes s the script of every pod. A Sequence or Cycle would be shared by
// all of them.
func (ps Pods) Set(s Script) {
	for _, p := range ps {
		p.Set(s)
	}
}

// Counts returns how many requests each pod has received, by name.
func (ps Pods) Counts() map[string]int {
	n := make(map[string]int, len(ps))
	for _, p := range ps {
		n[p.Name] = p.Count()
	}
	return n
}

// Total is how many requests all pods together have received.
func (ps Pods) Total() int {
	n := 0
	for _, p := range ps {
		n += p.Count()
	}
	return n
}

// Received returns the requests of all pods, one pod after another.
func (ps Pods) Received() []Request {
	var all []Request
	for _, p := range ps {
		all = append(all, p.Requests()...)
	}
	return all
}

// Forget drops the records of all pods.
func (ps Pods) Forget() {
	for _, p := range ps {
		p.Forget()
	}
}

// OnlyHealthy lets the named pods answer probes with 200 and all others with
// 503, and waits until each has answered so many probes (WaitProbes) since:
// enough for the gateway to believe it, whatever its thresholds up to n.
func (ps Pods) OnlyHealthy(tb testing.TB, n int, names ...string) {
	tb.Helper()
	wanted := " " + strings.Join(names, " ") + " "
	for _, p := range ps {
		p.Healthy(strings.Contains(wanted, " "+p.Name+" "))
	}
	ps.Settle(tb, n)
}

// AllHealthy lets all pods answer probes with 200 and waits like OnlyHealthy.
func (ps Pods) AllHealthy(tb testing.TB, n int) {
	tb.Helper()
	for _, p := range ps {
		p.Healthy(true)
	}
	ps.Settle(tb, n)
}

// Settle waits until every pod has answered n probes that began after now, and
// one more has come: a prober that probes a pod at regular intervals has then
// seen the n answers. Pods whose port is closed must not be among them.
func (ps Pods) Settle(tb testing.TB, n int) {
	tb.Helper()
	begun := make([]int, len(ps))
	for k, p := range ps {
		p.mu.Lock()
		begun[k] = p.probes.begun
		p.mu.Unlock()
	}
	for k, p := range ps {
		p.await(tb, fmt.Sprintf("%d probes more than %d, and one", n, begun[k]), func() bool {
			return p.probes.begun > begun[k]+n && p.probes.ended >= begun[k]+n
		})
	}
}
