package enginesim

import (
	"errors"
	"net/http"
)

// sse writes server-sent events, buffered until flush.
type sse struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	buf  []byte
}

func newSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	return &sse{w: w, ctrl: http.NewResponseController(w)}
}

// data adds an unnamed event.
func (s *sse) data(v any) {
	s.buf = append(s.buf, "data: "...)
	s.buf = append(appendJSON(s.buf, v), "\n\n"...)
}

// named adds a named event.
func (s *sse) named(name string, v any) {
	s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	s.data(v)
}

// done adds OpenAI's end mark.
func (s *sse) done() { s.buf = append(s.buf, "data: [DONE]\n\n"...) }

// flush sends the headers and what was added.
func (s *sse) flush() error {
	if len(s.buf) > 0 {
		if _, err := s.w.Write(s.buf); err != nil {
			return err
		}
		s.buf = s.buf[:0]
	}
	if err := s.ctrl.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
