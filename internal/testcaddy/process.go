package testcaddy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/cases"
	"github.com/calinix/caddy-calinix/internal/testbin"
)

// built is what building a binary came to, once a test binary.
type built struct {
	once sync.Once
	path string
	err  error
}

var plain, race built

// Binary builds ./cmd/caddy, with the race detector if the test has it, and
// returns the path. The result is kept in .cache/ of the checkout, so that the
// next test binary only checks that it is up to date.
func Binary(tb testing.TB) string {
	tb.Helper()
	if RaceEnabled {
		return race.get(tb, true)
	}
	return PlainBinary(tb)
}

// PlainBinary is Binary without the race detector in any case: for tests of what
// it takes of memory, which the detector multiplies.
func PlainBinary(tb testing.TB) string {
	tb.Helper()
	return plain.get(tb, false)
}

// Build is PlainBinary for programs that are no tests.
func Build() (path string, err error) {
	plain.once.Do(func() { plain.path, plain.err = build(false) })
	return plain.path, plain.err
}

func (b *built) get(tb testing.TB, withRace bool) string {
	tb.Helper()
	b.once.Do(func() { b.path, b.err = build(withRace) })
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.path
}

func build(withRace bool) (string, error) {
	root, err := cases.Root()
	if err != nil {
		return "", fmt.Errorf("building caddy: %w", err)
	}
	name, env := "caddy", os.Environ()
	args := []string{"build"}
	switch {
	case withRace:
		name = "caddy-race"
		args = append(args, "-race")
	case RaceEnabled: // it needs cgo, this does not: so it is built once, as xcaddy builds it
		env = append(env, "CGO_ENABLED=0")
	}
	path := filepath.Join(root, ".cache", "testcaddy", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("building caddy: %w", err)
	}
	unlock, err := testbin.Lock(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("building caddy: %w", err)
	}
	defer unlock()
	cmd := exec.Command("go", append(args, "-o", path, "./cmd/caddy")...)
	cmd.Dir, cmd.Env = root, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building caddy: %w\n%s", err, out)
	}
	return path, nil
}

// ProcessOptions start a child process. All but Args may be left out.
type ProcessOptions struct {
	Args []string
	Dir  string   // an empty one of the test's own
	Env  []string // in addition to this process's environment
	Path string   // Binary(tb)
}

// Process is a child process with a Caddy home of its own.
type Process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done
}

// StartProcess starts the binary. At the end of the test it is killed if it
// still runs; if the test failed, its output is logged.
func StartProcess(tb testing.TB, o ProcessOptions) *Process {
	tb.Helper()
	if o.Path == "" {
		o.Path = Binary(tb)
	}
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	p := &Process{cmd: exec.Command(o.Path, o.Args...), done: make(chan struct{})}
	p.cmd.Dir = o.Dir
	p.cmd.Env = os.Environ()
	for name, value := range homeEnv(tb.TempDir()) {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Env = append(p.cmd.Env, o.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = 5 * time.Second // grandchildren may hold the pipes
	started := make(chan error)
	go func() {
		// the child dies with the thread that started it (see dieWithUs), so
		// that thread must not be given back while it runs
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithUs(p.cmd)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		tb.Fatalf("starting %s %q: %v", o.Path, o.Args, err)
	}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("the end of the output of %s %q:\n%s", filepath.Base(o.Path), o.Args, p.out.tail(100))
		}
	})
	return p
}

// RunProcess runs the binary to its end and returns all that it wrote and its
// exit status.
func RunProcess(tb testing.TB, o ProcessOptions) (out string, code int) {
	tb.Helper()
	p := StartProcess(tb, o)
	code = p.WaitExit(tb, time.Minute)
	return p.Output(), code
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is what the process has written so far, both streams.
func (p *Process) Output() string { return p.out.String() }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// WaitOutput waits until the output holds a text. The process's end before that
// ends the test.
func (p *Process) WaitOutput(tb testing.TB, text string) {
	tb.Helper()
	p.wait(tb, fmt.Sprintf("%q in the output", text), 5*Patience, func() bool { return strings.Contains(p.Output(), text) })
}

// WaitReady waits until a GET of the URL answers with any status below 500, over
// HTTP, or over HTTPS whose certificate is not verified.
func (p *Process) WaitReady(tb testing.TB, url string) {
	tb.Helper()
	tr := &http.Transport{TLSClientConfig: insecure(), DisableKeepAlives: true}
	c := &http.Client{Transport: tr, Timeout: 2 * time.Second}
	p.wait(tb, "an answer from "+url, 5*Patience, func() bool {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
		if err != nil {
			tb.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode < 500
	})
}

// wait polls, as a process gives no other sign.
func (p *Process) wait(tb testing.TB, what string, patience time.Duration, cond func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		select {
		case <-p.done:
			if cond() {
				return
			}
			tb.Fatalf("the process ended (%v) before there was %s:\n%s", p.err, what, p.out.tail(100))
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			tb.Fatalf("timed out after %v waiting for %s:\n%s", patience, what, p.out.tail(100))
		}
	}
}

// Signal sends a signal.
func (p *Process) Signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		tb.Fatalf("signalling process %d: %v", p.PID(), err)
	}
}

// Stop asks the process to end (SIGTERM), waits and returns its exit status.
func (p *Process) Stop(tb testing.TB) (code int) {
	tb.Helper()
	p.Signal(tb, syscall.SIGTERM)
	return p.WaitExit(tb, 3*Patience)
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// WaitExit waits for the process's own end and returns its exit status, -1 if a
// signal ended it.
func (p *Process) WaitExit(tb testing.TB, patience time.Duration) (code int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		tb.Fatalf("process %d runs still after %v:\n%s", p.PID(), patience, p.out.tail(100))
		return -1
	}
}

// Memory is the process's resident memory in bytes, -1 where the system does not
// tell (it does on Linux).
func (p *Process) Memory() int64 { return p.status("VmRSS:") }

// PeakMemory is the most that Memory has ever been.
func (p *Process) PeakMemory() int64 { return p.status("VmHWM:") }

// status reads a size from what Linux tells of a process.
func (p *Process) status(name string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return kb << 10
			}
		}
	}
	return -1
}

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// tail returns the last n lines.
func (o *output) tail(n int) string {
	var lines []string
	s := bufio.NewScanner(strings.NewReader(o.String()))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, "  "+s.Text())
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
