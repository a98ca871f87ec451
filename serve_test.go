package calinix

import (
	"net/http/httptest"
	"testing"
)

// TestFlushEnd: what is known to be whole is not written out before the handler ends.
func TestFlushEnd(t *testing.T) {
	for length, want := range map[string]bool{"": true, "7": false} {
		rec := httptest.NewRecorder()
		if length != "" {
			rec.Header().Set("Content-Length", length)
		}
		(&exchange{w: rec}).flushEnd()
		if rec.Flushed != want {
			t.Errorf("Content-Length %q: flushed %v, want %v", length, rec.Flushed, want)
		}
	}
}
