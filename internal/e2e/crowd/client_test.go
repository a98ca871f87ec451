package crowd

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/calinix/caddy-calinix" // the product, as cmd/caddy has it
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// clientEnv makes this binary a crowd of clients: "kind address count bytes".
const clientEnv = "CROWD_CLIENT"

func TestMain(m *testing.M) {
	if spec := os.Getenv(clientEnv); spec != "" {
		if err := beClients(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testcaddy.Main(m)
}

// The kinds of clients.
const (
	announced = "announced" // send a body at once
	chunked   = "chunked"   // the same without telling its length
	legs      = "legs"      // announced, in dispatch mode
	readers   = "readers"   // read the beginning of a stream and no more
	senders   = "senders"   // announce a body and send a byte of it now and then
)

// beClients opens as many connections. It says "ready" and how many had which
// status (0: none yet), and ends with its standard input.
func beClients(spec string) error {
	f := strings.Fields(spec)
	count, err := strconv.Atoi(f[2])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(f[3])
	if err != nil {
		return err
	}
	c := &clients{kind: f[0], address: f[1], request: request(f[0], size), seen: map[int]int{}}
	slots := make(chan struct{}, 200)
	var wg sync.WaitGroup
	for range count {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			status, err := c.one()
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.errs = append(c.errs, err)
			}
			c.seen[status]++
		})
	}
	wg.Wait()
	for _, err := range c.errs[:min(3, len(c.errs))] {
		fmt.Fprintln(os.Stderr, "client:", err)
	}
	fmt.Println("ready", len(c.errs), c.seen[0], c.seen[http.StatusOK], c.seen[http.StatusServiceUnavailable])
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

type clients struct {
	kind, address string
	request       []byte // which each sends, as it goes over the wire

	mu    sync.Mutex
	conns []net.Conn // stay open
	seen  map[int]int
	errs  []error
}

// one is one client, up to where it waits. The status is that of its answer.
func (c *clients) one() (status int, err error) {
	nc, err := net.DialTimeout("tcp", c.address, time.Minute)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.conns = append(c.conns, nc)
	c.mu.Unlock()
	if c.kind == senders {
		go trickle(nc, c.request)
		return 0, nil
	}
	sent := make(chan error, 1)
	go func() {
		_, err := nc.Write(c.request)
		sent <- err
	}()
	r := bufio.NewReaderSize(nc, 16)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, fmt.Errorf("no answer: %w (sending: %w)", err, <-sent)
	}
	if c.kind == readers {
		return resp.StatusCode, nil // its connection stays open
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode == http.StatusServiceUnavailable && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/json") {
		err = fmt.Errorf("503 without Retry-After: %v", resp.Header)
	}
	return resp.StatusCode, err
}

// request is what a client of the kind sends, with a body of so many bytes.
func request(kind string, size int) []byte {
	body := `{"model":"m","prompt":"`
	if kind == readers {
		body = `{"stream":true,` + body[1:]
	}
	text := strings.Repeat("word after word ", size/16+1)
	body += text[:size-len(body)-2] + `"}`
	head := "POST /v1/completions HTTP/1.1\r\nHost: crowd\r\nContent-Type: application/json\r\n"
	if kind == legs {
		head += "x-calinix-mode: dispatch\r\n"
	}
	if kind == chunked {
		return fmt.Appendf(nil, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)
	}
	return fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

// trickle sends the beginning of a request, and then a byte of it a second until
// the connection ends.
func trickle(nc net.Conn, request []byte) {
	const beginning = 1000
	if _, err := nc.Write(request[:beginning]); err != nil {
		return
	}
	for i := beginning; i < len(request); i++ {
		time.Sleep(time.Second)
		if _, err := nc.Write(request[i : i+1]); err != nil {
			return
		}
	}
}

// crowd is a running process of clients.
type crowd struct {
	// What the clients have seen: errors, no answer yet, 200, 503.
	errors, waiting, served, refused int

	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
}

// gather starts clients and returns at once.
func gather(t *testing.T, kind, address string, count, size int) *crowd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{cmd: exec.Command(path), lines: make(chan string, 1)}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", clientEnv, kind, address, count, size))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.leave)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		c.lines <- line
	}()
	return c
}

// ready waits until all clients are where they wait.
func (c *crowd) ready(t *testing.T) {
	t.Helper()
	select {
	case line := <-c.lines:
		if _, err := fmt.Sscanf(line, "ready %d %d %d %d", &c.errors, &c.waiting, &c.served, &c.refused); err != nil {
			t.Fatalf("the clients say %q: %v", line, err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the clients do not come to an end")
	}
}

// leave ends the process: all of its clients leave.
func (c *crowd) leave() {
	c.stdin.Close()
	_ = c.cmd.Wait()
}
