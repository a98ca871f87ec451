package prompt

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
)

// maxDigits is the length of the longest token id, room what one needs with a
// space.
const (
	maxDigits = 18
	room      = maxDigits + 1
)

// idList reads an array of token ids and appends them to the arena. ok says
// that it is one, and not empty.
func (s *scan) idList(at, depth int) (ok bool, end int) {
	b := s.body
	lo := len(s.arena)
	out, i, count := s.arena, at+1, 0
	for {
		if i = jsonscan.Space(b, i); i >= len(b) {
			break
		}
		if cap(out)-len(out) < room {
			out = slices.Grow(out, room+len(out))
		}
		n := digits(b[i:], out[len(out):len(out)+8])
		if n == 8 {
			for i+n < len(b) && b[i+n]-'0' <= 9 {
				n++
			}
			copy(out[len(out):len(out)+maxDigits], b[i:i+n])
		}
		if n == 0 || n > maxDigits || b[i] == '0' && n > 1 {
			break
		}
		out = out[:len(out)+n]
		count++
		if i = jsonscan.Space(b, i+n); i >= len(b) {
			break
		}
		if b[i] == ']' {
			s.arena = out
			s.ids += count
			return true, i + 1
		}
		if b[i] != ',' {
			break
		}
		i++
		out = append(out, ' ')
	}
	s.arena = s.arena[:lo]
	return false, s.skip(at, depth)
}

// digits counts the decimal digits at the start of b, up to eight, and copies
// them to out, which has eight bytes; what it leaves behind them has no
// meaning. One load, one store and no branch on the length of the number.
func digits(b, out []byte) int {
	if len(b) < 8 {
		n := 0
		for n < len(b) && b[n]-'0' <= 9 {
			out[n] = b[n]
			n++
		}
		return n
	}
	const ones = 0x0101010101010101
	x := binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(out, x)
	// A byte is a digit if it is 0 to 9 after '0' has been taken from it. What
	// is borrowed by a smaller one spoils only those after it.
	x -= '0' * ones
	return bits.TrailingZeros64((x+0x76*ones|x)&(0x80*ones)) >> 3
}
