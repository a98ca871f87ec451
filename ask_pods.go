package calinix

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/calinix/caddy-calinix/fleet"
)

// podsAtOnce is how many pods are asked something at a time.
const podsAtOnce = 16

// eachPod calls ask for each of the pods, several at a time, and returns when all
// calls have. They are told apart by their places in the list.
func eachPod(pods []fleet.Status, ask func(i int)) {
	var all errgroup.Group
	all.SetLimit(podsAtOnce)
	for i := range pods {
		all.Go(func() error {
			ask(i)
			return nil
		})
	}
	_ = all.Wait() // none of them fails
}

// get asks a pod, or the server beside it, something on Calinix's own behalf and
// returns the body of the answer. One that is not a 200, or has more than limit
// bytes, is an error. header may be nil; a Host in it is sent as the host.
func (t *podTransport) get(ctx context.Context, url string, header http.Header, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := t.probe(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", req.URL.Path, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", req.URL.Path, err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%s answers with more than %d bytes", req.URL.Path, limit)
	}
	return body, nil
}
