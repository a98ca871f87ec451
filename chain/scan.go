package chain

import (
	"bytes"
	"math"
	"math/bits"
	"strings"
	"sync"
	"unicode"
)

// What the blocks' hashes cover is a stream: the tokens, each with a separator
// behind it, and nothing between them. Ordinary text becomes a stream by
// putting the separator in the place of the space, so 64 bytes of it are copied
// at a time. Only where that is not all (two spaces in a row, a token that is
// too long, white space beyond ASCII) is a part of the chunk written again.
const (
	// streamBytes is the size of the ring that holds the stream: a power of two.
	streamBytes = 16 << 10
	// streamMask keeps an index within the ring, so that it need not be checked.
	streamMask = streamBytes - 1
	// streamSlack is what a chunk may write, at most: twice its size, and what
	// rewrite copies too much.
	streamSlack = 4 * chunkBytes
	// tailBytes holds less than a window of text and white space behind it, for
	// two chunks.
	tailBytes = chunkBytes + windowBytes
	// maxCuts suffices for ordinary text in blocks of 16 tokens.
	maxCuts = streamBytes / chunkBytes
)

// A stream is a ring, with room behind its end for what is written beyond it.
type stream [streamBytes + streamSlack]byte

// A cut is the end of a block, in the text and in the stream.
type cut struct {
	end, to int
}

// A workspace holds the stream, as much of it as is needed, the cuts in it, and
// room for rewrite.
type workspace struct {
	stream stream
	cuts   [maxCuts]cut
	spare  [2 * chunkBytes]byte
}

// workspaces are those of finished chains.
var workspaces = sync.Pool{New: func() any { return new(workspace) }}

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

	tokens
	tiny  uint64 // all ones if max is below 16
	every uint64 // each max-th bit
	spill uint64 // bytes from pos on that belong to white space before pos

	work  *workspace
	dst   int // where the stream ends
	keep  int // where it begins
	start int // where in it the next block begins that is to be handed out
	first int // the cut that ends this block
	cuts  int // how many cuts there are
	block int // tokens in a block
}

func (s *scanner) reset(o Options, text []byte) {
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
	s.every = 0
	for i := 0; i < chunkBytes; i += min(s.max, chunkBytes) {
		s.every |= 1 << i
	}
	s.after, s.spill, s.run = 1, 0, 0
	s.dst, s.keep, s.start, s.first, s.cuts = 0, 0, 0, 0, 0
	s.block = max(1, o.BlockSize)
	s.need = s.block
}

// open makes sure that there is a workspace.
func (s *scanner) open() {
	if s.work == nil {
		s.work = workspaces.Get().(*workspace)
	}
}

// finish lets go of a text that is read whole, of which src has the end, and of
// the workspace.
func (s *scanner) finish() {
	s.text = nil
	if s.work != nil {
		workspaces.Put(s.work)
		s.work = nil
	}
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
		copy(s.tail[s.stop:], blank)
		s.src, s.off = s.tail[:], s.off+s.pos
		s.pos, s.limit = 0, -1
	}
	return !s.spent()
}

var blank = strings.Repeat(" ", tailBytes)

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
		if s.pos > s.limit && !s.more() {
			if s.need < s.block {
				s.cut(len(bytes.TrimRightFunc(s.text, unicode.IsSpace)), s.dst)
			}
			break
		}
		s.chunks(blocks)
	}
	return s.cuts > 0
}

// chunks reads on, 64 bytes at a time, as far as fill wants, but not beyond the
// ring's end. There must be room for one chunk.
func (s *scanner) chunks(blocks int) {
	ring := &s.work.stream
	begin, room := s.dst, min(s.dst|streamMask, s.keep+streamBytes-streamSlack)
	for {
		var space, wide uint64
		why := notASCII
		if useSkim && s.tiny == 0 {
			n := 1 + max(0, min(s.limit-s.pos, room-s.dst))/chunkBytes
			n, why = skim(&ring[s.dst&streamMask], &s.src[s.pos], n, chunkBytes, &s.tokens)
			s.pos += n * chunkBytes
			s.dst += n * chunkBytes
		}
		if why != ranOut {
			src := (*[windowBytes]byte)(s.src[s.pos : s.pos+windowBytes : s.pos+windowBytes])
			out := ring[s.dst&streamMask:]
			if why == unusual {
				space = s.space
			} else {
				space, wide = s.look((*[chunkBytes]byte)(out), src)
			}
			s.dst += s.chunk(out, src, space, wide)
			s.pos += chunkBytes
		}
		if s.pos > s.limit || s.dst > room || s.cuts >= blocks {
			break
		}
	}
	// What lies at the ring's end and beyond it, and at its beginning, must agree:
	// nobody who reads or writes looks where the ring ends.
	if begin&streamMask < strideBytes {
		copy(ring[streamBytes:], ring[:strideBytes])
	}
	if s.dst > begin|streamMask {
		copy(ring[:s.dst&streamMask], ring[streamBytes:])
	}
}

// look copies a chunk, with separators instead of ASCII's white space, and returns
// where white space is; see wide for what is beyond ASCII.
func (s *scanner) look(out *[chunkBytes]byte, src *[windowBytes]byte) (space, wide uint64) {
	if ascii(src) {
		return blend(out, src, separator), 0
	}
	return s.wide(out, src)
}

// chunk makes a piece of the stream of a chunk that look has copied to out, counts
// its tokens and cuts the blocks that end in it. It returns how long the piece is.
func (s *scanner) chunk(out []byte, src *[windowBytes]byte, space, wide uint64) int {
	drop, split := s.divide(space)
	size := chunkBytes
	if drop|split != 0 {
		size += bits.OnesCount64(split) - bits.OnesCount64(drop)
		if space == 0 {
			spread(out, src, split)
		} else {
			s.rewrite(out, drop, split)
		}
	}
	for wide &^= drop; wide != 0; wide &= wide - 1 {
		i := bits.TrailingZeros64(wide)
		out[moved(i, drop, split)] = separator
	}
	ends := space&^drop | split
	if n := bits.OnesCount64(ends); n < s.need {
		s.need -= n
	} else {
		s.count(ends, drop, split, s.pos, s.dst)
	}
	s.next(space, split)
	return size
}

// divide returns what of a chunk's white space is to drop, because it stands after
// white space, and the bytes before which a token ends because it is too long.
func (s *scanner) divide(space uint64) (drop, split uint64) {
	drop = space & (space<<1 | s.after)
	runs, lead := runs16(space), bits.TrailingZeros64(space)
	if runs&s.inner|s.tiny != 0 || s.run+lead > s.max {
		split = s.splits(space, runs, s.run)
	}
	return drop, split
}

// next goes on to the next chunk.
func (s *scanner) next(space, split uint64) {
	if s.tokens.pass(space); split != 0 {
		s.run = min(bits.LeadingZeros64(space), bits.LeadingZeros64(split)+1)
	}
}

// count counts the tokens of a chunk that begins at pos in src and at dst in the
// stream, and cuts the blocks that they fill. Bit i of ends tells that a token
// ends before byte i of the chunk.
func (s *scanner) count(ends, drop, split uint64, pos, dst int) {
	n := bits.OnesCount64(ends)
	for n >= s.need {
		n -= s.need
		i := nthBit(ends, s.need)
		ends &^= uint64(2)<<i - 1
		s.cut(s.off+pos+i, dst+moved(i, drop, split)+1)
	}
	s.need -= n
}

// cut ends a block.
func (s *scanner) cut(end, to int) {
	s.work.cuts[s.cuts&(maxCuts-1)] = cut{end, to}
	s.cuts++
	s.need = s.block
}
