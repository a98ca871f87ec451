package testcaddy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// The real binary, from its start over a request to its end.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary")
	}
	dir, port, admin := t.TempDir(), testcaddy.Port(t), testcaddy.Port(t)
	file := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf("{\n\tadmin localhost:%d\n\tpersist_config off\n}\nhttp://localhost:%d {\n\trespond \"{env.TESTCADDY_WORD}\"\n}\n", admin, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testcaddy.StartProcess(t, testcaddy.ProcessOptions{
		Args: []string{"run", "--config", "Caddyfile"}, Dir: dir, Env: []string{"TESTCADDY_WORD=hello"},
	})
	url := fmt.Sprintf("http://localhost:%d", port)
	p.WaitReady(t, url)
	p.WaitOutput(t, "serving initial configuration")
	if a := testcaddy.NewClient(t, testcaddy.H1, url).Get(t, "/"); string(a.Body) != "hello" {
		t.Error(a)
	}
	if !p.Running() || p.PID() <= 0 {
		t.Errorf("running %v, pid %d", p.Running(), p.PID())
	}
	if m := p.Memory(); m != -1 && m < 10<<20 {
		t.Errorf("resident memory of %d bytes", m)
	}
	if code := p.Stop(t); code != 0 {
		t.Errorf("exit status %d:\n%s", code, p.Output())
	}
	if p.Running() {
		t.Error("it runs after its end")
	}
	if out, code := testcaddy.RunProcess(t, testcaddy.ProcessOptions{Args: []string{"version"}}); code != 0 || !strings.Contains(out, "v2.") && !strings.Contains(out, "(devel)") {
		t.Errorf("status %d, %q", code, out)
	}
	if _, code := testcaddy.RunProcess(t, testcaddy.ProcessOptions{Args: []string{"nonsense"}}); code == 0 {
		t.Error("nonsense succeeded")
	}
}

// A child that ends, hangs or is killed is told apart.
func TestProcessEnds(t *testing.T) {
	sh := func(tb testing.TB, script string) *testcaddy.Process {
		return testcaddy.StartProcess(tb, testcaddy.ProcessOptions{Path: "/bin/sh", Args: []string{"-c", script}})
	}
	if code := sh(t, "exit 7").WaitExit(t, testcaddy.Patience); code != 7 {
		t.Errorf("exit status %d, want 7", code)
	}
	p := sh(t, "echo up; exec sleep 60")
	p.WaitOutput(t, "up")
	p.Signal(t, syscall.SIGKILL)
	if code := p.WaitExit(t, testcaddy.Patience); code != -1 {
		t.Errorf("exit status %d of a killed process, want -1", code)
	}
	if f := record(t, func(tb testing.TB) { sh(tb, "echo last words").WaitOutput(tb, "never") }); !strings.Contains(f, "last words") || !strings.Contains(f, "the process ended") {
		t.Errorf("%q", f)
	}
	impatient(t)
	if f := record(t, func(tb testing.TB) { sh(tb, "exec sleep 60").WaitOutput(tb, "never") }); !strings.Contains(f, "timed out") {
		t.Errorf("%q", f)
	}
	if f := record(t, func(tb testing.TB) { sh(tb, "exec sleep 60").WaitExit(tb, testcaddy.Patience) }); !strings.Contains(f, "runs still") {
		t.Errorf("%q", f)
	}
	if f := record(t, func(tb testing.TB) {
		testcaddy.StartProcess(tb, testcaddy.ProcessOptions{Path: "/does/not/exist"})
	}); !strings.Contains(f, "starting /does/not/exist") {
		t.Errorf("%q", f)
	}
}
