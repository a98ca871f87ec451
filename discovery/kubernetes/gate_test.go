package kubernetes

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// gate is a way to the API server that can be shut for one kind of object.
type gate struct {
	url  string
	gone atomic.Bool // an answer has said that what was asked for is too old

	mu      sync.Mutex
	shut    string                   // the kind, such as pods; "" for none
	opened  chan struct{}            // requests wait until it is closed; nil: they are refused
	running map[*http.Request]func() // what ends each
}

// newGate opens a way to the cluster's API server.
func newGate(t *testing.T, c *cluster) *gate {
	t.Helper()
	server, err := url.Parse(c.Config().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(c.Config())
	require.NoError(t, err)
	g := &gate{running: map[*http.Request]func(){}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			resp.Body = &spied{resp.Body, &g.gone}
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		if !g.enter(r, end) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer g.leave(r)
		proxy.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	g.url = s.URL
	return g
}

// spied is the body of an answer.
type spied struct {
	io.ReadCloser
	gone *atomic.Bool
}

// Read implements [io.Reader].
func (s *spied) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte("too old resource version")) {
		s.gone.Store(true)
	}
	return n, err
}

func isFor(r *http.Request, kind string) bool { return strings.HasSuffix(r.URL.Path, "/"+kind) }

// enter lets a request in, or not.
func (g *gate) enter(r *http.Request, end func()) bool {
	for {
		g.mu.Lock()
		if g.shut == "" || !isFor(r, g.shut) {
			g.running[r] = end
			g.mu.Unlock()
			return true
		}
		opened := g.opened
		g.mu.Unlock()
		if opened == nil {
			return false
		}
		select {
		case <-opened:
		case <-r.Context().Done():
			return false
		}
	}
}

func (g *gate) leave(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, r)
}

// close ends what runs for a kind of object, and refuses it from now on.
func (g *gate) close(kind string) { g.shutFor(kind, nil) }

// hold ends what runs for a kind of object, and lets it wait from now on.
func (g *gate) hold(kind string) { g.shutFor(kind, make(chan struct{})) }

func (g *gate) shutFor(kind string, opened chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.opened = kind, opened
	for r, end := range g.running {
		if isFor(r, kind) {
			end()
		}
	}
}

// open lets everything through again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
	}
	g.shut, g.opened = "", nil
}

// sawGone tells whether the server has said that a version is too old.
func (g *gate) sawGone() bool { return g.gone.Load() }

// kubeconfig is the administrator's, by way of the gate.
func (g *gate) kubeconfig(t *testing.T, c *cluster) string {
	t.Helper()
	file := c.Kubeconfig(t, "", c.namespace)
	config, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	for _, at := range config.Clusters {
		at.Server, at.CertificateAuthorityData = g.url, nil
	}
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}
