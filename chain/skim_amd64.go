package chain

import "golang.org/x/sys/cpu"

// useSkim says that the processor has what skim_amd64.s needs; LZCNT comes with
// every AVX2. Tests switch it off to compare.
var useSkim = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasPOPCNT

// skim: see skim.go. t.max must be 16 or more.
//
//go:noescape
func skim(dst, src *byte, n, step int, t *tokens) (done int, why halt)
