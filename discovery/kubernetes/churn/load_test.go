package churn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// load sends streamed requests at a fixed rate, each of another conversation, and
// checks that every answer is whole. It does not wait for answers: where they come
// late, more requests run at once.
type load struct {
	url    string
	client *http.Client
	begin  time.Time
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	sent   int
	last   time.Time // when the last one was sent
	faults []string
}

const rate = 100 // requests a second

func startLoad(t *testing.T, url string) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{url: url + "/v1/chat/completions", begin: time.Now(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}, stop: stop}
	l.ended.Go(func() {
		for i := 0; ; i++ {
			due := l.begin.Add(time.Duration(i) * time.Second / rate)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
				l.ended.Go(func() { l.one(i) })
			}
		}
	})
	return l
}

// one sends a request. It does not end with the load: those under way are to
// succeed too.
func (l *load) one(i int) {
	l.mu.Lock()
	l.sent, l.last = l.sent+1, time.Now()
	l.mu.Unlock()
	fault := ""
	if err := l.send(i); err != nil {
		fault = fmt.Sprintf("request %d at %s: %v", i, time.Now().Format("15:04:05.000"), err)
	}
	if fault != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faults = append(l.faults, fault)
	}
}

func (l *load) send(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	body := fmt.Sprintf(`{"model":"llama","stream":true,"messages":[{"role":"user","content":"conversation %d of many"}]}`, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("after %d bytes from %s: %w", len(answer), resp.Header.Get("X-Calinix-Target-Pod-Id"), err)
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasSuffix(answer, []byte("data: [DONE]\n\n")) {
		return fmt.Errorf("status %d from %q: %.300s", resp.StatusCode, resp.Header.Get("X-Calinix-Target-Pod-Id"), answer)
	}
	return nil
}

// end stops the load, and reports every request that failed and a rate that was not
// held.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	l.client.CloseIdleConnections()
	took := l.last.Sub(l.begin)
	reached := float64(l.sent-1) / took.Seconds()
	t.Logf("%d requests in %v, %.1f a second, %d failed", l.sent, took, reached, len(l.faults))
	if reached < 0.95*rate || reached > 1.05*rate {
		t.Errorf("%.1f requests a second, want %d", reached, rate)
	}
	for i, f := range l.faults {
		if i == 10 {
			t.Errorf("and %d more", len(l.faults)-i)
			break
		}
		t.Error(f)
	}
}
