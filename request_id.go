package calinix

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/google/uuid"
)

// newRequestID makes an id for a request that has none: a random UUID (version 4).
// It names the request in logs and to the pods, and protects nothing, so that it
// need not cost a call of the system.
func newRequestID() string {
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// usableRequestID reports whether id is 1 to 128 visible ASCII characters.
func usableRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] < '!' || id[i] > '~' {
			return false
		}
	}
	return true
}
