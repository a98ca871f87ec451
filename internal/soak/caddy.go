package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// caddy is the process under test.
type caddy struct {
	cmd         *exec.Cmd
	dir         string
	pods        *pods
	port, admin int
	loads       int
	client      *http.Client // of the admin listener and for the first answer
	logged      sync.WaitGroup
	done        chan error
}

// ceiling is the configured one of the index, per balancer.
const ceiling = 5000

// share is the default retryBudget.
const share = 0.1

// writeIdle is Caddy's limit on a write that stalls. Its timers keep what belongs to
// an HTTP/2 connection for as long after that has ended.
const writeIdle = 30 * time.Second

func startCaddy(ctx context.Context, ps *pods, c *checker) (*caddy, error) {
	path, err := testcaddy.Build()
	if err != nil {
		return nil, err
	}
	ca := &caddy{pods: ps, done: make(chan error, 1)}
	for _, port := range []*int{&ca.port, &ca.admin} {
		if *port, err = freeport.Take(); err != nil {
			return nil, err
		}
	}
	if ca.dir, err = os.MkdirTemp("", "soak-"); err != nil {
		return nil, err
	}
	ca.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: unverified()}}
	file := filepath.Join(ca.dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(ca.config()), 0o600); err != nil {
		return nil, err
	}
	ca.cmd = exec.Command(path, "run", "--config", file, "--adapter", "caddyfile")
	ca.cmd.Dir = ca.dir
	ca.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+ca.dir, "XDG_CONFIG_HOME="+ca.dir, "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING=true")
	out, err := ca.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := ca.cmd.Start(); err != nil {
		return nil, err
	}
	ca.logged.Go(func() { readLog(out, c) })
	go func() {
		ca.logged.Wait()
		ca.done <- ca.cmd.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, ca.url()+"/v1/models", nil)
		resp, err := ca.client.Do(req)
		if err == nil {
			resp.Body.Close()
			return ca, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			ca.kill()
			return nil, fmt.Errorf("no answer from the process: %w", err)
		}
	}
}

func unverified() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

func (ca *caddy) url() string { return "https://localhost:" + strconv.Itoa(ca.port) }

// config is the configuration, different in a header each time. Each mode has a
// balancer of its own, so that the retries of each are told apart.
func (ca *caddy) config() string {
	list := func(role string) string {
		var b strings.Builder
		for _, p := range ca.pods.of(role) {
			fmt.Fprintf(&b, "\t\t\t\tpod %s %s {\n\t\t\t\t\tmax_conns 128\n\t\t\t\t}\n", p.Name, p.URL)
		}
		return b.String()
	}
	common := fmt.Sprintf("block_size 16\n\t\t\tbody_memory_bytes 64MiB\n\t\t\tmax_body_bytes 1MiB\n\t\t\tretry_status 503\n\t\t\tcache_registry {\n\t\t\t\tmax_blocks %d\n\t\t\t}\n\t\t\thealth {\n\t\t\t\tinterval 1s\n\t\t\t\ttimeout 2s\n\t\t\t\tunhealthy_threshold 2\n\t\t\t\thealthy_threshold 1\n\t\t\t\tpassive {\n\t\t\t\t\tfailures 8\n\t\t\t\t}\n\t\t\t}\n", ceiling)
	return fmt.Sprintf(`{
	admin localhost:%d
	auto_https disable_redirects
	skip_install_trust
	local_certs
	persist_config off
	grace_period 30s
	metrics
	servers {
		timeouts {
			write_idle %v
		}
	}
}
https://localhost:%d {
	log
	header X-Loaded %d
	handle_path /single/* {
		calinix {
			name single
			%s
			single {
%s			}
		}
	}
	handle_path /dispatch/* {
		calinix {
			name dispatch
			%s
			dispatch {
				connector nixl
				prefill {
%s				}
				decode {
%s				}
			}
		}
	}
	handle {
		respond true
	}
}
`, ca.admin, writeIdle, ca.port, ca.loads, common, list("single"), common, list("prefill"), list("decode"))
}

func (ca *caddy) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://localhost:%d%s", ca.admin, path), nil)
	if err != nil {
		return "", err
	}
	return ca.do(req)
}

func (ca *caddy) do(req *http.Request) (string, error) {
	resp, err := ca.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", req.URL.Path, resp.Status, body)
	}
	return string(body), err
}

// reload returns when the old server closes its connections: it has closed its
// listeners before that, but on a busy machine may do both long after Caddy has
// called the reload over. The end of an idle connection is the sign.
func (ca *caddy) reload(ctx context.Context) error {
	ca.loads++
	conn, err := tls.Dial("tcp", "localhost:"+strconv.Itoa(ca.port), unverified())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	const ask = "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n" // net/http answers that itself
	if _, err = io.WriteString(conn, ask); err != nil {
		return err
	}
	answer := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answer, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://localhost:%d/load", ca.admin), strings.NewReader(ca.config()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/caddyfile")
	if _, err = ca.do(req); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer)
	return err
}

// metrics scrapes. A scrape that meets a reload is tried again.
func (ca *caddy) metrics(ctx context.Context) (testcaddy.Metrics, error) {
	var text string
	var err error
	for range 3 {
		if text, err = ca.get(ctx, "/metrics"); err == nil {
			return testcaddy.ParseMetrics(text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// settle waits until nothing runs any more and returns the metrics of then.
func (ca *caddy) settle(ctx context.Context, c *checker) testcaddy.Metrics {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		m, err := ca.metrics(ctx)
		running, bodies := m.Sum("calinix_pod_inflight"), m.Sum("calinix_body_bytes")
		if err == nil && running == 0 && bodies == 0 {
			return m
		}
		if time.Now().After(deadline) {
			c.violate("20 s after the last request %v legs run still, %v bytes of bodies are held, error %v", running, bodies, err)
			return m
		}
	}
}

// stop ends the process in good order and reads the log to its end.
func (ca *caddy) stop() error {
	_ = ca.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ca.done:
		ca.done <- err
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("it runs still a minute after SIGTERM")
	}
}

func (ca *caddy) kill() {
	_ = ca.cmd.Process.Kill()
	ca.done <- <-ca.done
	_ = os.RemoveAll(ca.dir)
	freeport.Give(ca.port)
	freeport.Give(ca.admin)
}

// readLog hands every line of the access log over, and what must not be there.
func readLog(r io.Reader, c *checker) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte("panic:")) || bytes.HasPrefix(line, []byte("fatal error:")) || bytes.Contains(line, []byte(`"msg":"panic`)) {
			c.violate("the process says: %s", line)
		}
		if !bytes.Contains(line, []byte(`"calinix_outcome"`)) {
			continue
		}
		var e struct {
			Status  int
			ID      string `json:"calinix_request_id"`
			Outcome string `json:"calinix_outcome"`
			Mode    string `json:"calinix_mode"`
			Prefill string `json:"calinix_prefill_pod"`
			Decode  string `json:"calinix_decode_pod"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			c.violate("a line of the log: %v: %s", err, line)
			continue
		}
		c.log(e.ID, entry{status: e.Status, outcome: e.Outcome, mode: e.Mode, atPrefill: e.Mode == "disaggregated" && e.Prefill != "" && e.Decode == "" && e.Outcome != "no_pod"})
	}
	if err := lines.Err(); err != nil {
		c.violate("reading the log: %v", err)
	}
}
