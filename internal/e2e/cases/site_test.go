package cases_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// probes are the health keys of the cases: every 200 ms, 2 passes up, 3 failures
// down. The cases' timeout of 150 ms is ten times as long here, for a busy
// machine may keep any probe waiting for 150 ms; BR-19, which is about late
// probes, has its own.
const probes = "health {\ninterval 200ms\ntimeout 1500ms\nhealthy_threshold 2\nunhealthy_threshold 3\n}\n"

// site is a Caddy with one calinix directive in front of fake pods. Its balancer
// has a name of its own: the process's counters outlive a test's Caddy, and only
// those under a fresh name begin at 0.
type site struct {
	*testcaddy.Caddy
	balancer string
	pods     fakepod.Pods
}

var balancers atomic.Int64

// Names of pods, as the cases call them.
var (
	ab   = []string{"a", "b"}
	abcd = []string{"a", "b", "c", "d"}
)

// serve runs a site in front of these pods; keys are the lines of its calinix
// directive.
func serve(t testing.TB, pods fakepod.Pods, keys string, opts ...testcaddy.Option) *site {
	t.Helper()
	s := newSite(pods)
	s.run(t, s.calinix(keys), opts...)
	return s
}

// newSite is a site that does not run yet.
func newSite(pods fakepod.Pods) *site {
	return &site{balancer: fmt.Sprintf("case-%d", balancers.Add(1)), pods: pods}
}

// run serves the directives of the site's body, beside an access log.
func (s *site) run(t testing.TB, directives string, opts ...testcaddy.Option) {
	t.Helper()
	s.Caddy = testcaddy.Serve(t, "log\n"+directives, opts...)
}

// calinix is a calinix directive with these keys.
func (s *site) calinix(keys string) string {
	return "calinix {\nname " + s.balancer + "\n" + keys + "\n}\n"
}

// reload replaces the keys of the calinix directive.
func (s *site) reload(t testing.TB, keys string) {
	t.Helper()
	s.ReloadSite(t, "log\n"+s.calinix(keys))
}

// pods starts fake pods of these names.
func pods(t testing.TB, names []string) fakepod.Pods {
	t.Helper()
	return fakepod.NewPods(t, fakepod.Options{}, names...)
}

// single are the keys of pods in single mode.
func single(pods fakepod.Pods) string { return "single {\n" + podList(pods) + "}\n" }

// dispatch are the keys of pods in dispatch mode, and further ones of the section.
func dispatch(prefill, decode fakepod.Pods, more ...string) string {
	return "dispatch {\n" + strings.Join(more, "\n") + "\nprefill {\n" + podList(prefill) + "}\ndecode {\n" + podList(decode) + "}\n}\n"
}

func podList(pods fakepod.Pods) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "pod %s %s\n", p.Name, p.URL)
	}
	return b.String()
}

// serveSingle runs a site of single mode with pods of these names.
func serveSingle(t testing.TB, names []string) *site {
	t.Helper()
	ps := pods(t, names)
	return serve(t, ps, probes+single(ps))
}

// serveOnly is serveSingle with only the named pod healthy at first, which is
// how a case puts a prompt on a pod without knowing the product's scoring.
func serveOnly(t testing.TB, healthy string, names []string, opts ...testcaddy.Option) *site {
	t.Helper()
	ps := pods(t, names)
	for _, p := range ps {
		p.Healthy(p.Name == healthy)
	}
	s := serve(t, ps, probes+single(ps), opts...)
	s.waitUp(t, healthy)
	return s
}

// pd is a site in dispatch mode, prefill pods p1 and p2, decode pods d1 and d2.
type pd struct {
	*site
	prefill, decode fakepod.Pods
}

// serveDispatch runs a site of dispatch mode; more are keys of the section.
func serveDispatch(t testing.TB, more ...string) *pd {
	t.Helper()
	s := &pd{prefill: pods(t, []string{"p1", "p2"}), decode: pods(t, []string{"d1", "d2"})}
	s.site = serve(t, slices.Concat(s.prefill, s.decode), s.keys(more...))
	return s
}

func (s *pd) keys(more ...string) string { return probes + dispatch(s.prefill, s.decode, more...) }

// only lets the named pods pass their probes, and no other, and returns when the
// gateway believes it.
func (s *site) only(t testing.TB, names ...string) {
	t.Helper()
	for _, p := range s.pods {
		p.Healthy(slices.Contains(names, p.Name))
	}
	s.waitUp(t, names...)
}

// all lets all pods pass their probes and returns when the gateway believes it.
func (s *site) all(t testing.TB) {
	t.Helper()
	names := make([]string, len(s.pods))
	for k, p := range s.pods {
		names[k] = p.Name
	}
	s.only(t, names...)
}

// crash kills one pod of those that are all up, and returns when the gateway has
// marked it down.
func (s *site) crash(t testing.TB, p *fakepod.Pod) {
	t.Helper()
	p.Crash()
	var left []string
	for _, q := range s.pods {
		if q != p {
			left = append(left, q.Name)
		}
	}
	s.waitUp(t, left...)
}

// restart starts a killed pod on its old address, and returns when the gateway
// believes that all pods are up.
func (s *site) restart(t testing.TB, p *fakepod.Pod) {
	t.Helper()
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	s.all(t)
}

// waitUp waits until the named pods are up, and no other, as the metrics have it.
func (s *site) waitUp(t testing.TB, names ...string) {
	t.Helper()
	s.WaitMetrics(t, fmt.Sprintf("only the pods %q to be up", names), func(m testcaddy.Metrics) bool {
		for _, p := range s.pods {
			if s.isUp(m, p.Name) != slices.Contains(names, p.Name) {
				return false
			}
		}
		return true
	})
}

func (s *site) isUp(m testcaddy.Metrics, pod string) bool {
	return m.Sum("calinix_pod_up", "balancer", s.balancer, "pod", pod) > 0
}

// wantUp fails the test unless all of the named pods are up.
func (s *site) wantUp(t testing.TB, names ...string) {
	t.Helper()
	m := s.Metrics(t)
	for _, name := range names {
		if !s.isUp(m, name) {
			t.Errorf("pod %s is down", name)
		}
	}
}

// count is the sum of a metric of the site's balancer over the samples with
// these labels.
func (s *site) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return s.Metrics(t).Sum(name, append([]string{"balancer", s.balancer}, labels...)...)
}

// wantCount fails the test unless count is want.
func (s *site) wantCount(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	if got := s.count(t, name, labels...); got != want {
		t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}

// waitCount waits for count to be want.
func (s *site) waitCount(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	s.WaitMetric(t, want, name, append([]string{"balancer", s.balancer}, labels...)...)
}

// waitIdle waits until no leg runs at any pod, as gateway and pods have it.
func (s *site) waitIdle(t testing.TB) {
	t.Helper()
	s.waitCount(t, 0, "calinix_pod_inflight")
	for _, p := range s.pods {
		p.WaitInFlight(t, 0)
	}
}

// pick is the pod to which the gateway would send the request now; in dispatch
// mode that of the prefill leg.
func (s *site) pick(t testing.TB, r cases.Request) *fakepod.Pod {
	t.Helper()
	a := s.AdminPost(t, "/calinix/explain?balancer="+s.balancer+"&path="+r.Path, string(r.Body))
	var e struct{ Pick struct{ Pod, Prefill string } }
	if err := json.Unmarshal(a.Body, &e); err != nil || a.Status != 200 || e.Pick.Pod+e.Pick.Prefill == "" {
		t.Fatalf("explaining %s: %v (%v)", r.Name, a, err)
	}
	return s.pods.Pod(e.Pick.Pod + e.Pick.Prefill)
}

// other is the other one of two pods.
func other(two fakepod.Pods, p *fakepod.Pod) *fakepod.Pod {
	if two[0] == p {
		return two[1]
	}
	return two[0]
}

// sum is the SHA-256 of a body in hex, as pods record it.
func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// wantStatus fails the test for every answer without this status.
func wantStatus(t testing.TB, status int, sent ...testcaddy.Sent) {
	t.Helper()
	for _, s := range sent {
		if s.Err != nil || s.Status != status {
			t.Errorf("%s %d: want %d, got %v", s.Name, s.N, status, s.Answer)
		}
	}
}

// wantPod fails the test for every answer that another pod gave.
func wantPod(t testing.TB, pod string, sent ...testcaddy.Sent) {
	t.Helper()
	for _, s := range sent {
		if s.Pod() != pod {
			t.Errorf("%s %d: want an answer of pod %s: %v", s.Name, s.N, pod, s.Answer)
		}
	}
}

// wantJSONError fails the test unless the answer is an error of the gateway's
// own, as OpenAI's clients read it.
func wantJSONError(t testing.TB, a *testcaddy.Answer, statuses ...int) (message string) {
	t.Helper()
	if a.Err != nil || !slices.Contains(statuses, a.Status) {
		t.Fatalf("want one of %v: %v", statuses, a)
	}
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(a.Body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		t.Errorf("no JSON error with message, type and code (%v): %v", err, a)
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the error's Content-Type is %q", got)
	}
	return e.Error.Message
}
