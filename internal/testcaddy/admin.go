package testcaddy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// adminClient is the client of the admin listener, on a connection a request.
func (c *Caddy) adminClient() *Client {
	return &Client{Protocol: H1, Base: c.AdminURL, HTTP: c.admin}
}

// AdminGet asks the admin listener for a path.
func (c *Caddy) AdminGet(tb testing.TB, path string) *Answer {
	tb.Helper()
	return c.AdminSend(tb, http.MethodGet, path, "")
}

// AdminPost posts to the admin listener.
func (c *Caddy) AdminPost(tb testing.TB, path, body string, headers ...string) *Answer {
	tb.Helper()
	return c.AdminSend(tb, http.MethodPost, path, body, headers...)
}

// AdminSend sends any method to the admin listener. Each load replaces that
// listener, and a connection that was on its way to the old one is reset; then
// the request is sent once more.
func (c *Caddy) AdminSend(tb testing.TB, method, path, body string, headers ...string) *Answer {
	tb.Helper()
	cl := c.adminClient()
	for try := 1; ; try++ {
		a := cl.Send(cl.Request(tb.Context(), tb, method, path, body, headers...))
		if try == 3 || !errors.Is(a.Err, syscall.ECONNRESET) && !errors.Is(a.Err, io.EOF) || a.Status != 0 {
			return a
		}
	}
}

// Metrics are the samples of one scrape, by name and labels: name{a="b",c="d"},
// the labels in order of their names.
type Metrics map[string]float64

// Metrics scrapes the admin listener.
func (c *Caddy) Metrics(tb testing.TB) Metrics {
	tb.Helper()
	m, err := c.scrape(tb)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func (c *Caddy) scrape(tb testing.TB) (Metrics, error) {
	tb.Helper()
	return scrape(c.AdminGet(tb, "/metrics"))
}

func scrape(a *Answer) (Metrics, error) {
	if a.Err != nil || a.Status != http.StatusOK {
		return nil, fmt.Errorf("scraping the metrics: %v", a)
	}
	return ParseMetrics(string(a.Body))
}

// Get returns one sample: labels are names and values in turn, all of them, in
// any order. Absent samples are 0, as Prometheus' counters are before their
// first increment; Has tells.
func (m Metrics) Get(name string, labels ...string) float64 { return m[sampleKey(name, pairs(labels))] }

// Has reports whether there is such a sample.
func (m Metrics) Has(name string, labels ...string) bool {
	_, ok := m[sampleKey(name, pairs(labels))]
	return ok
}

// Sum adds all samples of the name that have at least these labels.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for key := range m {
		if !strings.HasPrefix(key, name) {
			continue // most are other metrics
		}
		if n, have, err := parseSample(key); err == nil && n == name && subset(pairs(labels), have) {
			sum += m[key]
		}
	}
	return sum
}

// WaitMetrics scrapes until cond is true and returns that scrape. what completes
// "timed out waiting for …".
func (c *Caddy) WaitMetrics(tb testing.TB, what string, cond func(Metrics) bool) Metrics {
	tb.Helper()
	var m Metrics
	var err error
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m, err = c.scrape(tb); err == nil && cond(m) {
			return m
		}
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		if strings.HasPrefix(k, "calinix_") || strings.HasPrefix(k, "caddy_http_") {
			keys = append(keys, fmt.Sprintf("  %s %v", k, m[k]))
		}
	}
	sort.Strings(keys)
	tb.Fatalf("timed out after %v waiting for %s (%v); the metrics are\n%s", Patience, what, err, strings.Join(keys, "\n"))
	return nil
}

// WaitMetric waits until the sum of the samples with these labels is want. Note
// that absent samples count as 0.
func (c *Caddy) WaitMetric(tb testing.TB, want float64, name string, labels ...string) Metrics {
	tb.Helper()
	what := fmt.Sprintf("%s to be %v", sampleKey(name, pairs(labels)), want)
	return c.WaitMetrics(tb, what, func(m Metrics) bool { return m.Sum(name, labels...) == want })
}

// ParseMetrics reads the Prometheus text format. Comments are skipped, time
// stamps ignored.
func ParseMetrics(text string) (Metrics, error) {
	m := Metrics{}
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		// the labels end at the last brace, for numbers hold none
		end := strings.LastIndexByte(line, '}') + 1
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		fields := []string(nil)
		if end > 0 {
			fields = strings.Fields(line[end:])
		}
		if len(fields) == 0 {
			return nil, fmt.Errorf("metrics, line %d: no value in %q", n+1, line)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics, line %d: %w", n+1, err)
		}
		name, labels, err := parseSample(line[:end])
		if err != nil {
			return nil, fmt.Errorf("metrics, line %d: %w", n+1, err)
		}
		m[sampleKey(name, labels)] = v
	}
	return m, nil
}

// parseSample reads name{a="b",…}; values are unquoted.
func parseSample(s string) (name string, labels [][2]string, err error) {
	name, rest, ok := strings.Cut(s, "{")
	if !ok {
		return s, nil, nil
	}
	for rest != "" && rest[0] != '}' {
		label, after, ok := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if !ok || err != nil {
			return "", nil, fmt.Errorf("labels of %q: want name=\"value\" at %q", s, rest)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return "", nil, fmt.Errorf("labels of %q: %w", s, err)
		}
		labels = append(labels, [2]string{label, value})
		rest = strings.TrimPrefix(after[len(quoted):], ",")
	}
	return name, labels, nil
}

// sampleKey is the key of a sample in Metrics.
func sampleKey(name string, labels [][2]string) string {
	if len(labels) == 0 {
		return name
	}
	sort.Slice(labels, func(i, j int) bool { return labels[i][0] < labels[j][0] })
	parts := make([]string, len(labels))
	for k, l := range labels {
		parts[k] = l[0] + "=" + strconv.Quote(l[1])
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

func pairs(labels []string) [][2]string {
	p := make([][2]string, 0, len(labels)/2)
	for k := 0; k+1 < len(labels); k += 2 {
		p = append(p, [2]string{labels[k], labels[k+1]})
	}
	return p
}

// subset reports whether all of the labels are among have.
func subset(labels, have [][2]string) bool {
	for _, l := range labels {
		found := false
		for _, h := range have {
			found = found || h == l
		}
		if !found {
			return false
		}
	}
	return true
}
