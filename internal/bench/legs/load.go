package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// result is what was seen of the requests of one rate, in the engines' time.
type result struct {
	first, each []time.Duration // to the first token; a further token
	whole       []time.Duration // to the end
	tokens      int64           // that came in the second half of the sending
	half        time.Duration   // of the sending
	output      int             // tokens of an answer
}

// drive sends requests to url at a rate, which no answer slows down.
func drive(ctx context.Context, o *options, url string, rate float64) (result, error) {
	n, seed := 1, rand.New(rand.NewPCG(o.seed, 0))
	if rate > 0 {
		n = max(1, int(rate*o.turn.Seconds()))
	}
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = o.body(seed)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var (
		r     = result{output: o.output, half: o.turn / 2}
		mu    sync.Mutex
		all   sync.WaitGroup
		fault error
		at    time.Duration
		begun = time.Now()
	)
	turn := time.Duration(float64(o.turn) * o.slower)
	late := &counter{from: begun.Add(turn / 2), to: begun.Add(turn)}
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / o.slower) }
	for _, body := range bodies {
		time.Sleep(time.Until(begun.Add(at)))
		all.Go(func() {
			first, whole, err := once(ctx, client, url, body, o.output, late)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fault = err
				return
			}
			r.first, r.whole = append(r.first, scaled(first)), append(r.whole, scaled(whole))
			r.each = append(r.each, scaled(whole-first)/time.Duration(o.output-1))
		})
		if rate > 0 {
			at += time.Duration(seed.ExpFloat64() / rate * o.slower * float64(time.Second))
		}
	}
	all.Wait()
	r.tokens = late.n.Load()
	return r, fault
}

// counter counts tokens that come in a time.
type counter struct {
	from, to time.Time
	n        atomic.Int64
}

func (c *counter) count() {
	if now := time.Now(); now.After(c.from) && now.Before(c.to) {
		c.n.Add(1)
	}
}

// body is a request for a prompt of so many words that is like no other. With its
// space a word has the 4 bytes that Calinix takes for a token of the engine.
func (o *options) body(seed *rand.Rand) string {
	var b strings.Builder
	for range o.prompt {
		for range 3 {
			b.WriteByte(byte('a' + seed.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return `{"model":"m","stream":true,"ignore_eos":true,"max_tokens":` + strconv.Itoa(o.output) + `,"prompt":"` + b.String() + `"}`
}

// once sends one request and checks that its answer has all tokens.
func once(ctx context.Context, client *http.Client, url, body string, tokens int, late *counter) (first, whole time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, 0, fmt.Errorf("status %s: %s", resp.Status, text)
	}
	got := 0
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return 0, 0, errors.Join(fmt.Errorf("the stream broke off after %d tokens", got), lines.Err())
		}
		switch line := lines.Bytes(); {
		case bytes.Equal(line, []byte("data: [DONE]")):
			if got != tokens {
				return 0, 0, fmt.Errorf("an answer of %d tokens, want %d", got, tokens)
			}
			return first, time.Since(begun), nil
		case bytes.HasPrefix(line, []byte("data: ")):
			late.count()
			if got++; got == 1 {
				first = time.Since(begun)
			}
		}
	}
}
