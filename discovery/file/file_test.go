package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/calinix/caddy-calinix/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const onePod = "pods:\n  - {id: a, url: \"http://a:1\", zone: z}\n"

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods.yaml")
	core, logs := observer.New(zap.ErrorLevel)
	s := &Source{Path: path, logger: zap.New(core)}
	ctx, cancel := context.WithCancel(t.Context())
	reports, ended := make(chan []config.Pod), make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(pods []config.Pod) {
			select {
			case reports <- pods:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-ended }()
	next := func() []config.Pod {
		t.Helper()
		select {
		case pods := <-reports:
			return pods
		case <-time.After(20 * time.Second):
			t.Fatal("no report")
			return nil
		}
	}
	logged := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, e := range logs.All() {
				if cause, ok := e.ContextMap()["error"].(string); ok && strings.Contains(cause, text) {
					return true
				}
			}
			return false
		}, 20*time.Second, time.Millisecond, text)
	}

	logged("no such file")
	require.NoError(t, os.WriteFile(path, []byte(onePod), 0o600))
	assert.Equal(t, []config.Pod{{ID: "a", URL: "http://a:1", Zone: "z"}}, next())

	// A fault is named with its line, and nothing is reported for it.
	require.NoError(t, os.WriteFile(path, []byte("pods:\n  - {id: a, url: \"ftp://a\"}\n"), 0o600))
	logged(`pods.yaml:2: pods[0] ("a"): url "ftp://a": unknown scheme`)

	// Replaced by a rename, as editors and Kubernetes do.
	other := filepath.Join(dir, "new")
	require.NoError(t, os.WriteFile(other, []byte("pods: []\n"), 0o600))
	require.NoError(t, os.Rename(other, path))
	assert.Empty(t, next())
}

func TestCaddyfile(t *testing.T) {
	var s Source
	require.NoError(t, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser("file /etc/pods.yaml")))
	assert.Equal(t, "/etc/pods.yaml", s.Path)
	for _, bad := range []string{"file", "file a b", "file a {\n x\n}"} {
		assert.Error(t, new(Source).UnmarshalCaddyfile(caddyfile.NewTestDispenser(bad)), bad)
	}
}
