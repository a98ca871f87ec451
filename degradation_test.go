package calinix_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestDegradation reads the table "What happens when" of docs/routing.md and brings
// about every case of it over real sockets: in a Caddyfile and in config.yaml, with
// the strategy of the balancer, of a model and of pods. What the answer says, and the
// metric that grows, are those of the row. No row without a test, no test without
// a row.
func TestDegradation(t *testing.T) {
	played := map[string]bool{}
	for _, row := range degradationRows(t) {
		d, ok := degradations[row.id]
		switch {
		case !ok:
			t.Errorf("case %s has no test", row.id)
			continue
		case played[row.id]:
			t.Errorf("case %s is there twice", row.id)
		}
		played[row.id] = true
		places := d.places
		if places == nil {
			places = []place{ofBalancer, ofModel, ofPods}
		}
		for _, strategy := range d.strategies {
			for _, at := range places {
				for _, lang := range []language{inCaddyfile, inYAML} {
					t.Run(fmt.Sprintf("%s/%s/%s/%v", row.id, strategy, at, lang), func(t *testing.T) {
						p := newStage(t, row, &d, strategy, at, lang)
						d.play(t, p)
						if !p.decided {
							t.Error("no request was decided as the row says")
						}
					})
				}
			}
		}
	}
	for id := range degradations {
		if !played[id] {
			t.Errorf("the page has no case %s", id)
		}
	}
}

// place is where the strategy stands.
type place string

const (
	ofBalancer place = "balancer"
	ofModel    place = "model"
	ofPods     place = "pods"
)

// degradation brings about a case.
type degradation struct {
	strategies []string
	places     []place // nil: all
	pods       int     // 0: 3
	config     func(p *stage)
	play       func(t *testing.T, p *stage)
}

// degradationRow is a row of the page.
type degradationRow struct{ id, answer, metric string }

// degradationRows reads the page's table.
func degradationRows(t *testing.T) (rows []degradationRow) {
	t.Helper()
	page, err := os.ReadFile("docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n## What happens when …\n")
	if !found {
		t.Fatal("the page has no section of what happens when")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	row := regexp.MustCompile("^\\| `([a-z-]+)` \\|[^|]+\\|[^|]+\\| ([^|]+) \\| ([^|]+) \\|$")
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if m := row.FindStringSubmatch(line); m != nil {
			rows = append(rows, degradationRow{m[1], m[2], m[3]})
		} else if strings.HasPrefix(line, "| `") {
			t.Errorf("this row cannot be read: %s", line)
		}
	}
	return rows
}

// stage is a site on which a case is played. Its pods serve model m, which chat asks
// for.
type stage struct {
	*site
	cl       *testcaddy.Client
	ps       fakepod.Pods
	row      degradationRow
	strategy string
	lang     language
	conf     tree
	all      []tree // pods, where not all of them are there at first

	before  float64 // of the row's metric
	marked  bool
	decided bool
}

// newStage starts the site, with the strategy in its place. The balancer's is random
// otherwise, which must not count.
func newStage(t *testing.T, row degradationRow, d *degradation, strategy string, at place, lang language) *stage {
	p := &stage{site: newSite(), row: row, strategy: strategy, lang: lang}
	n := d.pods
	if n == 0 {
		n = 3
	}
	p.ps = pods(t, []string{"a", "b", "c", "d", "e", "f"}[:n]...)
	p.conf = tree{
		"version": 1, "gateway": tree{"name": p.balancer, "strategy": "random"}, "health": tree{"intervalMs": 3600_000, "timeoutMs": 10_000},
		"upstreams": tree{"single": tree{"pods": podTrees(p.ps, nil)}},
	}
	switch at {
	case ofBalancer:
		p.conf.in("gateway")["strategy"] = strategy
	case ofModel:
		p.conf.in("models", "m")["strategy"] = strategy
	case ofPods:
		for _, pod := range p.listed() {
			pod["models"], pod["strategy"] = []string{"m"}, strategy
		}
	}
	if d.config != nil {
		d.config(p)
	}
	p.run(t, lang.site(t, p.conf))
	p.cl = p.Client(t, testcaddy.H1)
	return p
}

// listed are the pods of the section single in the configuration.
func (p *stage) listed() []tree {
	list, _ := p.conf.in("upstreams", "single")["pods"].([]tree)
	return list
}

// reload puts the configuration into effect as it is now. The client is a new one:
// idle connections of the old one are closed.
func (p *stage) reload(t *testing.T) {
	t.Helper()
	p.ReloadSite(t, p.lang.site(t, p.conf))
	p.cl = p.Client(t, testcaddy.H1)
}

// keyed is a chat request with a key for each of the strategies that hash.
func keyed(key, text string) (body string, headers []string) {
	return chat(text, fmt.Sprintf(`"prefix":%q`, key)), []string{"X-Session-ID", key}
}

// ask sends a keyed request that leads up to the case.
func (p *stage) ask(t *testing.T, key string) *testcaddy.Answer {
	t.Helper()
	body, headers := keyed(key, "What is the answer?")
	a := p.cl.Post(t, chatPath, body, headers...)
	if a.Status != 200 {
		t.Fatal(a)
	}
	p.waitNone(t)
	return a
}

// decideKeyed is decide with a keyed request.
func (p *stage) decideKeyed(t *testing.T, key string) *testcaddy.Answer {
	t.Helper()
	body, headers := keyed(key, "What is the answer?")
	return p.decide(t, chatPath, body, headers...)
}

// decide sends a request of the case and holds the answer against the row.
func (p *stage) decide(t *testing.T, path, body string, headers ...string) *testcaddy.Answer {
	t.Helper()
	p.mark(t)
	a := p.cl.Post(t, path, body, headers...)
	p.compare(t, a)
	return a
}

var metricCell = regexp.MustCompile("^`([a-z_]+)(?:\\{(.*)\\})?`$")

// sum is the row's metric.
func (p *stage) sum(t *testing.T) float64 {
	t.Helper()
	m := metricCell.FindStringSubmatch(p.row.metric)
	if m == nil {
		t.Fatalf("metric %s cannot be read", p.row.metric)
	}
	var labels []string
	for _, l := range regexp.MustCompile(`([a-z_]+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
		labels = append(labels, l[1], l[2])
	}
	return p.count(t, m[1], labels...)
}

// mark notes what the row's metric is before the case comes about; decide does, if
// nobody has.
func (p *stage) mark(t *testing.T) {
	t.Helper()
	if !p.marked && p.row.metric != "–" {
		p.before = p.sum(t)
	}
	p.marked = true
}

// compare holds an answer against the row, and the metric.
func (p *stage) compare(t *testing.T, a *testcaddy.Answer) {
	t.Helper()
	p.decided = true
	cell := strings.Trim(p.row.answer, "`")
	if code, ok := strings.CutPrefix(cell, "404 "); ok {
		if got := wantError(t, a, 404); got != code {
			t.Errorf("code %s, the page says %s", got, code)
		}
	} else if code, ok := strings.CutPrefix(cell, "503 "); ok {
		if got := wantError(t, a, 503); got != code || a.Header.Get("Retry-After") == "" {
			t.Errorf("code %s, the page says %s with Retry-After: %v", got, code, a)
		}
	} else {
		if cell == "the strategy" {
			cell = p.strategy
		}
		if got := a.Header.Get("X-Calinix-Route-Policy"); a.Status != 200 || got != cell {
			t.Errorf("decided by %s, the page says %s: %v", got, cell, a)
		}
	}
	if p.row.metric != "–" {
		p.WaitMetrics(t, p.row.metric+" to grow", func(testcaddy.Metrics) bool { return p.sum(t) > p.before })
	}
	p.marked = false
}

// busy keeps the first pod busy with a request that has neither key nor prompt.
func (p *stage) busy(t *testing.T) *held {
	t.Helper()
	h := p.hold(t, p.ps[:1])
	for at := ""; at != p.ps[0].Name; {
		at = h.send(t, p.ps, http.MethodPost, "/tokenize", `{"model":"m"}`)
	}
	return h
}

// upload is a request whose body is on its way.
type upload struct {
	out  *io.PipeWriter
	rest string
	done chan *testcaddy.Answer
}

// startUpload sends half of the body and returns when the server reads it.
func startUpload(t *testing.T, cl *testcaddy.Client, path, body string, headers ...string) *upload {
	t.Helper()
	reading := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	r := cl.Request(ctx, t, http.MethodPost, path, body, append(headers, "Expect", "100-continue")...)
	in, out := io.Pipe()
	r.Body, r.GetBody = in, nil
	u := &upload{out: out, rest: body[len(body)/2:], done: make(chan *testcaddy.Answer, 1)}
	go func() { u.done <- cl.Send(r) }()
	if _, err := io.WriteString(out, body[:len(body)/2]); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reading:
	case <-time.After(testcaddy.Patience):
		t.Fatal("the body is not being read")
	}
	return u
}

// finish sends the rest and returns the answer.
func (u *upload) finish(t *testing.T) *testcaddy.Answer {
	t.Helper()
	if _, err := io.WriteString(u.out, u.rest); err != nil {
		t.Fatal(err)
	}
	_ = u.out.Close()
	return <-u.done
}
