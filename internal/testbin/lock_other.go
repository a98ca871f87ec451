//go:build !unix

package testbin

// Lock does not lock: run packages one after another there (go test -p 1).
func Lock(string) (unlock func(), err error) { return func() {}, nil }
