package testcaddy

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

// Patience is how long the harness waits for something before it ends the
// test. It only matters for tests that fail.
var Patience = 10 * time.Second

// Caddy is the Caddy that runs in this process. There can be only one at a
// time, so tests that load one must not be parallel.
type Caddy struct {
	// URL is scheme, host and port of Serve's site; "" after Load.
	URL string
	// AdminURL is scheme, host and port of the admin listener.
	AdminURL string
	// Log is what it has logged since it was loaded, over all reloads.
	Log *Log

	port  int // of Serve's site
	plain bool

	adminAddr string // unless the configuration names one
	admin     *http.Client
	key       string
	opts      []Option
	done      atomic.Bool
}

// current is the running Caddy.
var current atomic.Pointer[Caddy]

// keys numbers the logs.
var keys atomic.Int64

// Port returns a port that stays this test's for its length, free for TCP and
// UDP.
func Port(tb testing.TB) int {
	tb.Helper()
	return freeport.Get(tb)
}

// Load adapts the text (a Caddyfile, unless Adapter says otherwise) and runs it
// for the length of the test. When it returns, all listeners accept, but
// certificates may still be on their way: see WaitTLS.
func Load(tb testing.TB, text string, opts ...Option) *Caddy {
	tb.Helper()
	c, err := load(tb, text, opts)
	if err != nil {
		tb.Fatalf("loading a configuration: %v", err)
	}
	return c
}

// LoadError loads a configuration that must be refused and returns the error.
// Nothing runs afterwards.
func LoadError(tb testing.TB, text string, opts ...Option) error {
	tb.Helper()
	c, err := load(tb, text, opts)
	if err == nil {
		c.Stop()
		tb.Fatalf("the configuration was loaded, want an error:\n%s", text)
	}
	return err
}

// Serve runs one site with the given body (directives of a Caddyfile) for the
// length of the test: over TLS with HTTP/1.1, HTTP/2 and HTTP/3, or, with Plain,
// over plain HTTP/1.1. It answers whatever the Host.
func Serve(tb testing.TB, body string, opts ...Option) *Caddy {
	tb.Helper()
	o := apply(opts)
	port := Port(tb)
	c, err := load(tb, o.site(port, body), opts)
	if err != nil {
		tb.Fatalf("loading a site: %v", err)
	}
	c.port, c.URL = port, "https://localhost:"+strconv.Itoa(port)
	if o.plain {
		c.URL = "http://localhost:" + strconv.Itoa(port)
	}
	return c
}

func load(tb testing.TB, text string, opts []Option) (*Caddy, error) {
	tb.Helper()
	if home == "" {
		tb.Fatal("this package has no TestMain that calls testcaddy.Main")
	}
	o := apply(opts)
	c := &Caddy{
		plain: o.plain, opts: opts, Log: &Log{}, key: strconv.FormatInt(keys.Add(1), 10),
		adminAddr: "localhost:" + strconv.Itoa(Port(tb)),
	}
	if !current.CompareAndSwap(nil, c) {
		tb.Fatal("a Caddy runs already in this process: there can be only one, and tests with one cannot be parallel")
	}
	logs.Store(c.key, c.Log)
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true} // coding the metrics costs more than sending them
	c.admin = &http.Client{Transport: tr, Timeout: Patience}
	config, err := c.prepare(text, opts)
	if err == nil {
		err = caddy.Load(config, true)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	tb.Cleanup(func() {
		c.Stop()
		if tb.Failed() {
			tb.Logf("the end of Caddy's log, without DEBUG and access:\n%s", c.Log.tail(60))
		}
	})
	return c, nil
}

// prepare makes the JSON to load.
func (c *Caddy) prepare(text string, opts []Option) ([]byte, error) {
	o := apply(opts)
	config, _, err := Adapt(text, opts...)
	if err != nil || o.asIs {
		return config, err
	}
	config, addr, err := harden(config, &o, c.adminAddr, c.key)
	c.AdminURL = "http://" + addr
	return config, err
}

// Reload replaces the configuration of a Caddy that Load started. Options are
// those of Load unless new ones are given.
func (c *Caddy) Reload(tb testing.TB, text string, opts ...Option) {
	tb.Helper()
	if err := c.TryReload(text, opts...); err != nil {
		tb.Fatalf("reloading: %v", err)
	}
}

// TryReload is Reload for configurations that may be refused.
func (c *Caddy) TryReload(text string, opts ...Option) error {
	if c.done.Load() {
		return errors.New("reloading a stopped Caddy")
	}
	if opts == nil {
		opts = c.opts
	}
	config, err := c.prepare(text, opts)
	if err != nil {
		return err
	}
	if c.port == 0 {
		return caddy.Load(config, true)
	}
	wait, err := c.Handover()
	if err != nil {
		return err
	}
	return wait(caddy.Load(config, true))
}

// ReloadSite replaces the body of Serve's site; it stays on its port.
func (c *Caddy) ReloadSite(tb testing.TB, body string, opts ...Option) {
	tb.Helper()
	if err := c.TryReloadSite(body, opts...); err != nil {
		tb.Fatalf("reloading a site: %v", err)
	}
}

// TryReloadSite is ReloadSite for bodies that may be refused.
func (c *Caddy) TryReloadSite(body string, opts ...Option) error {
	if opts == nil {
		opts = c.opts
	}
	if c.port == 0 {
		return errors.New("reloading a site that Serve did not start")
	}
	o := apply(opts)
	return c.TryReload(o.site(c.port, body), opts...)
}

// Stop ends Caddy, the admin listener included. It is called by itself at the
// end of the test; calling it earlier, or twice, is fine. Connections that are
// busy get two seconds.
func (c *Caddy) Stop() {
	if !c.done.CompareAndSwap(false, true) {
		return
	}
	// caddy.Stop leaves the admin listener open; only another configuration ends it
	_ = caddy.Load(stopped(c.key), true)
	_ = caddy.Stop()
	logs.Delete(c.key)
	current.CompareAndSwap(c, nil)
}
