package calinix

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// legWriter is what the proxy answers through. It adds the routing headers when
// the answer's head is written, not before: until then another pod may be picked,
// and informational answers go without them.
type legWriter struct {
	*caddyhttp.ResponseWriterWrapper
	leg    *leg
	headed bool // the answer's head has been written
}

const statusClientClosed = 499

// WriteHeader implements [http.ResponseWriter]. It swallows the 499 that Caddy's
// proxy writes by itself when the client has left: the handler decides what is
// written.
func (w *legWriter) WriteHeader(status int) {
	switch {
	case status == statusClientClosed && w.leg.status == 0:
		return
	case status < http.StatusOK && status != http.StatusSwitchingProtocols:
		stripOwnHeaders(w.Header())
	case !w.headed:
		w.headed = true
		if w.leg.shown != nil {
			w.leg.shown.set(w.Header())
		}
	}
	w.ResponseWriterWrapper.WriteHeader(status)
}

// begin writes the head of an answer that begins without one: a response handler
// may do so.
func (w *legWriter) begin() {
	if !w.headed {
		w.WriteHeader(http.StatusOK)
	}
}

// Write implements [http.ResponseWriter].
func (w *legWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriterWrapper.Write(p)
}

// ReadFrom implements [io.ReaderFrom].
func (w *legWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError is what [http.ResponseController] looks for.
func (w *legWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}
