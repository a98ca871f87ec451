package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// turn is what one turn of the load saw.
type turn struct {
	first, total []time.Duration // to the answer's first byte, and to its end
	elapsed      time.Duration
	cpu          time.Duration // of the proxy
}

// client returns an HTTP/1.1 client that keeps n connections to one server, as
// the SDKs of the engines' users do.
func client(n int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: n,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		DisableCompression:  true,
	}}
}

// drive sends bodies to url, concurrency at a time, for about d.
func drive(ctx context.Context, c *http.Client, url string, bodies [][]byte, next *atomic.Int64, concurrency int, d time.Duration) (turn, error) {
	var (
		t     turn
		mu    sync.Mutex
		wg    sync.WaitGroup
		fault error
		begin = time.Now()
	)
	for range concurrency {
		wg.Go(func() {
			var first, total []time.Duration
			var err error
			for err == nil && time.Since(begin) < d {
				var f, whole time.Duration
				f, whole, err = once(ctx, c, url, bodies[int(next.Add(1))%len(bodies)])
				first, total = append(first, f), append(total, whole)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fault = err
				return
			}
			t.first, t.total = append(t.first, first...), append(t.total, total...)
		})
	}
	wg.Wait()
	t.elapsed = time.Since(begin)
	return t, fault
}

var done = []byte("data: [DONE]\n\n")

// once sends one request and checks that its answer is whole.
func once(ctx context.Context, c *http.Client, url string, body []byte) (first, total time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	var answer bytes.Buffer
	buf := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 && first == 0 {
			first = time.Since(begin)
		}
		answer.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasSuffix(answer.Bytes(), done) {
		return 0, 0, fmt.Errorf("status %d, %d bytes, no whole stream: %.200s", resp.StatusCode, answer.Len(), answer.String())
	}
	return first, time.Since(begin), nil
}
