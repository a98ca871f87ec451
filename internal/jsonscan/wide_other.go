//go:build !amd64

package jsonscan

var useWide = false

func indexWide([]byte) int       { panic("jsonscan: no wide instructions") }
func copyWide(*byte, []byte) int { panic("jsonscan: no wide instructions") }
