package fakepod

import (
	"encoding/json"
	"net/http"
	"time"
)

// Reply is what a pod does with one request. The zero value is the ok script:
// 200 with JSON that names the pod or, if the request says "stream":true, an
// SSE stream of 5 chunks 20 ms apart, a finish chunk and data: [DONE].
//
// The fields combine: a Reply may wait, answer a status, stream slowly and then
// break off.
type Reply struct {
	// Delay passes between the end of the request and the status line.
	Delay time.Duration
	// Hold, if not nil, is awaited after Delay: the status line goes out when
	// the channel is closed. With HoldAfter it is awaited after that many pieces
	// of the body instead: the answer has begun and stays under way for as long
	// as the test wants.
	Hold      <-chan struct{}
	HoldAfter int
	// Silent never answers: the request is read and recorded, then nothing
	// comes until the peer or the pod ends the connection.
	Silent bool

	// Status is the status code; 0 is 200.
	Status int
	// Header is added to the answer's header and replaces what the pod would
	// say by itself. A Content-Length here is sent as it stands, true or not.
	Header http.Header
	// Body is the body as it stands. nil makes one that fits the path, or an
	// error object if Status is 400 or above.
	Body []byte
	// Content is the text that the made body answers with; "" is a default
	// that names the pod.
	Content string
	// CachedTokens is told in the usage of made bodies.
	CachedTokens int

	// Stream says whether the answer is a stream; the default is what the
	// request asks for. A Status of 400 or above or a Body never streams.
	Stream Stream
	// FirstChunk passes between the headers and the first piece of the body.
	FirstChunk time.Duration
	// Chunks is the number of content chunks of a stream; 0 is 5, NoChunks none.
	Chunks int
	// ChunkBytes pads every content chunk (data: …\n\n) to this size. Below
	// about 200 a chunk of the OpenAI shape does not fit and a smaller JSON
	// object is sent instead.
	ChunkBytes int
	// Gap passes between two chunks; 0 is 20 ms, NoGap none.
	Gap time.Duration
	// Pause passes, once, after PauseAfter content chunks, in addition to Gap.
	Pause      time.Duration
	PauseAfter int
	// LateEnd passes between the last piece of the body and its end.
	LateEnd time.Duration
	// Events, if not nil, are the pieces of the stream, each written as it
	// stands and in one write; nothing is added.
	Events []string

	// KV, if not nil, is the value of a member kv_transfer_params added to a
	// made JSON body: what a prefill pod answers. Use Null for the JSON null.
	KV json.RawMessage
	// Gzip encodes a body that is not streamed and says so.
	Gzip bool
	// Framing says how the end of the body is told on HTTP/1.1.
	Framing Framing

	// Cut breaks the answer off at At.
	Cut Cut
	At  At
	// Close ends the connection in good order after the whole answer, which
	// announces it with Connection: close.
	Close bool

	// Raw, if not nil, is written instead of any answer, exactly as it stands
	// (HTTP/1.1 only); Cut and Close decide what follows, At does not count.
	Raw []byte
}

// Null is a KV that is sent as the JSON null.
var Null = json.RawMessage("null")

const (
	// NoGap sends the chunks of a stream without a pause.
	NoGap time.Duration = -1
	// NoChunks makes a stream without content chunks.
	NoChunks = -1

	defaultGap    = 20 * time.Millisecond
	defaultChunks = 5
)

// Stream says whether a Reply is an SSE stream.
type Stream uint8

// The ways to stream.
const (
	AsAsked Stream = iota // if the request's body says "stream":true
	Always
	Never
)

// Framing says how the end of an HTTP/1.1 body is told.
type Framing uint8

// The framings.
const (
	AutoFraming Framing = iota // chunked for streams, Content-Length otherwise
	Chunked                    // Transfer-Encoding: chunked
	Length                     // Content-Length, also for a stream
	UntilClose                 // by the end of the connection
)

// Cut is the way in which a pod breaks off.
type Cut uint8

// The ways to break off.
const (
	NoCut Cut = iota
	// Reset ends the TCP connection with a reset (SO_LINGER 0). All bytes
	// written before have left the pod. Every stream of an HTTP/2 connection
	// dies with it.
	Reset
	// Close ends the TCP connection in good order (FIN), as an engine does that
	// exits.
	Close
	// Abort resets only this stream of an HTTP/2 connection (RST_STREAM). On
	// HTTP/1.1 it is Close.
	Abort
)

// At is a place in an answer at which it can be cut. The zero value is before
// the headers.
type At struct {
	where place
	n     int
}

type place uint8

const (
	beforeHeaders place = iota
	afterHeaders
	afterChunks
	afterBytes
	halfBody
)

// Places to cut at.
var (
	// BeforeHeaders is after the request, before the status line.
	BeforeHeaders = At{}
	// AfterHeaders is after the empty line that ends the headers.
	AfterHeaders = At{where: afterHeaders}
	// HalfBody is in the middle of the body: inside the declared
	// Content-Length, or inside the middle chunk of a stream.
	HalfBody = At{where: halfBody}
)

// AfterChunks is after k whole pieces of the body. A body that is not streamed
// is one piece.
func AfterChunks(k int) At { return At{where: afterChunks, n: k} }

// AfterBytes is after n bytes of the body.
func AfterBytes(n int) At { return At{where: afterBytes, n: n} }

// Script chooses the Reply for a request. Reply itself is one that always
// chooses itself.
type Script interface {
	// next returns the script to use for the coming request: itself, or for a
	// sequence the one whose turn it is. The pod's lock is held.
	next() Script
}

func (r Reply) next() Script { return r }

// Func computes the Reply from the request, of which it gets a copy. It runs on
// the connection's goroutine without any lock and may call the pod's methods,
// other than Close and those that await a request's end.
type Func func(r Request) Reply

func (f Func) next() Script { return f }

// Unread acts before the request's body has been read to its end: after Bytes
// of it (0: the body is left alone). It takes effect for the pod's script, for
// SetPath, Next and SetHealth, but not behind a predicate (When), for which
// the body must be known.
type Unread struct {
	Bytes int64
	Reply Reply
}

func (u Unread) next() Script { return u }

// Sequence uses one script after another, one a request, and stays with the
// last.
func Sequence(scripts ...Script) Script { return &sequence{list: scripts} }

// Cycle uses one script after another, one a request, and starts again.
func Cycle(scripts ...Script) Script { return &sequence{list: scripts, cycle: true} }

type sequence struct {
	list  []Script
	cycle bool
	at    int
}

func (s *sequence) next() Script {
	if len(s.list) == 0 {
		return Reply{}
	}
	now := s.list[s.at]
	switch {
	case s.at+1 < len(s.list):
		s.at++
	case s.cycle:
		s.at = 0
	}
	return now.next()
}
