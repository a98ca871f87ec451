package chain

import (
	"bytes"
	"math"
	"testing"
)

// FuzzChain compares the fast chain with the reference: for any bytes, options
// and sequence of steps. Texts are repeated, as a fuzzer's own are short.
func FuzzChain(f *testing.F) {
	for _, text := range awkwardTexts() {
		f.Add([]byte(text), uint8(40), uint16(4), uint16(16), uint64(0), []byte{8})
	}
	f.Fuzz(func(t *testing.T, text []byte, times uint8, block, limit uint16, seed uint64, steps []byte) {
		text = bytes.Repeat(text, min(int(times)+1, 1+50_000/max(1, len(text))))
		o := Options{BlockSize: int(block), MaxTokenBytes: int(limit)}
		checkChain(t, new(Chain), o, seed, text, steps)
		defer func(on bool) { useSkim = on }(useSkim)
		useSkim = false
		checkChain(t, new(Chain), o, seed, text, steps)
	})
}

// A failer is a test of any kind.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkChain extends c by the given steps and compares it with the reference.
func checkChain(t failer, c *Chain, o Options, seed uint64, text []byte, steps []byte) {
	t.Helper()
	hashes, ends := reference(o, seed, text)
	c.Reset(o, seed, text)
	check := func(least int) {
		t.Helper()
		got := c.Hashes()
		if len(got) < least || len(got) > len(hashes) {
			t.Fatalf("%d blocks, want %d to %d (%+v)", len(got), least, len(hashes), o)
		}
		for k := range got {
			if got[k] != hashes[k] || c.End(k) != ends[k] {
				t.Fatalf("block %d of %d: hash %016x end %d, want %016x and %d (%+v)",
					k, len(hashes), got[k], c.End(k), hashes[k], ends[k], o)
			}
		}
	}
	for _, s := range steps {
		want := len(c.Hashes()) + int(s)
		if got := c.Extend(want); got != len(c.Hashes()) {
			t.Fatalf("Extend returned %d of %d blocks", got, len(c.Hashes()))
		}
		check(min(want, len(hashes)))
		if s%3 == 0 {
			count(t, c, len(hashes), o)
		}
	}
	count(t, c, len(hashes), o)
	if got := c.Complete(); got != len(hashes) || !c.Done() {
		t.Fatalf("Complete returned %d blocks, done %v, want %d (%+v)", got, c.Done(), len(hashes), o)
	}
	check(len(hashes))
}

func count(t failer, c *Chain, want int, o Options) {
	t.Helper()
	c.total = 0 // count again
	if got := c.Blocks(); got != want {
		t.Fatalf("Blocks returned %d behind %d, want %d (%+v)", got, len(c.Hashes()), want, o)
	}
}

// FuzzSkim compares skim with its twin.
func FuzzSkim(f *testing.F) {
	for _, text := range awkwardTexts() {
		f.Add([]byte(text), uint8(40), uint16(16), uint16(100), uint8(3), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, times uint8, limit, need uint16, run uint8, after bool) {
		text = bytes.Repeat(text, min(int(times)+1, 1+50_000/max(1, len(text))))
		checkSkim(t, text, int(limit), int(need), int(run), after)
	})
}

// checkSkim lets skim and its twin read the text from several places.
func checkSkim(t failer, text []byte, limit, need, run int, after bool) {
	t.Helper()
	if !useSkim {
		return // nothing to compare
	}
	for from := 0; from < 200 && len(text)-from >= windowBytes; from += 61 {
		src := text[from:]
		n := (len(src)-windowBytes)/chunkBytes + 1
		start := tokens{run: run, need: 1 + need, max: max(16, limit)}
		if start.max < chunkBytes {
			start.inner = math.MaxUint64
		}
		if start.run = min(start.run, start.max); after {
			start.after, start.run = 1, 0
		}
		fast, plain := start, start
		got, want := make([]byte, n*chunkBytes), make([]byte, n*chunkBytes)
		k, why := skim(&got[0], &src[0], n, chunkBytes, &fast)
		wantK, wantWhy := skimPlain(want, src, n, chunkBytes, &plain)
		if k != wantK || why != wantWhy || fast != plain {
			t.Fatalf("skim did %d of %d chunks, %d, %+v; want %d, %d, %+v", k, n, why, fast, wantK, wantWhy, plain)
		}
		if !bytes.Equal(got[:k*chunkBytes], want[:k*chunkBytes]) {
			t.Fatalf("skim copied %q, want %q", got[:k*chunkBytes], want[:k*chunkBytes])
		}
	}
}

// awkwardTexts are short texts with everything that is not plain words and
// single spaces.
func awkwardTexts() []string {
	return []string{
		"",
		" \t\r\n\v\f ",
		"one",
		"a  b\n\nc \t d",
		"\x00\x01\x08\x0e\x1c\x1f\x7f control bytes\x0bare\x0cnot all spaces",
		"0123456789abcdef 0123456789abcdef0 0123456789abcdef0123456789abcdef 0123456789abcdef0123456789abcdef0",
		"no\u00a0break\u0085next\u1680ogham\u2000q\u2001q\u200aq\u2028l\u2029p\u202fn\u205fm\u3000i",
		"not\u200bspace\u180enor\ufeffthis\u2060 or\u00c5this \u2080\u20a0\u3001\u3002",
		"\xe2\x80 \x80\xe3\x80\x80\xe3\x80 \xc2\xa0 \xc2 \xa0 \xe1\x9a \x80\xff\xfe \xf0\xe2\x80\x80",
		"这是一个没有空格的很长的中文句子。\u3000ひらがなとカタカナ、「引用」！",
		"aGVsbG8gd29ybGQgdGhpcyBpcyBhIGxvbmcgYmFzZTY0IHN0cmluZyB3aXRob3V0IHdoaXRlIHNwYWNlIGFuZCBpdCBnb2VzIG9u/+==",
	}
}
