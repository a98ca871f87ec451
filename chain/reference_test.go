package chain

import (
	"unicode"
	"unicode/utf8"
)

// reference is the rule of this package word for word, a rune at a time. It is
// what the fast path is compared with, here and in the fuzz target.
func reference(o Options, seed uint64, text []byte) (hashes []uint64, ends []int) {
	block, tokens, prev := uint64(fnvOffset), 0, seed
	flush := func() {
		if tokens == 0 {
			return
		}
		prev = Combine(prev, block)
		hashes = append(hashes, prev)
		block, tokens = fnvOffset, 0
	}
	token := func(from, to int) {
		block = appendFNV(block, text[from:to])
		block = step(block, separator)
		if tokens++; tokens == 1 {
			ends = append(ends, to)
		}
		ends[len(ends)-1] = to
		if tokens >= max(1, o.BlockSize) {
			flush()
		}
	}
	run := func(from, to int) {
		if m := o.MaxTokenBytes; m > 0 {
			for ; to-from > m; from += m {
				token(from, from+m)
			}
		}
		if from < to {
			token(from, to)
		}
	}
	from := 0
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if unicode.IsSpace(r) {
			run(from, i)
			from = i + n
		}
		i += n
	}
	run(from, len(text))
	flush()
	return hashes, ends
}
