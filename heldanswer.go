package calinix

import (
	"errors"
	"maps"
	"net/http"
)

// heldAnswer is the http.ResponseWriter of a decode leg that was sent together
// with its prefill leg. Until the first byte of the answer's body it holds the
// headers back, for engines send those before they have computed anything: as
// long as nothing is out, both legs may be sent again.
type heldAnswer struct {
	w      http.ResponseWriter
	pair   *pair
	header http.Header // until sent
	status int
	sent   bool
}

// errDropped ends a decode leg whose prefill leg has failed.
var errDropped = errors.New("the prefill leg has failed")

// Header implements [http.ResponseWriter].
func (a *heldAnswer) Header() http.Header {
	if a.sent {
		return a.w.Header()
	}
	return a.header
}

// WriteHeader implements [http.ResponseWriter]. Informational answers (1xx) that
// come before the answer are dropped.
func (a *heldAnswer) WriteHeader(status int) {
	switch {
	case a.sent:
		a.w.WriteHeader(status)
	case a.status == 0 && status >= http.StatusOK:
		a.status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *heldAnswer) Write(b []byte) (int, error) {
	if !a.sent && len(b) == 0 {
		return 0, nil
	}
	a.WriteHeader(http.StatusOK)
	if !a.commit() {
		return 0, errDropped
	}
	return a.w.Write(b)
}

// commit sends the headers, unless the pair is broken.
func (a *heldAnswer) commit() bool {
	if a.sent {
		return true
	}
	if !a.pair.begin() {
		return false
	}
	h := a.w.Header()
	clear(h)
	maps.Copy(h, a.header)
	a.sent = true
	a.w.WriteHeader(a.status)
	return true
}

// end sends the headers of an answer that has no body.
func (a *heldAnswer) end() {
	if a.status != 0 {
		a.commit()
	}
}

// FlushError is what [http.ResponseController] looks for.
func (a *heldAnswer) FlushError() error {
	if !a.sent {
		return nil
	}
	return http.NewResponseController(a.w).Flush()
}

// Unwrap is what [http.ResponseController] looks for.
func (a *heldAnswer) Unwrap() http.ResponseWriter { return a.w }
