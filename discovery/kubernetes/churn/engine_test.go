package churn

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
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

// start runs one that has no predecessor at its address.
func (es *engines) start(t *testing.T) *engine {
	t.Helper()
	es.mu.Lock()
	es.n++
	e := &engine{name: fmt.Sprintf("engine-%d", es.n), address: fmt.Sprintf("%s%d", shownNet, es.n)}
	at := fmt.Sprintf("%s%d:%d", actualNet, es.n, es.port)
	es.mu.Unlock()
	var err error
	e.sim, err = enginesim.New(enginesim.Settings{Name: e.name, DecodeTokensPerSecond: 100, PrefillTokensPerSecond: 1e6, OutputTokens: 10}, enginesim.SystemClock(), es.peers)
	require.NoError(t, err)
	l, err := net.Listen("tcp", at)
	require.NoError(t, err)
	e.server = &http.Server{Handler: e.sim, ReadHeaderTimeout: time.Minute}
	go func() { _ = e.server.Serve(l) }()
	t.Cleanup(e.kill)
	return e
}

// terminate is what an engine does that was told to: it takes no new connections
// and ends when its streams have.
func (e *engine) terminate() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = e.server.Shutdown(ctx)
}

func (e *engine) kill() {
	_ = e.server.Close()
	e.sim.Close()
}
