package chain

import (
	"bytes"
	"math"
	"math/bits"
	"unicode"
)

// What the blocks' hashes cover is a stream: the tokens, each with a separator
// behind it, and nothing between them. Ordinary text becomes a stream by
// putting the separator in the place of the space, so 64 bytes of it are copied
// at a time. Whatever is not ordinary (two spaces in a row, a long token, white
// space beyond ASCII) ends the copy early, is dealt with, and the next 64 bytes
// begin behind it.
const (
	streamBytes = 16 << 10
	// streamMask keeps an index below streamBytes, so that it need not be
	// checked.
	streamMask = streamBytes - 1
	// streamSlack is what may be read and written beyond that.
	streamSlack = 3 * chunkBytes
	// tailBytes holds less than a window of text and white space to fill a
	// window that begins anywhere in it.
	tailBytes = 2 * windowBytes
	// maxCuts suffices for ordinary text in blocks of 16 tokens.
	maxCuts = streamBytes / chunkBytes
)

type stream [streamBytes + streamSlack]byte

// A cut is the end of a block, in the text and in the stream.
type cut struct {
	end, to int
}

// A workspace holds the stream, as much of it as is needed, and the cuts in it.
type workspace struct {
	stream stream
	cuts   [maxCuts]cut
}

// scanner writes a text's stream and cuts it into blocks. It runs through the
// text once, as far as it is asked to.
type scanner struct {
	text  []byte
	src   []byte // what is read: the text, at its end tail
	off   int    // where in the text src begins
	pos   int    // next byte of src
	limit int    // up to here src has a window from pos on
	stop  int    // in the tail: where the text ends; before: -1
	tail  [tailBytes]byte

	max   int    // the longest token in bytes
	inner uint64 // all ones if a longer token can lie within a chunk
	tiny  uint64 // all ones if max is below 16
	after uint64 // 1 if the byte before pos is white space, or none
	run   int    // length of the open token, at most max
	clear int    // up to here src is known to be free of white space
	shut  bool   // and this is where white space begins

	work  *workspace
	dst   int // where the stream ends
	keep  int // where it begins
	start int // where in it the next block begins that is to be handed out
	first int // the cut that ends this block
	cuts  int // how many cuts there are
	block int // tokens in a block
	need  int // tokens that the block behind the last cut still takes
}

func (s *scanner) reset(o Options, text []byte) {
	if s.work == nil {
		s.work = new(workspace)
	}
	s.text, s.src, s.off = text, text, 0
	s.pos, s.limit, s.stop = 0, len(text)-windowBytes, -1
	s.max, s.inner, s.tiny = math.MaxInt, 0, 0
	if o.MaxTokenBytes > 0 {
		s.max = o.MaxTokenBytes
	}
	if s.max < chunkBytes {
		s.inner = math.MaxUint64
	}
	if s.max < 16 {
		s.tiny = math.MaxUint64
	}
	s.after, s.run, s.clear, s.shut = 1, 0, 0, false
	s.dst, s.keep, s.start, s.first, s.cuts = 0, 0, 0, 0, 0
	s.block = max(1, o.BlockSize)
	s.need = s.block
}

// done tells whether the text is read whole and its last block handed out.
func (s *scanner) done() bool {
	return s.first == s.cuts && s.need == s.block && s.spent()
}

// spent tells whether the text is read whole.
func (s *scanner) spent() bool {
	return s.stop >= 0 && s.pos >= s.stop && s.after == 1
}

// more tells whether text is left where less than a window of src is. It goes
// over to the tail: the rest of the text with white space behind it, which ends
// the last token as any other.
func (s *scanner) more() bool {
	if s.stop < 0 {
		s.stop = copy(s.tail[:], s.src[s.pos:])
		for i := s.stop; i < len(s.tail); i++ {
			s.tail[i] = ' '
		}
		s.src, s.off = s.tail[:], s.off+s.pos
		s.pos, s.clear, s.limit = 0, 0, -1
	}
	return !s.spent()
}

// full tells whether the stream has no room for a chunk.
func (s *scanner) full() bool {
	return s.dst-s.keep > streamBytes-streamSlack
}

// fill reads on until so many blocks are cut, or the stream is full, or the
// text is at its end, which ends a last block of fewer tokens. It tells whether
// there are any cuts. There must be none left before.
func (s *scanner) fill(blocks int) bool {
	s.first, s.cuts = 0, 0
	blocks = min(blocks, maxCuts-chunkBytes)
	for s.cuts < blocks && !s.full() {
		switch {
		case s.pos < s.clear:
			s.pieces()
		case s.pos <= s.limit || s.more():
			s.chunk()
		default:
			if s.need < s.block {
				s.cut(len(bytes.TrimRightFunc(s.text, unicode.IsSpace)), s.dst)
			}
			return s.cuts > 0
		}
	}
	return s.cuts > 0
}

// chunk reads the next bytes of the text, at most 64, into the stream.
func (s *scanner) chunk() {
	src := (*[windowBytes]byte)(s.src[s.pos : s.pos+windowBytes : s.pos+windowBytes])
	dst := (*[chunkBytes]byte)(s.work.stream[s.dst&streamMask:])
	var space uint64
	wide, size := chunkBytes, 0
	if ascii(src) {
		space = blend(dst, src, 0xff)
	} else {
		space, wide, size = blendWide(dst, src, 0xff)
	}

	double := space & (space<<1 | s.after) // white space after white space
	lead := bits.TrailingZeros64(space)    // bytes that go on with the open token
	if double|s.suspects(space) != 0 || s.run+lead > s.max || wide < chunkBytes {
		if s.special(space, double, wide, size) {
			return
		}
	}
	s.tokens(space, 0)
	s.after = space >> 63
	if space == 0 {
		s.run += chunkBytes
	} else {
		s.run = bits.LeadingZeros64(space)
	}
	s.advance(chunkBytes, chunkBytes)
}

// advance goes on by so many bytes that were read from the text and written to
// the stream. The bytes at the ring's end are kept in step with those at its
// beginning, so that nobody needs to look where it ends.
func (s *scanner) advance(read, written int) {
	ring, at := &s.work.stream, s.dst&streamMask
	if (at-strideBytes)&streamMask+strideBytes+written >= streamBytes {
		if at < strideBytes {
			copy(ring[streamBytes:], ring[:strideBytes])
		} else {
			copy(ring[:streamSlack], ring[streamBytes:])
		}
	}
	s.pos += read
	s.dst += written
}

// tokens counts the tokens of the chunk that begins here, and cuts the blocks
// that they fill. Bit i of ends tells that a token ends before byte i of the
// stream and, as token j of the chunk, before byte i-lag*j of the text.
func (s *scanner) tokens(ends uint64, lag int) {
	n := bits.OnesCount64(ends)
	base := s.off + s.pos
	for n >= s.need {
		n -= s.need
		bit := nthBit(ends, s.need)
		ends &^= uint64(2)<<bit - 1
		base -= lag * s.need
		s.cut(base+lag+bit, s.dst+bit+1)
	}
	s.need -= n
}

// cut ends a block.
func (s *scanner) cut(end, to int) {
	s.work.cuts[s.cuts&(maxCuts-1)] = cut{end, to}
	s.cuts++
	s.need = s.block
}

// suspects returns 0 if no token longer than max lies within the chunk. It
// looks for runs of 16 bytes, as the common limit is 16; special looks closer.
func (s *scanner) suspects(space uint64) uint64 {
	r := ^space
	r &= r << 1
	r &= r << 2
	r &= r << 4
	r &= r << 8
	return r&s.inner | s.tiny
}
