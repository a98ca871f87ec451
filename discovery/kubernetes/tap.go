package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

// tap tells how requests to the API server end. The informers try again for ever
// and keep most failures to themselves.
type tap struct {
	next http.RoundTripper
	// told is called with the path of a request and how it failed, nil if it was
	// answered. It is set before the first request.
	told *atomic.Pointer[func(path string, err error)]
}

// RoundTrip implements [http.RoundTripper].
func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	told := t.told.Load()
	if told == nil {
		return resp, err
	}
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		(*told)(r.URL.Path, fmt.Errorf("asking the API server: %w", err))
	case resp.StatusCode == http.StatusGone: // too old a version; the informer lists anew
	case resp.StatusCode >= http.StatusBadRequest:
		(*told)(r.URL.Path, fmt.Errorf("the API server answered %s to %s %s", resp.Status, r.Method, r.URL.Path))
	default:
		(*told)(r.URL.Path, nil)
	}
	return resp, err
}
