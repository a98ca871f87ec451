package calinix_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func init() {
	caddy.RegisterModule(gateKeeper{})
	httpcaddyfile.RegisterHandlerDirective("gate", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) { return gateKeeper{}, nil })
	httpcaddyfile.RegisterDirectiveOrder("gate", httpcaddyfile.Before, "header")
}

// gate holds a request at a place that has no other door: before Calinix begins
// with it, or when a leg is about to be sent. It opens when the request's client
// has left.
type gate struct {
	place   int32 // entered, 0: before Calinix; n: before its n-th leg is sent
	arrived chan struct{}
	opened  chan time.Time // gets when the client's leaving was noticed
}

// entered is a gate that holds nobody: it tells that a request has come.
const entered = -1

// theGate is the one at which requests stop, nil for none.
var theGate atomic.Pointer[gate]

// newGate makes the next request stop at the place. Only that one does.
func newGate(t testing.TB, place int32) *gate {
	t.Helper()
	g := &gate{place: place, arrived: make(chan struct{}), opened: make(chan time.Time, 1)}
	theGate.Store(g)
	t.Cleanup(func() { theGate.CompareAndSwap(g, nil) })
	return g
}

// wait waits until the request has arrived.
func (g *gate) wait(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrived:
	case <-time.After(testcaddy.Patience):
		t.Fatal("no request has come to the gate")
	}
}

// noticed waits until the request's context has ended and returns when it had.
func (g *gate) noticed(t testing.TB) time.Time {
	t.Helper()
	select {
	case at := <-g.opened:
		return at
	case <-time.After(testcaddy.Patience):
		t.Fatal("the request that is held does not notice that its client has left")
		return time.Time{}
	}
}

// pass lets a request through, or holds it if this is the place, until left ends.
func (g *gate) pass(left context.Context, place int32) {
	if g == nil || g.place != place || !theGate.CompareAndSwap(g, nil) {
		return
	}
	close(g.arrived)
	if place == entered {
		return
	}
	<-left.Done()
	g.opened <- time.Now()
}

// gateKeeper is the handler gate. The placeholder {gate.leg}, in a header_up of
// the calinix directive, is asked for when a leg is about to be sent.
type gateKeeper struct{}

// CaddyModule tells Caddy of the module.
func (gateKeeper) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.gate", New: func() caddy.Module { return new(gateKeeper) }}
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (gateKeeper) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	left := r.Context()
	g := theGate.Load()
	g.pass(left, entered)
	if g != nil && g.place == 0 {
		// Only when the body has been read do HTTP/1 servers watch for the
		// client's leaving; a handler before ours may have read it.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.pass(left, 0)
	}
	end := func() {}
	if g != nil && g.place > 0 {
		// A context is done before those are that come of it, of which each leg has one:
		// what the gate lets through is to find its own ended.
		var ctx context.Context
		ctx, end = context.WithCancel(context.WithoutCancel(left))
		defer end()
		defer context.AfterFunc(left, end)()
		r = r.WithContext(ctx)
	}
	legs := int32(0)
	r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(func(key string) (any, bool) {
		if key != "gate.leg" {
			return nil, false
		}
		legs++
		if theGate.Load().pass(left, legs); left.Err() != nil {
			end()
		}
		return legs, true
	})
	return next.ServeHTTP(w, r)
}
