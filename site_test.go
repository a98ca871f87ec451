package calinix_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	calinix "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// site is a Caddy with one calinix directive. Its balancer has a name of its
// own: the process's counters outlive a test's Caddy, and only those under a
// fresh name begin at 0.
type site struct {
	*testcaddy.Caddy
	balancer string
	before   string // further directives
}

var balancers atomic.Int64

// serve runs a site whose calinix directive has these keys, with an access log,
// and returns when every pod has been probed. Without a section health each is
// probed that once, so that the verdict stands for the rest of the test.
func serve(t testing.TB, keys string, opts ...testcaddy.Option) *site {
	t.Helper()
	return serveBehind(t, "", keys, opts...)
}

// serveBehind is serve with further directives before the calinix directive.
func serveBehind(t testing.TB, before, keys string, opts ...testcaddy.Option) *site {
	t.Helper()
	s := newSite()
	s.before = before
	if !strings.Contains(keys, "health {") {
		keys += "\nhealth {\ninterval 1h\ntimeout 10s\n}" // no verdict by a machine that is busy
	}
	s.run(t, s.body(keys), opts...)
	return s
}

// newSite names a site that does not run yet.
func newSite() *site { return &site{balancer: fmt.Sprintf("test-%d", balancers.Add(1))} }

// run serves the body and returns when every pod has been probed.
func (s *site) run(t testing.TB, body string, opts ...testcaddy.Option) {
	t.Helper()
	t.Cleanup(func() { calinix.ForgetCounters(s.balancer) }) // when Caddy has stopped
	s.Caddy = testcaddy.Serve(t, body, opts...)
	eventually(t, "the first probe of every pod", func() bool {
		all := s.anyPods(t) // none, until a source has found some
		return len(all) > 0 && !slices.ContainsFunc(all, func(p podState) bool { return p.Health == "" })
	})
}

// Stop ends the site before the test does.
func (s *site) Stop() {
	s.Caddy.Stop()
	calinix.ForgetCounters(s.balancer)
}

// body is the site's text around the keys of its calinix directive. Without a
// strategy it is cacheAware, whatever the default may be.
func (s *site) body(keys string) string {
	if !strings.Contains(keys, "strategy ") {
		keys = "strategy cache_aware\n" + keys
	}
	return "log\n" + s.before + "\ncalinix {\nname " + s.balancer + "\n" + keys + "\n}"
}

// reload replaces the keys of the calinix directive.
func (s *site) reload(t testing.TB, keys string) {
	t.Helper()
	s.ReloadSite(t, s.body(keys))
}

// single are the keys of pods in single mode; more goes into the block of each.
func single(pods fakepod.Pods, more ...string) string {
	return "single {\n" + podList(pods, more...) + "}\n"
}

// dispatch are the keys of pods in dispatch mode, and further ones of the
// section dispatch.
func dispatch(prefill, decode fakepod.Pods, more ...string) string {
	return "dispatch {\n" + strings.Join(more, "\n") + "\nprefill {\n" + podList(prefill) + "}\ndecode {\n" + podList(decode) + "}\n}\n"
}

func podList(pods fakepod.Pods, more ...string) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "pod %s %s {\n%s\n}\n", p.Name, p.URL, strings.Join(more, "\n"))
	}
	return b.String()
}

// pods starts fake pods of these names.
func pods(t testing.TB, names ...string) fakepod.Pods {
	t.Helper()
	return fakepod.NewPods(t, fakepod.Options{}, names...)
}

// labels puts the site's balancer before other labels.
func (s *site) labels(labels []string) []string {
	return append([]string{"balancer", s.balancer}, labels...)
}

// count is the sum of a metric of the site's balancer over all samples with
// these labels.
func (s *site) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return s.Metrics(t).Sum(name, s.labels(labels)...)
}

// waitCount waits for count to be want.
func (s *site) waitCount(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	s.WaitMetric(t, want, name, s.labels(labels)...)
}

// waitNone waits until no leg runs any more. A client may have the whole of an
// answer before the leg behind it has ended, and legs that run decide which pod
// is next: who sends one request after another, and means a pod, calls it between.
func (s *site) waitNone(t testing.TB) {
	t.Helper()
	eventually(t, "the last leg to end", func() bool { return calinix.Running(s.balancer) == 0 })
}

// eventually waits until cond is true, for what does not show in the metrics.
// what completes "timed out waiting for …".
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testcaddy.Patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out after %v waiting for %s", testcaddy.Patience, what)
		}
	}
}

// waitIdle waits until no leg runs at any pod, as the metrics have it, and
// none is left at the pods.
func (s *site) waitIdle(t testing.TB, all ...fakepod.Pods) {
	t.Helper()
	s.waitNone(t) // without asking for the metrics again and again
	s.waitCount(t, 0, "calinix_pod_inflight")
	for _, ps := range all {
		for _, p := range ps {
			p.WaitInFlight(t, 0)
		}
	}
}

// podState is one pod as the admin route shows it.
type podState struct {
	ID       string
	Role     string
	Up       bool
	Draining bool
	Inflight int
	Blocks   int
	Health   string
}

// pods asks the admin route for all pods, of which there must be some.
func (s *site) pods(t testing.TB) []podState {
	t.Helper()
	all := s.anyPods(t)
	if len(all) == 0 {
		t.Fatal("there are no pods")
	}
	return all
}

// anyPods asks the admin route for all pods.
func (s *site) anyPods(t testing.TB) []podState {
	t.Helper()
	a := s.AdminGet(t, "/calinix/pods?balancer="+s.balancer)
	var all []podState
	if err := json.Unmarshal(a.Body, &all); a.Status != 200 || err != nil {
		t.Fatalf("listing pods: %v (%v)", a, err)
	}
	return all
}

// pod is one of pods.
func (s *site) pod(t testing.TB, id string) podState {
	t.Helper()
	for _, p := range s.pods(t) {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("no pod %q", id)
	return podState{}
}

// waitUp waits until the pods are up, or down, as the metrics have it.
func (s *site) waitUp(t testing.TB, up bool, ids ...string) {
	t.Helper()
	want := 0.0
	if up {
		want = 1
	}
	for _, id := range ids {
		s.WaitMetrics(t, fmt.Sprintf("pod %s: up %v", id, up), func(m testcaddy.Metrics) bool {
			n := 0.0
			for _, role := range []string{"single", "prefill", "decode"} {
				l := s.labels([]string{"pod", id, "role", role})
				if m.Has("calinix_pod_up", l...) {
					if m.Get("calinix_pod_up", l...) != want {
						return false
					}
					n++
				}
			}
			return n > 0
		})
	}
}

// quickHealth are keys of a health section that decides within a fraction of a
// second, also on a busy machine.
const quickHealth = "health {\ninterval 20ms\ntimeout 2s\nhealthy_threshold 2\nunhealthy_threshold 2\n}\n"

// chatPath is where chat requests go.
const chatPath = "/v1/chat/completions"

// chat is a chat request with one message, and further members.
func chat(text string, members ...string) string {
	coded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"model":"m","messages":[{"role":"user","content":` + string(coded) + `}]` + strings.Join(append([]string{""}, members...), ",") + `}`
}

// words are n words that begin with name, each a token of its own.
func words(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%04d ", name, i)
	}
	return b.String()
}

// testContext is the test's context, to be cancelled earlier.
func testContext(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// wantError fails the test unless the answer is a JSON error of this status, in
// the form that OpenAI's clients read, and returns its code.
func wantError(t testing.TB, a *testcaddy.Answer, status int) (code string) {
	t.Helper()
	if a.Err != nil || a.Status != status {
		t.Fatalf("want a %d: %v", status, a)
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q: %v", got, a)
	}
	var all map[string]map[string]json.RawMessage
	if err := json.Unmarshal(a.Body, &all); err != nil {
		t.Fatalf("no JSON object of objects (%v): %v", err, a)
	}
	e := all["error"]
	if len(all) != 1 || len(e) != 4 || string(e["param"]) != "null" {
		t.Errorf(`want {"error":{"message","type","param":null,"code"}}: %v`, a)
	}
	for _, name := range []string{"message", "type", "code"} {
		var v string
		if json.Unmarshal(e[name], &v) != nil || v == "" {
			t.Errorf("%s is %s, want some text: %v", name, e[name], a)
		}
	}
	_ = json.Unmarshal(e["code"], &code)
	return code
}
