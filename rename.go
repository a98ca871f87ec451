package calinix

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/calinix/caddy-calinix/jsonedit"
)

// renaming puts the client's name of a model back into an answer.
type renaming struct {
	engine string // as the pod has it
	client []byte // as JSON
}

func newRenaming(route *modelRoute) *renaming {
	client, err := json.Marshal(route.client)
	if err != nil {
		return nil
	}
	return &renaming{route.name, client}
}

// maxRenamed bounds how much of an answer, or of an event, is held to find the
// name in it; what is longer goes on as it came.
const maxRenamed = 16 << 20

// apply makes the answer one that names the client's model, if it is JSON or a
// stream of events and not compressed. Its length is then not known beforehand.
func (n *renaming) apply(resp *http.Response) {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	events := kind == "text/event-stream"
	coded := resp.Header.Get("Content-Encoding")
	if resp.Body == http.NoBody || resp.Request != nil && resp.Request.Method == http.MethodHead ||
		!events && kind != "application/json" || coded != "" && !strings.EqualFold(coded, "identity") {
		return
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	resp.Body = &renamedBody{ReadCloser: resp.Body, renaming: n, events: events}
}

// rename returns doc with the engine's name of the model replaced by the
// client's: in the member model, and in that of the objects response and message,
// where events of responses and messages have it. doc itself if there is none.
func (n *renaming) rename(doc []byte) []byte {
	for _, in := range [...]string{"", "response", "message"} {
		object := doc
		if in != "" {
			inner, ok, err := jsonedit.Member(doc, in)
			if err != nil || !ok || inner[0] != '{' {
				continue
			}
			object = inner
		}
		value, ok, err := jsonedit.Member(object, "model")
		var name string
		if err != nil || !ok || json.Unmarshal(value, &name) != nil || name != n.engine {
			continue
		}
		at := cap(doc) - cap(value) // value is a part of doc
		out := make([]byte, 0, len(doc)-len(value)+len(n.client))
		out = append(out, doc[:at]...)
		out = append(out, n.client...)
		doc = append(out, doc[at+len(value):]...)
	}
	return doc
}

// renamedBody is an answer in which the model is renamed as it passes. An event
// goes on when its line is complete.
type renamedBody struct {
	io.ReadCloser
	*renaming
	events bool

	held  []byte // read, but not yet complete
	ready []byte // to be handed out
	raw   bool   // what comes goes on as it is: up to the end of the line, or of all
	err   error  // that ended the answer
}

// Read implements [io.Reader].
func (b *renamedBody) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, err := b.ReadCloser.Read(p)
		b.take(p[:n], err)
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// take takes in what was read.
func (b *renamedBody) take(got []byte, err error) {
	b.err = err
	b.held = append(b.held, got...)
	var out []byte
	for b.events {
		end := bytes.IndexByte(b.held, '\n')
		if end < 0 {
			break
		}
		out = b.line(out, b.held[:end+1])
		b.held, b.raw = b.held[end+1:], false
	}
	switch {
	case err == nil && !b.raw && len(b.held) <= maxRenamed:
	case b.raw || err == nil || err != io.EOF:
		out, b.held, b.raw = append(out, b.held...), nil, true
	case b.events:
		out, b.held = b.line(out, b.held), nil
	default:
		out, b.held = append(out, b.rename(b.held)...), nil
	}
	b.ready = out
	if len(b.held) == 0 {
		b.held = nil
	}
}

// line appends a line of a stream of events, or what there is of it.
func (b *renamedBody) line(out, line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || b.raw {
		return append(out, line...)
	}
	text := bytes.TrimRight(data, "\r\n")
	out = append(out, "data:"...)
	out = append(out, b.rename(text)...)
	return append(out, data[len(text):]...)
}
