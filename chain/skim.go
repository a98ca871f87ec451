package chain

import "math/bits"

// tokens is how far the scanner is with the text's tokens. The layout is known to
// skim_amd64.s.
type tokens struct {
	after uint64 // 1 if the byte before is white space, or none
	run   int    // length of the open token, at most max
	need  int    // tokens that the block behind the last cut still takes
	max   int    // the longest token in bytes
	inner uint64 // all ones if a longer token can lie within a chunk
	space uint64 // the white space of the chunk at which skim has stopped
}

// halt is why skim has stopped.
type halt int

const (
	ranOut   halt = iota // all chunks are done
	unusual              // the chunk is copied, but not done: a block may end in it, white space is to drop, or a token is too long
	notASCII             // the chunk has not been looked at
)

// skim copies n chunks of ordinary text: ASCII, one byte of white space after each
// token, no token that is too long, no end of a block. A separator takes the place
// of the white space. dst goes on by step a chunk. It stops before the first chunk
// that is anything else, and returns how many came before.
//
// skimPlain is what skim does, in Go. The scanner needs neither: what stops skim
// is what it does for any chunk.
func skimPlain(dst, src []byte, n, step int, t *tokens) (done int, why halt) {
	for ; done < n; done++ {
		from := (*[windowBytes]byte)(src[done*chunkBytes:])
		if !ascii(from) {
			return done, notASCII
		}
		space := blend((*[chunkBytes]byte)(dst[done*step:]), from, separator)
		drop, long := t.edges(space)
		if n := bits.OnesCount64(space); drop != 0 || long || n >= t.need {
			t.space = space
			return done, unusual
		} else {
			t.need -= n
		}
		t.pass(space)
	}
	return done, ranOut
}

// edges returns the white space after white space in a chunk, and whether a token
// may be too long.
func (t *tokens) edges(space uint64) (drop uint64, long bool) {
	lead := bits.TrailingZeros64(space) // bytes that go on with the open token
	return space & (space<<1 | t.after), runs16(space)&t.inner != 0 || t.run+lead > t.max
}

// pass goes on to the next chunk behind one in which no token was cut.
func (t *tokens) pass(space uint64) {
	t.after = space >> 63
	if space != 0 {
		t.run = bits.LeadingZeros64(space)
	} else {
		t.run += chunkBytes
	}
}
