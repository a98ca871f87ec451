package testcaddy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func init() { caddy.RegisterModule(logWriter{}) }

// Log is everything that one Caddy has logged, at the level DEBUG unless the
// test chose another. A line is decoded when a test first looks at it, for most
// are never looked at.
type Log struct {
	mu      sync.Mutex
	entries []Entry       // what a test was given is not written to any more: it is decoded
	changed chan struct{} // closed and replaced at every line
}

// Entry is one line of the log.
type Entry struct {
	Level  string // debug, info, warn, error, …
	Logger string // such as http.handlers.calinix
	Msg    string
	Fields map[string]any // all of the line, the above included
	Line   string         // as written

	decoded bool
}

// decode fills in the fields from the line.
func (e *Entry) decode() {
	if e.decoded {
		return
	}
	e.decoded = true
	if json.Unmarshal([]byte(e.Line), &e.Fields) != nil {
		return
	}
	e.Level, _ = e.Fields["level"].(string)
	e.Logger, _ = e.Fields["logger"].(string)
	e.Msg, _ = e.Fields["msg"].(string)
}

// Has reports whether the field's value, printed, is want.
func (e *Entry) Has(field, want string) bool {
	v, ok := e.Fields[field]
	return ok && fmt.Sprint(v) == want
}

// Entries returns the log so far.
func (l *Log) Entries() []Entry {
	entries, _ := l.since(0)
	return entries
}

// since returns the entries behind the mark, and a channel that is closed when
// there are more.
func (l *Log) since(mark int) (entries []Entry, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark = min(mark, len(l.entries))
	for k := mark; k < len(l.entries); k++ {
		l.entries[k].decode()
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.entries[mark:len(l.entries):len(l.entries)], l.changed
}

// Mark returns a place in the log: how many entries it has now.
func (l *Log) Mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Find returns the entries for which match is true.
func (l *Log) Find(match func(Entry) bool) []Entry {
	var found []Entry
	for _, e := range l.Entries() {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

// Access returns the entries of the access log (a site needs the directive log).
func (l *Log) Access() []Entry {
	return l.Find(func(e Entry) bool { return strings.HasPrefix(e.Logger, "http.log.access") })
}

// Text returns the log as written, one entry a line.
func (l *Log) Text() string {
	var b strings.Builder
	for _, e := range l.Entries() {
		b.WriteString(e.Line + "\n")
	}
	return b.String()
}

// Wait waits for an entry at or behind the mark for which match is true and
// returns it. what completes "timed out waiting for … in the log".
func (l *Log) Wait(tb testing.TB, mark int, what string, match func(Entry) bool) Entry {
	tb.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	for {
		entries, changed := l.since(mark)
		for _, e := range entries {
			if match(e) {
				return e
			}
		}
		mark += len(entries)
		select {
		case <-changed:
		case <-timeout.C:
			tb.Fatalf("timed out after %v waiting for %s in the log:\n%s", Patience, what, l.tail(60))
		}
	}
}

// AssertAbsent fails the test if any of the secrets stands anywhere in the log,
// be it in a value's JSON coding.
func (l *Log) AssertAbsent(tb testing.TB, secrets ...string) {
	tb.Helper()
	for _, secret := range secrets {
		coded, err := json.Marshal(secret)
		if secret == "" || err != nil {
			tb.Fatalf("%q cannot be looked for", secret)
		}
		inner := string(coded[1 : len(coded)-1])
		for _, e := range l.Entries() {
			if strings.Contains(e.Line, secret) || strings.Contains(e.Line, inner) {
				tb.Errorf("%q is in the log: %s", secret, e.Line)
				break
			}
		}
	}
}

// tail returns the last n lines above DEBUG, without the access log and without
// the ends of long lines.
func (l *Log) tail(n int) string {
	lines := l.Find(func(e Entry) bool { return e.Level != "debug" && !strings.HasPrefix(e.Logger, "http.log.access") })
	lines = lines[max(0, len(lines)-n):]
	var b strings.Builder
	for _, e := range lines {
		b.WriteString("  " + shortened(e.Line, 500) + "\n")
	}
	return b.String()
}

func shortened(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// Write takes one or more lines from Caddy.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.SplitSeq(bytes.TrimSuffix(p, []byte("\n")), []byte("\n")) {
		l.entries = append(l.entries, Entry{Line: string(line)})
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return len(p), nil
}

// logs finds the Log of a log writer in a configuration, by key.
var logs sync.Map // string → *Log

// logWriter is the log writer module: {"output": "testcaddy", "key": …}.
type logWriter struct {
	Key string `json:"key"`
}

// CaddyModule tells Caddy of the module.
func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.testcaddy", New: func() caddy.Module { return new(logWriter) }}
}

func (w logWriter) String() string { return "testcaddy " + w.Key }

// WriterKey makes configurations of one Caddy share its log.
func (w logWriter) WriterKey() string { return "testcaddy/" + w.Key }

// OpenWriter finds the log.
func (w logWriter) OpenWriter() (io.WriteCloser, error) {
	l, ok := logs.Load(w.Key)
	if !ok {
		return nil, fmt.Errorf("no test has a log %q", w.Key)
	}
	return nopCloser{l.(*Log)}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

var (
	_ caddy.Module       = logWriter{}
	_ caddy.WriterOpener = logWriter{}
)
