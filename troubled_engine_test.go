package calinix_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/enginesim"
)

// trouble is what becomes of a generating request whose body has been read; engine
// serves it as if nothing were the matter.
type trouble func(w http.ResponseWriter, r *http.Request, engine http.Handler)

// answersWith is an engine's own refusal.
func answersWith(status int) trouble {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"object":"error","message":"no"}`)
	}
}

// resets breaks the connection when the engine may have begun to work.
func resets(http.ResponseWriter, *http.Request, http.Handler) {
	time.Sleep(120 * time.Millisecond) // no race between the request and the end of an idle connection
	panic(http.ErrAbortHandler)
}

// cutsAfter breaks the connection after so many bytes of the answer.
func cutsAfter(n int) trouble {
	return func(w http.ResponseWriter, r *http.Request, engine http.Handler) {
		engine.ServeHTTP(&cutWriter{w, n}, r)
		panic(http.ErrAbortHandler)
	}
}

// cutWriter takes so many bytes and no more.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	fits := min(len(b), c.left)
	c.left -= fits
	n, err := c.ResponseWriter.Write(b[:fits])
	if err == nil && n < len(b) {
		err = errors.Join(http.NewResponseController(c.ResponseWriter).Flush(), errCut)
	}
	return n, err
}

var errCut = errors.New("the answer is cut here")

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// silence answers nothing until the sender has left.
func silence(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// heldRequest is silence that tells when a request has come, and when its sender has left.
type heldRequest struct{ arrived, left chan struct{} }

func newHeldRequest() *heldRequest {
	return &heldRequest{make(chan struct{}, 16), make(chan struct{}, 16)}
}

func (h *heldRequest) trouble(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	h.arrived <- struct{}{}
	<-r.Context().Done()
	h.left <- struct{}{}
}

// troubledEngine is a simulated engine on a port of its own, beside Caddy, that does
// with generating requests what a test wants of it.
type troubledEngine struct {
	*enginesim.Engine
	*httptest.Server

	mu      sync.Mutex
	trouble trouble // nil: none
	deaf    bool    // hangs up on generating requests, their bodies unread
	got     []legSent
}

// legSent is a generating request as the engine got it.
type legSent struct {
	path, requestID string
	body            []byte
}

func newTroubledEngine(t *testing.T, set enginesim.Settings, clock enginesim.Clock, peers *enginesim.Peers) *troubledEngine {
	t.Helper()
	e := new(troubledEngine)
	var err error
	if e.Engine, err = enginesim.New(set, clock, peers); err != nil {
		t.Fatal(err)
	}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.stop)
	return e
}

// stop refuses connections from now on, and breaks those that there are.
func (e *troubledEngine) stop() {
	e.Listener.Close()
	e.CloseClientConnections()
	e.Server.Close()
}

// listenAt serves the engine at a further port, and returns what ends that.
func (e *troubledEngine) listenAt(t *testing.T, port int) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: e.Engine}}
	s.Start()
	t.Cleanup(s.Close)
	return s.Close
}

func (e *troubledEngine) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/v1/") {
		e.ServeHTTP(w, r)
		return
	}
	e.mu.Lock()
	deaf := e.deaf
	e.mu.Unlock()
	if deaf {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender has left
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.mu.Lock()
	e.got = append(e.got, legSent{r.URL.Path, r.Header.Get("X-Request-Id"), body})
	is := e.trouble
	e.mu.Unlock()
	if is == nil {
		e.ServeHTTP(w, r)
		return
	}
	is(w, r, e.Engine)
}

// has makes what is the trouble with all further requests; nil: nothing.
func (e *troubledEngine) has(is trouble) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trouble = is
}

// hangsUp makes the engine break the connection of all further requests before it has
// read their bodies.
func (e *troubledEngine) hangsUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
}

// legs are the generating requests that the engine has got so far.
func (e *troubledEngine) legs() []legSent {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got)
}
