package kubernetes

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/calinix/caddy-calinix/config"
)

// reports is a sink that keeps the newest reports, and what was logged.
type reports struct {
	log *observer.ObservedLogs

	mu     sync.Mutex
	pods   string // one pod after the other, "none yet" before the first report
	fault  string
	faults []string // all that were reported, "" where all was well
	news   chan struct{}
}

func newReports() *reports { return &reports{pods: "none yet", news: make(chan struct{}, 1)} }

// Found implements discovery.Sink.
func (r *reports) Found(pods []config.Pod) { r.found(textOf(pods)) }

// Failing implements discovery.Sink.
func (r *reports) Failing(err error) { r.failing(faultOf(err)) }

func (r *reports) found(pods string) { r.note(func() { r.pods = pods }) }

func (r *reports) failing(fault string) {
	r.note(func() { r.fault, r.faults = fault, append(r.faults, fault) })
}

// allFaults returns every fault that was reported, "" where all was well.
func (r *reports) allFaults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults)
}

// now returns the pods that were reported last.
func (r *reports) now() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Fields(r.pods)
}

// faultOf is an error's text, "" of none.
func faultOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// textOf writes pods one after the other.
func textOf(pods []config.Pod) string {
	var all []string
	for _, p := range pods {
		text := p.ID + "=" + p.URL
		if p.Draining != nil && *p.Draining {
			text += ",draining"
		}
		for _, model := range p.Models {
			text += ",model=" + model
			if strategy := p.Strategies[model]; strategy != "" {
				text += ":" + strategy
			}
		}
		if p.Strategy != "" {
			text += ",strategy=" + p.Strategy
		}
		if p.Node != "" || p.Zone != "" {
			text += ",at=" + p.Node + "/" + p.Zone
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func (r *reports) note(report func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// wait waits until the newest reports are as wanted, and returns how long that took.
func (r *reports) wait(t *testing.T, what string, is func(pods, fault string) bool) time.Duration {
	t.Helper()
	begin := time.Now()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		pods, fault := r.pods, r.fault
		r.mu.Unlock()
		if is(pods, fault) {
			return time.Since(begin)
		}
		select {
		case <-r.news:
		case <-deadline:
			t.Fatalf("want %s, have pods %q, fault %q", what, pods, fault)
		}
	}
}

// waitPods waits for these pods, and returns how long that took.
func (r *reports) waitPods(t *testing.T, want ...string) time.Duration {
	t.Helper()
	text := strings.Join(want, " ")
	return r.wait(t, text, func(pods, fault string) bool { return pods == text && fault == "" })
}
