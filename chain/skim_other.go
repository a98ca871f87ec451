//go:build !amd64

package chain

var useSkim = false

func skim(*byte, *byte, int, int, *tokens) (int, halt) { panic("chain: no skim on this processor") }
