// Package chain turns the text of a prompt into the chain of its blocks: the
// identity by which the index knows which pods hold how much of the prompt. It
// is the last step of preparing a request, behind prompt, and feeds index: a
// query hashes as many blocks as it needs, registering hashes the rest.
//
// # The rule
//
// A token is a run of bytes between white space, which is what unicode.IsSpace
// says of the text's characters. Bytes that are not valid UTF-8 belong to
// tokens. With MaxTokenBytes = m > 0 a run is cut, from its start, into tokens of
// m bytes, the last of which may be shorter: a run of n bytes counts as ceil(n/m)
// tokens. So text without spaces (Chinese, base64, long paths) falls into blocks
// of sensible size. Cuts count bytes and may fall inside a character.
//
// A block is BlockSize tokens; the text's last block may have fewer. Its hash is
// 64-bit FNV-1a over the bytes of each token, each followed by one byte 0xff.
// White space itself is not hashed, nor how much of it there is.
//
// The chain is the list of cumulative hashes c[k] = FNV-1a(c[k-1], b[k]), both
// as eight bytes in little-endian order, where b[k] is the hash of block k and
// c[-1] the seed. So equal c[k] mean equal seeds and equal first k+1 blocks. The
// seed stands for all besides the text that must be equal: see Seed.
//
// Example, with BlockSize 2 and MaxTokenBytes 4:
//
//	text    "to  be or\n not-to-be"
//	blocks  to be | or not- | to-b e
//	ends        6        15       20
//
// What follows from it:
//   - Prefix: the full blocks of a text are the first blocks of every text that
//     begins with it and goes on with white space. If its last run of bytes goes
//     on instead, this still holds for all blocks that end before that run, or
//     with a piece of m bytes in it.
//   - Ends: the text up to End(k) has the same first k+1 hashes as the whole.
//
// # How it is computed
//
// The scanner (scan.go, words.go, unicode.go, rewrite.go) copies the text, 64
// bytes at a time, into a stream: the bytes that the hashes cover. Ordinary text
// it leaves to skim (skim.go), which AVX2 does. The lanes
// (lanes.go, turn.go) hash four blocks of the stream side by side and combine in
// a fifth lane. Both give, bit for bit, what the plain rule gives, which the
// tests hold beside them (reference_test.go). English in blocks of 32 tokens
// takes two thirds of the time of one plain pass of FNV-1a over the same bytes,
// the head of a long text what its own bytes take.
package chain
