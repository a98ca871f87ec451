package yard

import "math/rand/v2"

// Prose returns English-like text of exactly size bytes: words of 1 to 9 letters,
// no two texts alike.
func Prose(r *rand.Rand, size int) []byte {
	text := make([]byte, 0, size+16)
	for len(text) < size {
		text = append(appendWord(text, r), ' ')
	}
	return text[:size]
}

// Escaped returns text of exactly size bytes in which JSON has to escape a
// character about each gap bytes: line ends, quotes, tabs.
func Escaped(r *rand.Rand, size, gap int) []byte {
	text := make([]byte, 0, size+16)
	for next := gap; len(text) < size; {
		text = appendWord(text, r)
		if len(text) >= next {
			text = append(text, [...]string{"\n", "\n", "\n\n", "\" ", "\t"}[r.IntN(5)]...)
			next = len(text) + gap/2 + r.IntN(gap)
			continue
		}
		text = append(text, ' ')
	}
	return text[:size]
}

func appendWord(text []byte, r *rand.Rand) []byte {
	for range 1 + r.IntN(9) {
		text = append(text, byte('a'+r.IntN(26)))
	}
	return text
}
