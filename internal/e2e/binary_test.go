package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// command runs the real binary to its end.
func command(t *testing.T, dir string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testcaddy.Binary(t), args...)
	cmd.Dir = dir
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home, "CADDY_ADMIN=off")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s %q: %v", cmd.Path, args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// yamlFile is a config.yaml with these pods.
func yamlFile(port int, urls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\ngateway:\n  port: %d\nupstreams:\n  single:\n    mode: single\n    pods:\n", port)
	for k, url := range urls {
		fmt.Fprintf(&b, "      - id: pod-%d\n        url: %s\n", k+1, url)
	}
	return b.String()
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestValidate: exit status and where the message goes.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	good := yamlFile(8080, "http://127.0.0.1:8001")
	write(t, dir, "config.yaml", good)
	write(t, dir, "other.yaml", good)
	write(t, dir, "bad.yaml", strings.Replace(good, "http://127", "htp://127", 1))
	write(t, dir, "broken.yaml", good+"\t- tab\n")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		dir    string
		status int
		stdout string
		stderr string
	}{
		{[]string{"validate"}, "", 0, "Valid configuration", ""},
		{[]string{"validate", "other.yaml"}, "", 0, "Valid configuration", ""},
		{[]string{"validate", "bad.yaml"}, "", 1, "", `bad.yaml:9: upstreams.single.pods[0] (\"pod-1\"): url \"htp://127.0.0.1:8001\"`},
		{[]string{"validate", "broken.yaml"}, "", 1, "", "broken.yaml:9: not valid YAML"},
		{[]string{"validate", "absent.yaml"}, "", 1, "", "absent.yaml"},
		{[]string{"validate"}, "empty", 1, "", "open config.yaml: no such file"},
		{[]string{"validate", "config.yaml", "other.yaml"}, "", 1, "", "accepts at most 1 arg"},
		{[]string{"run", "bad.yaml"}, "", 1, "", "bad.yaml:9: "},
		{[]string{"run"}, "empty", 1, "", "open config.yaml: no such file"},
		{[]string{"start"}, "", 1, "", `unknown command "start"`},
		{nil, "", 0, "validate    Checks config.yaml", ""},
	} {
		t.Run(strings.Join(append(c.args, c.dir), " "), func(t *testing.T) {
			stdout, stderr, status := command(t, filepath.Join(dir, c.dir), append([]string{"calinix"}, c.args...)...)
			if status != c.status || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("status %d, want %d with %q on stdout and %q on stderr\nstdout: %s\nstderr: %s", status, c.status, c.stdout, c.stderr, stdout, stderr)
			}
		})
	}
}

// TestRunCommand: ./config.yaml is served over plain HTTP at gateway.port, on
// every interface, until the process is told to stop.
func TestRunCommand(t *testing.T) {
	_, url := newEngine(t, fastSettings())
	dir, port := t.TempDir(), testcaddy.Port(t)
	write(t, dir, "config.yaml", yamlFile(port, url))
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{
		Args: []string{"calinix", "run"}, Dir: dir, Env: []string{fmt.Sprintf("CADDY_ADMIN=localhost:%d", testcaddy.Port(t))},
	})
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	p.WaitReady(t, base+"/v1/models")
	for _, host := range []string{base, fmt.Sprintf("http://[::1]:%d", port)} {
		a := testcaddy.NewClient(t, testcaddy.H1, host).Post(t, "/v1/chat/completions", streamBody("hello", 5))
		if a.Status != http.StatusOK || header(a.Header, "Target-Pod-Id") != "pod-1" || !bytes.Contains(a.Body, []byte("[DONE]")) {
			t.Errorf("%s: %v", host, a)
		}
	}
	// What runs may come to its end.
	stream := testcaddy.NewClient(t, testcaddy.H1, base).Stream(t, "/v1/chat/completions", streamBody("goodbye", 500))
	stream.Take(t, 5)
	p.Signal(t, syscall.SIGTERM)
	if got, err := hear(stream.Unread()); err != nil || got.tokens != 500 {
		t.Errorf("the stream that ran: %+v, %v", got, err)
	}
	if status := p.WaitExit(t, time.Minute); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
}

// TestReloadCommand: caddy reload changes the configuration of the running
// process, or leaves it alone and says why not; streams go on.
func TestReloadCommand(t *testing.T) {
	_, url := newEngine(t, fastSettings())
	dir, port, admin := t.TempDir(), testcaddy.Port(t), fmt.Sprintf("localhost:%d", testcaddy.Port(t))
	file := func(keys string) string {
		return fmt.Sprintf("{\nadmin %s\n}\nhttp://:%d {\ncalinix {\n%s\nsingle {\npod only %s\n}\n}\n}\n", admin, port, keys, url)
	}
	write(t, dir, "Caddyfile", file(""))
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{Args: []string{"run"}, Dir: dir})
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	p.WaitReady(t, base+"/v1/models")
	policy := func() string {
		a := testcaddy.NewClient(t, testcaddy.H1, base).Post(t, "/v1/chat/completions", streamBody("hello", 5))
		return header(a.Header, "Route-Policy")
	}
	stream := testcaddy.NewClient(t, testcaddy.H1, base).Stream(t, "/v1/chat/completions", streamBody("a long one", 3000))
	stream.Take(t, 5)

	write(t, dir, "Caddyfile", file("strategy by_guess"))
	if _, stderr, status := command(t, dir, "reload"); status != 1 || !strings.Contains(stderr, "by_guess") || !strings.Contains(stderr, "Caddyfile:6") {
		t.Errorf("a bad one: status %d, %s", status, stderr)
	}
	if got := policy(); got != "expectedTTFT" {
		t.Errorf("after a refused reload the policy is %s", got)
	}
	write(t, dir, "Caddyfile", file("strategy least_loaded"))
	if _, stderr, status := command(t, dir, "reload"); status != 0 {
		t.Fatalf("a good one: status %d, %s", status, stderr)
	}
	eventually(t, "the new configuration", func() bool { return policy() == "leastLoaded" })
	if got, err := hear(stream.Unread()); err != nil || got.tokens != 3000 {
		t.Errorf("the stream that ran: %+v, %v", got, err)
	}
}

// TestListModules: a binary of one's own has everything.
func TestListModules(t *testing.T) {
	stdout, stderr, status := command(t, t.TempDir(), "list-modules")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	modules := strings.Fields(stdout)
	for _, want := range []string{
		"http.handlers.calinix", "http.handlers.inference_sim",
		"http.reverse_proxy.selection_policies.cache_aware", "admin.api.calinix", "caddy.adapters.calinix",
	} {
		if !slices.Contains(modules, want) {
			t.Errorf("no module %s among %q", want, modules)
		}
	}
}
