package calinix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/cespare/xxhash/v2"

	"github.com/calinix/caddy-calinix/chain"
	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/fleet"
	"github.com/calinix/caddy-calinix/index"
	"github.com/calinix/caddy-calinix/internal/bench/yard"
	"github.com/calinix/caddy-calinix/outcome"
	"github.com/calinix/caddy-calinix/prompt"
	"github.com/calinix/caddy-calinix/selection"
)

// decisionCase is one kind of prompt before one kind of fleet.
type decisionCase struct {
	name   string
	size   int // of the prompt's text in bytes
	bodies int // different ones
	pods   int
	block  int // tokens in a block
	gap    int // bytes between two characters that JSON escapes, 0: none
	cold   bool
	others int // blocks of other prompts; 0: 100,000
}

var decisionCases = []decisionCase{
	{name: "8KiB/pods=256/block=32", size: 8 << 10, bodies: 512, pods: 256, block: 32},
	{name: "8KiB/pods=16/block=32", size: 8 << 10, bodies: 512, pods: 16, block: 32},
	{name: "8KiB/pods=16/block=16", size: 8 << 10, bodies: 512, pods: 16, block: 16},
	{name: "8KiB/escapes", size: 8 << 10, bodies: 512, pods: 256, block: 32, gap: 80},
	{name: "64KiB/pods=256/block=32", size: 64 << 10, bodies: 200, pods: 256, block: 32},
	{name: "170KB/pods=16/block=32", size: 170_000, bodies: 200, pods: 16, block: 32},
	{name: "8KiB/cold", size: 8 << 10, bodies: 512, pods: 256, block: 32, cold: true},
	{name: "64KiB/cold", size: 64 << 10, bodies: 200, pods: 256, block: 32, cold: true},
	{name: "1KiB/pods=256/block=32", size: 1 << 10, bodies: 1024, pods: 256, block: 32},
}

// BenchmarkDecision measures a decision: everything between a body that has been
// read and a request that can be sent to its pod, by the functions that requests
// run through. That is the body scan, chain, index query, filter, score, pick,
// what is registered at once, and headers. What follows off the critical path is
// BenchmarkDecisionCPU's.
//
// The first half of every prompt is held by every pod, unless the case is cold,
// beside 100,000 blocks of other prompts. Pods have 0 to 32 legs each. Requests
// have a session, one of 10,000. After each decision the lease is given up, so
// that the next pass finds the index as the first one did.
func BenchmarkDecision(b *testing.B) {
	for _, c := range decisionCases {
		var d *decisions
		for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
			b.Run(c.name+"/"+s.String(), func(b *testing.B) {
				if d == nil {
					d = newDecisions(b, c)
				}
				d.h.rules.strategy = s
				yard.Measure(b, yard.Work{Texts: d.texts, Before: d.arrive, Run: d.decide, After: d.giveUp, Most: len(d.room)})
				d.reportAllocations(b)
			})
		}
	}
}

// BenchmarkDecisionCPU measures the time that the process spends on a decision
// on all its threads, with what follows in the background: the chain is completed
// and registered, old entries make room for it (each pod is at its capacity), and
// once in 64 decisions the balancer's ageing runs. Every prompt is new, and its
// first half held by every pod. A round is 64 decisions; engines take longer to
// answer than it takes to make these, so that all are made before the first ends.
func BenchmarkDecisionCPU(b *testing.B) {
	for _, s := range []selection.Strategy{selection.CacheAware, selection.ExpectedTTFT} {
		b.Run(s.String(), func(b *testing.B) {
			const round, capacity = 64, 4096
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			c := decisionCases[0]
			c.bodies = round
			d := newDecisions(b, c)
			d.h.rules.strategy = s
			for pod := range c.pods {
				d.h.state.blocks.SetCapacity(uint8(pod), capacity)
			}
			for range 1 + capacity/(round*20) {
				d.renew()
			}
			yard.MeasureCPU(b, yard.Work{
				Texts: d.texts,
				Before: func(int) {
					d.renew()
					for i := range round {
						d.arrive(i)
					}
					runtime.GC()
				},
				Run: func(int) {
					for i := range round {
						d.decide(i)
						d.x[i].picked()
					}
					for i := range round {
						d.answered(i)
					}
					d.h.state.blocks.Expire(d.h.now())
					d.h.state.fleet.Expire(d.h.now())
				},
			}, round)
		})
	}
}

// decisions are a handler and the requests that come to it.
type decisions struct {
	decisionCase
	tb    testing.TB
	rng   *rand.Rand
	h     *Handler
	texts [][]byte
	raw   [][]byte // bodies
	room  [64][]byte
	x     [64]*exchange
	lease [64]*fleet.Lease
}

func newDecisions(tb testing.TB, c decisionCase) *decisions {
	if testing.Short() {
		c.bodies = max(64, c.bodies/4)
	}
	if c.others == 0 {
		c.others = 100_000
	}
	d := &decisions{
		decisionCase: c, tb: tb, rng: rand.New(rand.NewPCG(1, uint64(c.size))),
		h: benchHandler(tb, c.pods, c.block, max(1_000_000, 2*c.others)), texts: make([][]byte, c.bodies), raw: make([][]byte, c.bodies),
	}
	for i := range c.others / 250 {
		d.hold(yard.Prose(d.rng, c.block*6*250), uint8(i%c.pods), 1)
	}
	d.renew()
	now := d.h.now()
	for i := range 10_000 {
		a := fleet.Ask{Role: fleet.Single, Strategy: selection.Random, Session: xxhash.Sum64String(fmt.Sprint("session-", i))}
		var l fleet.Lease
		if err := d.h.state.fleet.Begin(now, &a, &l); err != nil {
			tb.Fatal(err)
		}
		l.End(now, outcome.Answered)
	}
	for pod := range c.pods {
		for range d.rng.IntN(33) {
			a := fleet.Ask{Role: fleet.Single, Exclude: index.All(c.pods), Tokens: 1 + d.rng.IntN(20_000)}
			a.Exclude.Clear(pod)
			l := new(fleet.Lease)
			if err := d.h.state.fleet.Begin(now, &a, l); err != nil {
				tb.Fatal(err)
			}
			if l.Start(); d.rng.IntN(4) > 0 {
				l.FirstByte(now)
			}
		}
	}
	runtime.GC()
	return d
}

// renew makes all prompts new ones.
func (d *decisions) renew() {
	for i := range d.texts {
		if d.gap > 0 {
			d.texts[i] = yard.Escaped(d.rng, d.size, d.gap)
		} else {
			d.texts[i] = yard.Prose(d.rng, d.size)
		}
		d.raw[i] = benchBody(d.tb, d.texts[i])
		if !d.cold {
			half := d.texts[i][:d.size/2]
			for half[len(half)-1] != ' ' {
				half = half[:len(half)-1]
			}
			d.hold(half, 0, d.pods)
		}
	}
}

// hold makes the index believe that pods hold the prompt.
func (d *decisions) hold(text []byte, from uint8, pods int) {
	var req prompt.Request
	req.Parse(prompt.Chat, benchBody(d.tb, text))
	var c chain.Chain
	c.Reset(d.h.chain, req.Seed, req.Text)
	c.Finish()
	now := d.h.now()
	var q index.Query
	for pod := range pods {
		d.h.state.blocks.Query(&q, &c, index.All(index.Pods))
		d.h.state.blocks.Register(now, from+uint8(pod), &c, &q)
	}
}

func benchBody(tb testing.TB, text []byte) []byte {
	body, err := json.Marshal(map[string]any{
		"model": "acme-chat-1", "stream": true, "max_tokens": 512, "temperature": 0.7,
		"messages": []any{map[string]any{"role": "user", "content": string(text)}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// arrive has a request's head parsed, as Caddy's server has it, and its body read.
func (d *decisions) arrive(i int) {
	k, raw := i%len(d.room), d.raw[i%len(d.raw)]
	d.room[k] = append(d.room[k][:0], raw...)
	head := fmt.Sprintf(benchHead, i%10_000, len(raw))
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		d.tb.Fatal(err)
	}
	w := discard{http.Header{}}
	w.header.Set("Server", "Caddy")
	w.header.Set("Alt-Svc", `h3=":443"; ma=2592000`)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
	d.x[k] = &exchange{h: d.h, r: r, w: w, body: &body{raw: d.room[k], decoded: d.room[k]}, read: d.h.now()}
}

// benchHead is the head that OpenAI's client for Python sends, with a session.
const benchHead = "POST /v1/chat/completions HTTP/1.1\r\n" +
	"Host: llm.example.com\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\n" +
	"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.1.0\r\nX-Stainless-Lang: python\r\n" +
	"X-Stainless-Package-Version: 2.1.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n" +
	"X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.13.1\r\n" +
	"Authorization: Bearer sk-0123456789abcdef\r\nX-Stainless-Async: false\r\nX-Session-ID: session-%d\r\n" +
	"x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: %d\r\n\r\n"

// decide is the decision.
func (d *decisions) decide(i int) {
	x := d.x[i%len(d.x)]
	if refused := x.takeHeaders(); refused != nil {
		d.tb.Fatal(refused)
	}
	if refused := x.understand(); refused != nil {
		d.tb.Fatal(refused)
	}
	lease, err := x.choose(fleet.Single)
	if err != nil {
		d.tb.Fatal(err)
	}
	x.enroute(outcome.Single, lease)
	d.lease[i%len(d.x)] = lease
}

// giveUp takes back what was registered.
func (d *decisions) giveUp(i int) { d.end(i, outcome.Unsent) }

// answered ends the request as most do.
func (d *decisions) answered(i int) { d.end(i, outcome.Answered) }

func (d *decisions) end(i int, o outcome.Outcome) {
	d.lease[i%len(d.x)].End(d.h.now(), o)
	d.x[i%len(d.x)].release()
}

// reportAllocations counts what decisions allocate.
func (d *decisions) reportAllocations(b *testing.B) {
	var before, after runtime.MemStats
	for round := range 3 { // the first ones let grow what is kept
		for i := range d.x {
			d.arrive(round*len(d.x) + i)
		}
		runtime.ReadMemStats(&before)
		for i := range d.x {
			d.decide(i)
		}
		runtime.ReadMemStats(&after)
		for i := range d.x {
			d.giveUp(i)
		}
	}
	n := float64(len(d.x))
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/op")
}

// discard is a response writer that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// benchHandler is a handler with n pods and an index of so many blocks at most,
// without a Caddy around it.
func benchHandler(tb testing.TB, n, block, blocks int) *Handler {
	h := &Handler{metrics: shared, now: time.Now}
	h.Single = &config.Single{}
	for i := range n {
		h.Single.Pods = append(h.Single.Pods, config.Pod{ID: fmt.Sprintf("pod-%d", i), URL: fmt.Sprintf("http://10.0.0.%d:8000", i)})
	}
	h.BlockSize = &block
	h.effective = h.Defaults()
	if err := h.settle(); err != nil {
		tb.Fatal(err)
	}
	h.decisionTime = h.metrics.decisions.WithLabelValues("bench")
	h.blocksHit = h.metrics.prefixBlocks.WithLabelValues("bench", "hit")
	h.blocksMissed = h.metrics.prefixBlocks.WithLabelValues("bench", "miss")
	x := index.New(index.Options{MaxBlocks: blocks})
	h.state = &balancer{name: "bench", blocks: x, fleet: fleet.New(fleet.Options{Index: x, Sessions: fleet.Sessions{TTL: time.Hour, Max: 100_000}})}
	if _, err := h.state.fleet.Apply(time.Now(), podsOf(h.effective)); err != nil {
		tb.Fatal(err)
	}
	return h
}
