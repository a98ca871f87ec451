package kubernetes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// gate is a way to the API server that can be shut for one kind of object.
type gate struct {
	url string

	mu      sync.Mutex
	shut    string                   // the kind, such as pods; "" for none
	running map[*http.Request]func() // ends each, by what was asked
}

// newGate opens a way to the cluster's API server.
func newGate(t *testing.T, c *cluster) *gate {
	t.Helper()
	server, err := url.Parse(c.Config().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(c.Config())
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1,
	}
	g := &gate{running: map[*http.Request]func(){}}
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

func isFor(r *http.Request, kind string) bool { return strings.HasSuffix(r.URL.Path, "/"+kind) }

func (g *gate) enter(r *http.Request, end func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != "" && isFor(r, g.shut) {
		return false
	}
	g.running[r] = end
	return true
}

func (g *gate) leave(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, r)
}

// close ends what runs for a kind of object, and refuses it from now on.
func (g *gate) close(kind string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = kind
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
	g.shut = ""
}

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
