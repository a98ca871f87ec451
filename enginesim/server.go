package enginesim

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// maxBody bounds a request body in bytes; beyond it the answer is 413.
const maxBody = 256 << 20

// api is one generating endpoint.
type api struct {
	prefix string // of ids
	read   func(set *Settings, body node) (*ask, *apiError)
	whole  func(j *job) any
	stream func(j *job, out *sse) streamer
	fail   func(w http.ResponseWriter, a *apiError)
}

// streamer writes the events of one streamed answer.
type streamer interface {
	// token is called for every token of every sequence, in order.
	token(i, k int, last bool)
	// end is called once, after the last token.
	end()
}

var apis = map[string]*api{
	"/v1/chat/completions": {"chatcmpl-", readChat, wholeChat, streamChat, writeError},
	"/v1/completions":      {"cmpl-", readCompletions, wholeCompletions, streamCompletions, writeError},
	"/v1/responses":        {"resp_", readResponses, wholeResponse, streamResponse, writeError},
	"/v1/messages":         {"msg_", readMessages, wholeMessage, streamMessage, writeAnthropicError},
}

// ServeHTTP answers one request as the engine's HTTP server would.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	set := e.Settings()
	w.Header().Set("X-Sim-Engine", set.Name)
	if id := r.Header.Get("X-Request-Id"); id != "" {
		w.Header().Set("X-Request-Id", id)
	}
	if a := apis[r.URL.Path]; a != nil {
		if allow(w, r, http.MethodPost) {
			e.generate(w, r, set, a)
		}
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, privatePath); ok {
		e.servePrivate(w, r, rest)
		return
	}
	switch r.URL.Path {
	case "/v1/embeddings":
		if allow(w, r, http.MethodPost) {
			e.embeddings(w, r, set)
		}
	case "/tokenize":
		if allow(w, r, http.MethodPost) {
			e.tokenize(w, r, set)
		}
	case "/v1/messages/count_tokens":
		if allow(w, r, http.MethodPost) {
			e.countTokens(w, r, set)
		}
	case "/query":
		if set.KVConnector != "mooncake" {
			writeDetail(w, http.StatusNotFound)
		} else if allow(w, r, http.MethodGet) {
			e.engines(w)
		}
	case "/v1/models":
		if allow(w, r, http.MethodGet) {
			e.models(w, set)
		}
	case "/metrics":
		if allow(w, r, http.MethodGet) {
			e.metrics(w)
		}
	case "/health":
		if allow(w, r, http.MethodGet) {
			w.WriteHeader(e.healthStatus())
		}
	case "/ping":
		if allow(w, r, http.MethodGet, http.MethodPost) {
			w.WriteHeader(e.healthStatus())
		}
	case "/version":
		if allow(w, r, http.MethodGet) {
			writeJSON(w, http.StatusOK, map[string]string{"version": "0.32.0+sim"})
		}
	case "/load":
		if allow(w, r, http.MethodGet) {
			s := e.Stats()
			writeJSON(w, http.StatusOK, map[string]int{"server_load": s.Running + s.Waiting})
		}
	case "/reset_prefix_cache":
		if allow(w, r, http.MethodPost) {
			e.ResetCache()
		}
	default:
		writeDetail(w, http.StatusNotFound)
	}
}

// servePrivate answers what no real engine has: claims, and what tests look into.
func (e *Engine) servePrivate(w http.ResponseWriter, r *http.Request, rest string) {
	switch rest {
	case "kv/claim", "kv/release":
		if allow(w, r, http.MethodPost) {
			e.servePeer(w, r, strings.TrimPrefix(rest, "kv/"))
		}
	case "state":
		if allow(w, r, http.MethodGet) {
			writeJSON(w, http.StatusOK, e.Stats())
		}
	case "health": // PUT ?status=503, 0 for what the settings say
		if allow(w, r, http.MethodPut) {
			status, err := strconv.Atoi(r.URL.Query().Get("status"))
			if err != nil || (status != 0 && (status < 200 || status > 599)) {
				writeError(w, badRequest("status", "status: want 0, or 200 to 599"))
				return
			}
			e.SetHealth(status)
		}
	default:
		writeDetail(w, http.StatusNotFound)
	}
}

func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	writeDetail(w, http.StatusMethodNotAllowed)
	return false
}

// readBody reads and parses a body; ok is false once an error was answered, or the
// client has left.
func readBody(w http.ResponseWriter, r *http.Request, fail func(http.ResponseWriter, *apiError)) (body node, ok bool) {
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		fail(w, &apiError{http.StatusRequestEntityTooLarge, "", err.Error()})
	}
	if err != nil {
		return node{}, false
	}
	body, err = parseJSON(buf.Bytes())
	switch {
	case err != nil:
		fail(w, badRequest("", "JSON decode error: %v", err))
	case !body.isObject():
		fail(w, badRequest("", "body: Input should be a valid dictionary"))
	default:
		return body, true
	}
	return node{}, false
}

// generate serves one generating request from body to last byte.
func (e *Engine) generate(w http.ResponseWriter, r *http.Request, set Settings, api *api) {
	body, ok := readBody(w, r, api.fail)
	if !ok {
		return
	}
	a, refusal := api.read(&set, body)
	if refusal != nil {
		api.fail(w, refusal)
		return
	}
	j, refusal := e.newJob(r.Context(), set, a, r)
	if refusal != nil {
		api.fail(w, refusal)
		return
	}
	j.id = api.prefix + j.id
	e.accepted(r.URL.Path)
	w.Header().Set("X-Sim-Leg", j.leg)
	if a.stream {
		j.serveStream(w, r, api)
		return
	}
	refusal = j.receive(r.Context())
	if refusal == nil && j.run(r.Context(), nil) != nil {
		return
	}
	if refusal == nil {
		refusal = j.send(r.Context())
	}
	switch {
	case r.Context().Err() != nil: // nobody is there to answer
	case refusal != nil:
		api.fail(w, refusal)
	default:
		writeJSON(w, http.StatusOK, api.whole(j))
	}
}

// serveStream writes the answer token by token. An error can only mean that the
// client has left: the sequences are cancelled, and nobody reads what else is written.
func (j *job) serveStream(w http.ResponseWriter, r *http.Request, api *api) {
	out := newSSE(w)
	if j.set.StreamHeaders == "at_once" {
		_ = out.flush() // the next one tells
	}
	if refusal := j.receive(r.Context()); refusal != nil {
		out.data(errorBody(refusal)) // the headers may be out already
		_ = out.flush()
		return
	}
	s := api.stream(j, out)
	said := make([]int, len(j.seqs))
	err := j.run(r.Context(), func(i int, p progress) error {
		for ; said[i] < p.out; said[i]++ {
			s.token(i, said[i], p.done && said[i] == p.out-1)
		}
		return out.flush()
	})
	if err == nil {
		s.end()
		_ = out.flush() // the client may have left just now
	}
}

// accepted counts a request.
func (e *Engine) accepted(path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count.Requests[path]++
}
