package file

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/calinix/caddy-calinix/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const onePod = "pods:\n  - {id: a, url: \"http://a:1\", zone: z}\n"

// reports is a sink that hands on everything but errors that repeat themselves.
type reports struct {
	ctx   context.Context
	fault string
	pods  chan []config.Pod
	errs  chan string
}

func (r *reports) Found(pods []config.Pod) {
	select {
	case r.pods <- pods:
	case <-r.ctx.Done():
	}
}

func (r *reports) Failing(err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault == r.fault {
		return
	}
	if r.fault = fault; fault == "" {
		return
	}
	select {
	case r.errs <- r.fault:
	case <-r.ctx.Done():
	}
}

func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatal("no report")
	}
	return v
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.yaml")
	s := &Source{Path: path}
	require.NoError(t, s.Provision(caddy.Context{}))
	ctx, cancel := context.WithCancel(t.Context())
	r, ended := &reports{ctx: ctx, pods: make(chan []config.Pod), errs: make(chan string)}, make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, r)
	}()
	defer func() { cancel(); <-ended }()

	assert.Contains(t, next(t, r.errs), "no such file")
	require.NoError(t, os.WriteFile(path, []byte(onePod), 0o600))
	assert.Equal(t, []config.Pod{{ID: "a", URL: "http://a:1", Zone: "z"}}, next(t, r.pods))

	// A fault is named with its line.
	replace(t, path, "pods:\n  - {id: a, url: \"ftp://a\"}\n")
	assert.Contains(t, next(t, r.errs), `pods.yaml:2: pods[0] ("a"): url "ftp://a": unknown scheme`)
	replace(t, path, "pods: []\n")
	assert.Empty(t, next(t, r.pods))
}

// replace puts another file in the place of one, as editors and Kubernetes do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestCaddyfile(t *testing.T) {
	var s Source
	require.NoError(t, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser("file /etc/pods.yaml")))
	assert.Equal(t, "/etc/pods.yaml", s.Path)
	for _, bad := range []string{"file", "file a b", "file a {\n x\n}"} {
		assert.Error(t, new(Source).UnmarshalCaddyfile(caddyfile.NewTestDispenser(bad)), bad)
	}
}
