package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

// caddy is a running Caddy process.
type caddy struct {
	cmd *exec.Cmd
	log *bytes.Buffer
}

// start runs binary with a Caddyfile and waits until every address accepts
// connections.
func start(ctx context.Context, binary, dir, name, caddyfile string, addresses ...string) (*caddy, error) {
	home := filepath.Join(dir, name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(home, "Caddyfile")
	if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
		return nil, err
	}
	c := &caddy{log: new(bytes.Buffer)}
	c.cmd = exec.Command(binary, "run", "--config", file)
	c.cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home)
	c.cmd.Stderr = c.log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if err := accepts(ctx, a); err != nil {
			c.stop()
			return nil, fmt.Errorf("%s did not start: %w\n%s", name, err, c.log)
		}
	}
	return c, nil
}

func accepts(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *caddy) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-done
	}
}

// takeAddresses returns n loopback addresses that stay this process's.
func takeAddresses(n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		port, err := freeport.Take()
		if err != nil {
			return nil, err
		}
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return addresses, nil
}

// sites returns the addresses as Caddyfile sites of plain HTTP.
func sites(addresses []string) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = "http://" + a
	}
	return strings.Join(all, ", ")
}
