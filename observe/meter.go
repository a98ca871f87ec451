package observe

import (
	"bytes"
	"sync"
)

const (
	// tailBytes is how much of the end of an answer is looked at. The members
	// behind usage are short; the longest end is that of an event
	// response.completed.
	tailBytes = 4 << 10
	// headBytes is how much of the begin of a stream of messages is: its first
	// event has the prompt's tokens, and its last one may not.
	headBytes = 2 << 10
)

// Meter looks at an answer as it passes. It is used by one goroutine, first
// Begin, then Write as often as there is something, at last End. The zero value
// is ready for Begin; a nil *Meter takes no notice.
type Meter struct {
	form   Form
	head   bool // the begin is of interest
	pieces int
	buffer *buffer
}

// buffer is what a Meter keeps. The tail is the end of last: it is written on
// until it is full, and then its second half moves to the front, so that it lies
// in one piece and each byte is copied twice at most.
type buffer struct {
	last  [2 * tailBytes]byte
	n     int
	first [headBytes]byte
	begun int
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Begin makes the meter ready for a new answer. With head it also looks at the
// begin of the answer, which is for streams of the messages API.
func (m *Meter) Begin(form Form, head bool) {
	m.form, m.head = form, head && form == Events
	if m.buffer == nil {
		m.buffer = buffers.Get().(*buffer)
	}
	m.buffer.n, m.buffer.begun, m.pieces = 0, 0, 0
}

// Write takes notice of the next bytes of the answer. It keeps no reference to
// them.
func (m *Meter) Write(p []byte) {
	if m == nil || m.buffer == nil {
		return
	}
	b := m.buffer
	m.pieces++
	if m.head && b.begun < headBytes {
		b.begun += copy(b.first[b.begun:], p)
	}
	if len(p) >= tailBytes {
		b.n = copy(b.last[:], p[len(p)-tailBytes:])
		return
	}
	if b.n+len(p) > len(b.last) {
		b.n = copy(b.last[:], b.last[b.n-tailBytes:b.n])
	}
	b.n += copy(b.last[b.n:], p)
}

// Pieces returns in how many pieces the latest answer has come: engines send a
// stream token by token.
func (m *Meter) Pieces() int { return m.pieces }

// End returns what the answer has said, and gives the meter's memory back.
// Further Writes are ignored; a second End has nothing to say.
func (m *Meter) End() Usage {
	if m == nil || m.buffer == nil {
		return Usage{}
	}
	b := m.buffer
	u := Find(b.last[max(0, b.n-tailBytes):b.n], m.form)
	if m.head && u.Prompt == 0 {
		for line := range bytes.Lines(b.first[:b.begun]) {
			if start := Find(line, m.form); start.Prompt > 0 {
				start.Output = max(start.Output, u.Output)
				u = start
				break
			}
		}
	}
	m.buffer = nil
	buffers.Put(b)
	return u
}
