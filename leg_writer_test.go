package calinix

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// finalHead records the answer's head, not that of informational answers.
type finalHead struct{ *httptest.ResponseRecorder }

func (f finalHead) WriteHeader(status int) {
	if status >= http.StatusOK {
		f.ResponseRecorder.WriteHeader(status)
	}
}

// TestLegWriterHead: the routing headers come with the head of the answer, however
// that begins, and with nothing before it.
func TestLegWriterHead(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"WriteHeader":            func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"Write":                  func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"ReadFrom":               func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")) },
		"Flush":                  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"after an informational": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) },
	} {
		rec := httptest.NewRecorder()
		w := &legWriter{
			ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: finalHead{rec}},
			leg:                   &leg{shown: &route{mode: modeSingle, requestID: "id", target: "pod"}},
		}
		w.Header().Set("X-Calinix-Target-Pod-Id", "the pod's own word")
		begin(w)
		if got := rec.Result().Header.Get(headerTarget); got != "pod" {
			t.Errorf("%s: %s: %q", name, headerTarget, got)
		}
	}
	rec := httptest.NewRecorder()
	w := &legWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: finalHead{rec}}, leg: &leg{shown: &route{target: "pod"}}}
	w.Header().Set(headerTarget, "the pod's own word")
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(statusClientClosed) // Caddy's, swallowed
	if got := rec.Header()[headerTarget]; got != nil {
		t.Errorf("before the answer: %q", got)
	}
}
