package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// maxDrain is how much of a probe's answer is read so that its connection can
// serve the next probe. An answer that is longer costs its connection.
const maxDrain = 64 << 10

// HTTP is the Prober of the product: GET Endpoint below the pod's URL.
type HTTP struct {
	// Transport sends the probe, with the TLS settings of the pods.
	Transport http.RoundTripper
	// Endpoint is the path, perhaps with a query: "/health".
	Endpoint string
	// Header goes with every probe; a Host in it is sent as the host.
	Header http.Header
}

// Probe sends one probe. Redirects are not followed: a 3xx is a BadStatus.
func (h *HTTP) Probe(ctx context.Context, pod Pod) Result {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(pod.URL, "/")+h.Endpoint, nil)
	if err != nil {
		return Result{Kind: Failed, Detail: err.Error()}
	}
	for name, values := range h.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "calinix-health")
	}
	res, err := h.Transport.RoundTrip(req)
	if err != nil {
		return Classify(err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxDrain)
	if res.StatusCode/100 != 2 {
		return Result{Kind: BadStatus, Detail: res.Status}
	}
	return Result{Kind: OK, Detail: res.Status}
}

// goneErrnos are what the system says when nobody holds the pod's port, or
// when whoever held it has ended. A network that is unreachable as a whole is
// not among them: it is our side that was cut off.
var goneErrnos = []error{
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.EHOSTUNREACH,
	io.EOF, io.ErrUnexpectedEOF,
}

// Classify says what the error of a round trip shows about the pod.
func Classify(err error) Result {
	r := Result{Kind: Failed, Detail: err.Error()}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		// Names are not the pod's business, and a name server that fails
		// fails for all pods.
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		r.Kind = Late
		r.Detail = "no answer in time: " + r.Detail
	default:
		for _, gone := range goneErrnos {
			if errors.Is(err, gone) {
				r.Kind = Dropped
			}
		}
	}
	return r
}
