package calinix

import (
	"context"
	"sync"
)

// search is how far the sources of a configuration have come with their first
// reports.
type search struct {
	done chan struct{} // closed when all have reported, or were given up
	mu   sync.Mutex
	left map[int]bool
}

func newSearch(sources int) *search {
	s := &search{done: make(chan struct{}), left: make(map[int]bool, sources)}
	for i := range sources {
		s.left[i] = true
	}
	if sources == 0 {
		close(s.done)
	}
	return s
}

// one notes a report of a source.
func (s *search) one(source int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[source] {
		if delete(s.left, source); len(s.left) == 0 {
			close(s.done)
		}
	}
}

// all gives up on the sources that have not reported.
func (s *search) all() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) > 0 {
		clear(s.left)
		close(s.done)
	}
}

// await returns when the sources have reported once, or were given up.
func (s *search) await(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}
