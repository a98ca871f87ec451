package testcaddy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Event is one event of an SSE stream.
type Event struct {
	Type string // of an event: line
	ID   string
	Data string    // the data: lines, joined by newlines
	Raw  string    // as it came, the empty line included
	At   time.Time // when the empty line that ends it had been read
}

// Stream is an answer that is read event by event.
type Stream struct {
	*http.Response
	Began, HeadersAt time.Time
	// Rest is what came after the last whole event, once Next has returned an
	// error.
	Rest string

	leave context.CancelFunc
	r     *bufio.Reader
	err   error
}

// Stream sends a POST and returns when the answer's headers are there. The test
// ends if none come. Read it with Next or All; end it with Leave or Close.
func (c *Client) Stream(tb testing.TB, path, body string, headers ...string) *Stream {
	tb.Helper()
	s, err := c.Open(tb, path, body, headers...)
	if err != nil {
		tb.Fatalf("opening a stream: %v", err)
	}
	return s
}

// Open is Stream for requests that may fail.
func (c *Client) Open(tb testing.TB, path, body string, headers ...string) (*Stream, error) {
	tb.Helper()
	ctx, leave := context.WithCancel(tb.Context())
	return c.open(tb, c.Request(ctx, tb, http.MethodPost, path, body, headers...), leave)
}

// open sends the request; leave ends its context.
func (c *Client) open(tb testing.TB, req *http.Request, leave context.CancelFunc) (*Stream, error) {
	s := &Stream{leave: leave, Began: time.Now()}
	defer s.impatient()()
	resp, err := c.HTTP.Do(req)
	if err == nil {
		err = c.checkProto(resp)
	}
	if err != nil {
		leave()
		return nil, err
	}
	s.HeadersAt = time.Now()
	s.Response, s.r = resp, bufio.NewReader(resp.Body)
	tb.Cleanup(s.Close)
	return s, nil
}

// impatient makes the client leave when the patience is over, unless what it
// returns is called before.
func (s *Stream) impatient() (stop func() bool) {
	return time.AfterFunc(AnswerPatience, s.leave).Stop
}

// NewStream reads the events of an answer that was had in another way, such as
// through a decompressor.
func NewStream(r io.Reader) *Stream {
	return &Stream{r: bufio.NewReader(r), leave: func() {}}
}

// Next returns the next event. io.EOF says that the answer has come to its
// declared end; every other error that it has not.
func (s *Stream) Next() (Event, error) {
	if s.err != nil {
		return Event{}, s.err
	}
	defer s.impatient()()
	var e Event
	var data []string
	for {
		line, err := s.r.ReadString('\n')
		e.Raw += line
		if err != nil {
			s.err, s.Rest = err, e.Raw
			return Event{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if strings.Trim(e.Raw, "\r\n") == "" { // an empty line more than needed
				continue
			}
			e.Data, e.At = strings.Join(data, "\n"), time.Now()
			return e, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.Type = value
		case "id":
			e.ID = value
		case "data":
			data = append(data, value)
		}
	}
}

// Unread is what is left of the answer. Body lacks what has been read ahead.
func (s *Stream) Unread() io.Reader { return s.r }

// All returns the events up to the end, and nil if that is the declared one.
func (s *Stream) All() ([]Event, error) {
	var all []Event
	for {
		e, err := s.Next()
		if err == io.EOF { // bare: an io.ErrUnexpectedEOF is another value, a wrapped EOF no end
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
}

// Take returns the next n events and ends the test if they do not come.
func (s *Stream) Take(tb testing.TB, n int) []Event {
	tb.Helper()
	all := make([]Event, n)
	for k := range all {
		var err error
		if all[k], err = s.Next(); err != nil {
			tb.Fatalf("event %d of %d: %v (the rest is %q)", k+1, n, err, s.Rest)
		}
	}
	return all
}

// Leave makes the client go away: an HTTP/1.1 connection is closed, an HTTP/2
// or HTTP/3 stream reset. It returns the time at which that was begun.
func (s *Stream) Leave() time.Time {
	at := time.Now()
	s.Close()
	return at
}

// Close is Leave for who does not ask when.
func (s *Stream) Close() {
	s.leave()
	if s.Response != nil {
		s.Body.Close()
	}
}

// Text joins the data of events.
func Text(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Data)
	}
	return b.String()
}
