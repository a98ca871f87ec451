package calinix

import (
	"context"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/calinix/caddy-calinix/outcome"
)

// TestRoundTripVars: what a round trip leaves behind, such as a dial for which
// there was no need any more, sees the request's variables as they were, and
// nothing that the request's next leg writes.
func TestRoundTripVars(t *testing.T) {
	ctx := context.WithValue(t.Context(), caddyhttp.VarsCtxKey, map[string]any{"before": 1})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pod/", nil)
	if err != nil {
		t.Fatal(err)
	}
	trip := new(leg).traced(req, req.Header).Context()
	caddyhttp.SetVar(req.Context(), "after", 2)
	if got := caddyhttp.GetVar(trip, "before"); got != 1 {
		t.Errorf("a variable of the request is %v in the round trip, want 1", got)
	}
	if got := caddyhttp.GetVar(trip, "after"); got != nil {
		t.Errorf("a later variable of the request is %v in the round trip", got)
	}
	caddyhttp.SetVar(trip, "own", 3)
	if got := caddyhttp.GetVar(req.Context(), "own"); got != nil {
		t.Errorf("a variable of the round trip is %v in the request", got)
	}
}

// TestOutcomeOfRetriedStatus: a leg that is taken to another pod for its status
// ended with that status, even if the client left a moment later.
func TestOutcomeOfRetriedStatus(t *testing.T) {
	client, leave := context.WithCancel(t.Context())
	leave()
	l := &leg{kind: outcome.Single, status: http.StatusServiceUnavailable, err: errStatusRetried}
	want := outcome.OfStatus(outcome.Single, http.StatusServiceUnavailable)
	if got := l.outcome(client, nil); got != want {
		t.Errorf("outcome %v, want %v", got, want)
	}
}
