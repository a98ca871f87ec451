package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calinix/caddy-calinix/config"
)

// accountVariable makes the test binary the program of a pod. It names the directory
// that a pod finds at podAccount, which is no path that a test could write to.
const accountVariable = "CALINIX_TEST_ACCOUNT"

// pod is that program. It runs the source that its input begins with until the input
// ends, and writes what the source reports.
func pod(account string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, in := &Source{account: account}, json.NewDecoder(os.Stdin)
	if err := in.Decode(s); err != nil {
		return fail(err)
	}
	ctx, stop := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer stop()
	if err := s.Provision(ctx); err != nil {
		return fail(err)
	}
	watching, end := context.WithCancel(context.Background())
	go func() {
		defer end()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	s.Watch(watching, writer{json.NewEncoder(os.Stdout)})
	return 0
}

// told is a report, as a pod writes it.
type told struct{ Pods, Fault *string }

// writer is a sink that writes what it is told.
type writer struct{ *json.Encoder }

// Found implements discovery.Sink.
func (w writer) Found(pods []config.Pod) { _ = w.Encode(told{Pods: new(textOf(pods))}) }

// Failing implements discovery.Sink.
func (w writer) Failing(err error) { _ = w.Encode(told{Fault: new(faultOf(err))}) }

// inPod runs a source for the length of the test in a process that has nothing but
// what a pod of the service account calinix has: its token, and where the API server
// is.
func (c *cluster) inPod(t *testing.T, s *Source, environment ...string) *reports {
	t.Helper()
	server, err := url.Parse(c.Config().Host)
	require.NoError(t, err)
	account := t.TempDir()
	for name, data := range map[string][]byte{
		"token": []byte(c.token(t)), "ca.crt": c.Config().CAData, "namespace": []byte(c.namespace),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(account, name), data, 0o600))
	}
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environment, accountVariable+"="+account, "HOME="+cmd.Dir,
		"KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r, read := newReports(), make(chan struct{})
	go func() {
		defer close(read)
		for reports := json.NewDecoder(out); ; {
			var next told
			if reports.Decode(&next) != nil {
				return
			}
			if next.Pods != nil {
				r.found(*next.Pods)
			}
			if next.Fault != nil {
				r.failing(*next.Fault)
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		late := time.AfterFunc(endsWithin, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		<-read
		assert.NoError(t, cmd.Wait(), "how the pod's program ended")
		if t.Failed() {
			t.Logf("what it logged:\n%s", &log)
		}
	})
	require.NoError(t, json.NewEncoder(in).Encode(s))
	return r
}

// token asks for one of the service account calinix.
func (c *cluster) token(t *testing.T) string {
	t.Helper()
	token, err := c.Admin.CoreV1().ServiceAccounts(c.namespace).CreateToken(t.Context(), "calinix", &authv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}
