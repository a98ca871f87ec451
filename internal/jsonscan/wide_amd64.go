package jsonscan

import "golang.org/x/sys/cpu"

// useWide says that the processor has what wide_amd64.s needs. Tests switch it
// off to compare.
var useWide = cpu.X86.HasAVX2

// indexWide returns the position of the first byte of s that is a quote, a
// backslash, a control character or not ASCII; len(s) if there is none. s has
// at least 32 bytes.
//
//go:noescape
func indexWide(s []byte) int

// copyWide is indexWide that copies what it sees of s to dst, which has room
// for all of it: what lies before the returned position, and some more.
//
//go:noescape
func copyWide(dst *byte, s []byte) int
