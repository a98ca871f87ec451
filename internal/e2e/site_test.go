package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/enginesim"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// pod is a simulated engine as the calinix directive names it.
type pod struct{ id, url string }

// plan is a configuration as a user would write it: one site over TLS with a
// calinix handler, and the engines behind it.
type plan struct {
	port            int
	single          []pod
	prefill, decode []pod
	global          string // further global options
	calinix         string // further lines of the directive
	site            string // further lines of the site
	more            string // further sites
	sims            []int  // ports at which this Caddy serves engines itself
	sim             string // lines of their inference_sim blocks
}

// fast are engines that take no more time than a test needs.
const fast = `
	seed 7
	output_tokens 12
	prefill_tokens_per_second 200000
	decode_tokens_per_second 1000`

// newPlan plans a site with this many engines of each role, served by the same
// Caddy through the inference_sim directive.
func newPlan(tb testing.TB, single, prefill, decode int, sim string) *plan {
	tb.Helper()
	p := &plan{port: testcaddy.Port(tb), sim: sim}
	add := func(role string, n int) (pods []pod) {
		for k := range n {
			port := testcaddy.Port(tb)
			p.sims = append(p.sims, port)
			pods = append(pods, pod{fmt.Sprintf("%s-%d", role, k+1), "http://127.0.0.1:" + strconv.Itoa(port)})
		}
		return pods
	}
	p.single, p.prefill, p.decode = add("single", single), add("prefill", prefill), add("decode", decode)
	return p
}

// patientProbes are for machines on which a probe may take longer than the
// default of 500 ms because many tests run.
const patientProbes = "health {\ntimeout 20s\n}"

// singleOrDispatch runs f for a site with pods of single mode, and for one with
// pods of dispatch mode.
func singleOrDispatch(t *testing.T, sim string, f func(t *testing.T, p *plan)) {
	t.Helper()
	t.Run("single", func(t *testing.T) { f(t, newPlan(t, 3, 0, 0, sim)) })
	t.Run("dispatch", func(t *testing.T) { f(t, newPlan(t, 0, 2, 2, sim)) })
}

func (p *plan) dispatches() bool { return len(p.decode) > 0 }

// caddyfile writes the plan down.
func (p *plan) caddyfile() string {
	var b strings.Builder
	list := func(name string, pods []pod) {
		if len(pods) == 0 {
			return
		}
		b.WriteString(name + " {\n")
		for _, pod := range pods {
			fmt.Fprintf(&b, "pod %s %s\n", pod.id, pod.url)
		}
		b.WriteString("}\n")
	}
	b.WriteString("{\nauto_https disable_redirects\n" + p.global + "\n}\n")
	cert, key := testcaddy.CertFiles()
	fmt.Fprintf(&b, "https://:%d {\ntls %s %s\nlog\n%s\ncalinix {\nstrategy cache_aware\n%s\n%s\n", p.port, cert, key, p.site, patientProbes, p.calinix)
	list("single", p.single)
	if p.dispatches() {
		b.WriteString("dispatch {\nconnector nixl\n")
		list("prefill", p.prefill)
		list("decode", p.decode)
		b.WriteString("}\n")
	}
	b.WriteString("}\n}\n")
	for _, port := range p.sims {
		fmt.Fprintf(&b, "http://:%d {\nbind 127.0.0.1\ninference_sim {%s\n}\n}\n", port, p.sim)
	}
	b.WriteString(p.more)
	return b.String()
}

// url is where clients find the site.
func (p *plan) url() string { return "https://localhost:" + strconv.Itoa(p.port) }

// site is a running plan.
type site struct {
	*testcaddy.Caddy
	*plan
}

// run serves the plan for the length of the test and returns when clients can
// come.
func (p *plan) run(tb testing.TB, opts ...testcaddy.Option) *site {
	tb.Helper()
	c := testcaddy.Load(tb, p.caddyfile(), opts...)
	testcaddy.WaitTLS(tb, "localhost:"+strconv.Itoa(p.port))
	return &site{Caddy: c, plan: p}
}

// client is a client of the site that speaks one protocol.
func (s *site) client(tb testing.TB, p testcaddy.Protocol) *testcaddy.Client {
	tb.Helper()
	return testcaddy.NewClient(tb, p, s.url())
}

// each runs f with a client for each of the protocols.
func (s *site) each(t *testing.T, f func(t *testing.T, cl *testcaddy.Client)) {
	t.Helper()
	for _, p := range testcaddy.All {
		t.Run(p.String(), func(t *testing.T) { f(t, s.client(t, p)) })
	}
}

// newEngine serves a simulated engine without any Caddy, for the length of the
// test: what it answers nobody has handled, and a reload does not touch it.
func newEngine(tb testing.TB, set enginesim.Settings) (*enginesim.Engine, string) {
	tb.Helper()
	return servedBy(tb, set, enginesim.NewPeers())
}

func servedBy(tb testing.TB, set enginesim.Settings, peers *enginesim.Peers) (*enginesim.Engine, string) {
	tb.Helper()
	e, err := enginesim.New(set, enginesim.SystemClock(), peers)
	if err != nil {
		tb.Fatal(err)
	}
	s := httptest.NewServer(e)
	tb.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		e.Close()
	})
	return e, s.URL
}

// fastSettings are those of fast.
func fastSettings() enginesim.Settings {
	return enginesim.Settings{Seed: 7, OutputTokens: 12, PrefillTokensPerSecond: 200000, DecodeTokensPerSecond: 1000}
}

// state asks a simulated engine what happened inside it.
func (p pod) state(tb testing.TB) enginesim.Stats {
	tb.Helper()
	a := testcaddy.NewClient(tb, testcaddy.H1, p.url).Get(tb, "/inference_sim/state")
	var s enginesim.Stats
	if err := json.Unmarshal(a.Body, &s); err != nil || a.Status != http.StatusOK {
		tb.Fatalf("the state of %s: %v, %v", p.id, err, a)
	}
	return s
}

// within is a context for what should be done in a moment: a hang fails the test
// that hangs, and not the whole run.
func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// eventually waits until cond is true. what completes "timed out waiting for …".
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(testcaddy.Patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("timed out after %v waiting for %s", testcaddy.Patience, what)
		}
	}
}

// header returns an answer's x-calinix header.
func header(h http.Header, name string) string { return h.Get("X-Calinix-" + name) }

// depthOf is the depth that an answer names, in blocks.
func depthOf(tb testing.TB, h http.Header) int {
	tb.Helper()
	n, err := strconv.Atoi(header(h, "Cache-Prefix-Depth"))
	if err != nil {
		tb.Fatalf("x-calinix-cache-prefix-depth: %v in %v", err, h)
	}
	return n
}

// prose is text of n words that nobody else's prose begins with.
func prose(name string, n int) string {
	words := strings.Fields("river stone cloud garden letter window winter market engine bottle mirror forest")
	sum := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%x", sum)
	for k := 1; k < n; k++ {
		sum = sum*6364136223846793005 + 1442695040888963407
		b.WriteString(" " + words[sum>>33%uint64(len(words))])
	}
	return b.String()
}
