package index

import (
	"math/bits"
	"strconv"
	"strings"
)

// Pods is how many pods one index can tell apart: the width of a Bitmap.
const Pods = 256

// Bitmap is a set of pods, one bit a pod. It is a value: copying copies the
// set, == compares two sets, the zero value is the empty set. Pod numbers
// outside 0 to 255 are never members; setting or clearing them does nothing.
type Bitmap [Pods / 64]uint64

// All returns the set {0, …, n-1}. n is clamped to 0…256.
func All(n int) Bitmap {
	var b Bitmap
	for w := range b {
		switch {
		case n >= 64:
			b[w] = ^uint64(0)
		case n > 0:
			b[w] = 1<<uint(n) - 1
		}
		n -= 64
	}
	return b
}

// Of returns the set of the given pods.
func Of(pods ...int) Bitmap {
	var b Bitmap
	for _, p := range pods {
		b.Set(p)
	}
	return b
}

// Set adds pod i.
func (b *Bitmap) Set(i int) {
	if uint(i) < Pods {
		b[uint(i)/64] |= 1 << (uint(i) % 64)
	}
}

// Clear removes pod i.
func (b *Bitmap) Clear(i int) {
	if uint(i) < Pods {
		b[uint(i)/64] &^= 1 << (uint(i) % 64)
	}
}

// Has reports whether pod i is a member.
func (b *Bitmap) Has(i int) bool {
	return uint(i) < Pods && b[uint(i)/64]>>(uint(i)%64)&1 != 0
}

// And returns the pods that are in both sets.
func (b Bitmap) And(o Bitmap) Bitmap {
	return Bitmap{b[0] & o[0], b[1] & o[1], b[2] & o[2], b[3] & o[3]}
}

// AndNot returns the pods of b that are not in o.
func (b Bitmap) AndNot(o Bitmap) Bitmap {
	return Bitmap{b[0] &^ o[0], b[1] &^ o[1], b[2] &^ o[2], b[3] &^ o[3]}
}

// Or returns the pods that are in either set.
func (b Bitmap) Or(o Bitmap) Bitmap {
	return Bitmap{b[0] | o[0], b[1] | o[1], b[2] | o[2], b[3] | o[3]}
}

// Intersects reports whether the sets share a pod.
func (b Bitmap) Intersects(o Bitmap) bool {
	return b[0]&o[0]|b[1]&o[1]|b[2]&o[2]|b[3]&o[3] != 0
}

// Empty reports whether the set has no members.
func (b Bitmap) Empty() bool {
	return b[0]|b[1]|b[2]|b[3] == 0
}

// Count returns the number of members.
func (b Bitmap) Count() int {
	return bits.OnesCount64(b[0]) + bits.OnesCount64(b[1]) +
		bits.OnesCount64(b[2]) + bits.OnesCount64(b[3])
}

// Next returns the smallest member that is at least i, or -1. The loop over
// all members, in order, is
//
//	for p := b.Next(0); p >= 0; p = b.Next(p + 1) { … }
func (b *Bitmap) Next(i int) int {
	i = max(i, 0)
	for w := uint(i) / 64; w < uint(len(b)); w++ {
		if rest := b[w] >> (uint(i) % 64); rest != 0 {
			return i + bits.TrailingZeros64(rest)
		}
		i = (i | 63) + 1
	}
	return -1
}

// String lists the members with runs shortened, as in "{0,3,8-15}".
func (b Bitmap) String() string {
	var s strings.Builder
	s.WriteByte('{')
	for p := b.Next(0); p >= 0; p = b.Next(p + 1) {
		if s.Len() > 1 {
			s.WriteByte(',')
		}
		s.WriteString(strconv.Itoa(p))
		last := p
		for b.Has(last + 1) {
			last++
		}
		if last > p {
			s.WriteByte('-')
			s.WriteString(strconv.Itoa(last))
		}
		p = last
	}
	s.WriteByte('}')
	return s.String()
}
