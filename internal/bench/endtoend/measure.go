package main

import (
	"context"
	"sync/atomic"
	"time"
)

// side is one of the two that are compared, with its figures of every pair.
type side struct {
	proxy *caddy
	url   string

	first50, total50, total99 []float64 // ms
	cpu                       []float64 // ms of processor time a request
	rate                      []float64 // requests a second
}

// result is what a cell came to.
type result struct {
	cell           cell
	stock, calinix side
}

// different is how many bodies a cell cycles over.
const different = 256

// measure runs the pairs of a cell.
func (b *bench) measure(ctx context.Context, c cell, o options) (result, error) {
	bodies := bodiesOf(different, c.bytes)
	r := result{
		cell:    c,
		stock:   side{proxy: b.stock, url: b.stockURL},
		calinix: side{proxy: b.calinix, url: b.calinixURL},
	}
	http := client(c.concurrency)
	defer http.CloseIdleConnections()
	var next atomic.Int64
	for pair := range o.pairs + 1 {
		order := []*side{&r.stock, &r.calinix}
		if pair%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, s := range order {
			before, err := s.proxy.cpu()
			if err != nil {
				return r, err
			}
			t, err := drive(ctx, http, s.url, bodies, &next, c.concurrency, o.turn)
			if err != nil {
				return r, err
			}
			after, err := s.proxy.cpu()
			if err != nil {
				return r, err
			}
			t.cpu = after - before
			if pair > 0 { // the first opens connections and warms both
				s.add(t)
			}
		}
	}
	return r, nil
}

func (s *side) add(t turn) {
	n := float64(len(t.total))
	s.first50 = append(s.first50, quantile(t.first, 0.5))
	s.total50 = append(s.total50, quantile(t.total, 0.5))
	s.total99 = append(s.total99, quantile(t.total, 0.99))
	s.cpu = append(s.cpu, ms(t.cpu)/n)
	s.rate = append(s.rate, n/t.elapsed.Seconds())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
