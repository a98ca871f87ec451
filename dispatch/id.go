package dispatch

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"

	"github.com/google/uuid"
)

// ID is a random number from which a connector makes what its two legs share.
// Engines take none twice: every try has one of its own.
type ID [16]byte

// NewID draws one.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	return id
}

// String is the ID in the form of a random UUID.
func (id ID) String() string {
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return uuid.UUID(id).String()
}

// hex is the ID as 32 hexadecimal digits.
func (id ID) hex() string { return hex.EncodeToString(id[:]) }

// room is a number of 62 bits, so that sums with small numbers have 63.
func (id ID) room() int64 { return int64(binary.BigEndian.Uint64(id[:]) >> 2) }
