//go:build !unix || aix

package calinix

// endsNext cannot look here.
func endsNext(uintptr) bool { return false }
