package churn

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/calinix/caddy-calinix/enginesim"
)

// engine is a simulated engine in a pod of its own: an address, as it is shown, with
// the port that all of them have.
type engine struct {
	name, address string
	server        *http.Server
	sim           *enginesim.Engine
	running       atomic.Int64 // requests, but for probes
}

// engines makes them.
type engines struct {
	port int

	mu    sync.Mutex
	n     int
	peers *enginesim.Peers
}

func newEngines(t *testing.T) *engines {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.1.1:0")
	require.NoError(t, err)
	defer l.Close()
	return &engines{port: l.Addr().(*net.TCPAddr).Port, peers: enginesim.NewPeers()}
}

// start runs one that has no predecessor at its address, and serves these models
// only, if any are named.
func (es *engines) start(t *testing.T, models ...string) *engine {
	t.Helper()
	es.mu.Lock()
	es.n++
	e := &engine{name: fmt.Sprintf("engine-%d", es.n), address: fmt.Sprintf("%s%d", shownNet, es.n)}
	at := fmt.Sprintf("%s%d:%d", actualNet, es.n, es.port)
	es.mu.Unlock()
	var err error
	e.sim, err = enginesim.New(enginesim.Settings{Name: e.name, Models: models, DecodeTokensPerSecond: 20, PrefillTokensPerSecond: 1e6, OutputTokens: 6}, enginesim.SystemClock(), es.peers)
	require.NoError(t, err)
	l, err := net.Listen("tcp", at)
	require.NoError(t, err)
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { _ = e.server.Serve(l) }()
	t.Cleanup(e.kill)
	return e
}

// ServeHTTP implements [http.Handler].
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		e.running.Add(1)
		defer e.running.Add(-1)
	}
	e.sim.ServeHTTP(w, r)
}

// terminate is what an engine does that was told to: it takes no new connections
// and ends when its streams have.
func (e *engine) terminate(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.server.Shutdown(ctx); err != nil {
		t.Errorf("%s, which terminates, still has %d streams: %v", e.name, e.running.Load(), err)
	}
}

func (e *engine) kill() {
	_ = e.server.Close()
	e.sim.Close()
}
