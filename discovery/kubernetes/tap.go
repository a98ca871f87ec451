package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// tap tells how requests to the API server end, and waits for the server while it
// cannot be reached.
//
// Informers try again for ever, keep most failures to themselves, and make pauses
// between their tries. The pauses grow to a minute, cannot be set, and where a first
// list is refused they do not end with the watch.
type tap struct {
	next http.RoundTripper
	// told is called with a request and how it failed, nil if it was answered. It is
	// set before the first request.
	told *atomic.Pointer[func(to request, err error)]
}

// request is what informers ask for: a kind of objects, to list or to watch.
type request struct{ verb, path string }

const (
	verbList  = "list"
	verbWatch = "watch"
)

func requestOf(r *http.Request) request {
	if r.URL.Query().Get("watch") == "true" {
		return request{verbWatch, r.URL.Path}
	}
	return request{verbList, r.URL.Path}
}

// pause is the time after which a server that cannot be reached is tried again.
const pause = 500 * time.Millisecond

// RoundTrip implements [http.RoundTripper] for requests without a body, which is
// all that informers send.
func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := t.next.RoundTrip(r)
		t.tell(r, resp, err)
		if err == nil || r.Body != nil {
			return resp, err
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(pause):
		}
	}
}

// tell tells how a request ended.
func (t tap) tell(r *http.Request, resp *http.Response, err error) {
	told, to := t.told.Load(), requestOf(r)
	switch {
	case told == nil, errors.Is(err, context.Canceled):
	case err != nil:
		(*told)(to, fmt.Errorf("asking the API server: %w", err))
	case resp.StatusCode == http.StatusGone: // too old a version; the informer lists anew
	case resp.StatusCode >= http.StatusBadRequest:
		(*told)(to, fmt.Errorf("the API server answered %s to %s %s", resp.Status, to.verb, to.path))
	default:
		(*told)(to, nil)
	}
}
