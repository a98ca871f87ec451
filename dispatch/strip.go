package dispatch

import (
	"bytes"
	"errors"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
	"github.com/calinix/caddy-calinix/jsonedit"
)

// reserved are the members by which engines tell each other where KV blocks
// lie. From a client they would make an engine fetch from, or serve to, an
// address of the client's choice, so no leg carries them. They are found as
// loosely as any JSON reader finds them: escapes decoded, whatever their case.
var reserved = [...]string{
	kvTransferParams,
	"bootstrap_host",
	"bootstrap_port",
	"bootstrap_room",
	"disaggregated_params",
}

const kvTransferParams = "kv_transfer_params"

// ErrReserved says that a body which is not JSON by the letter names a
// reserved member all the same. Some readers take more than JSON (NaN, UTF-16,
// a byte order mark, bytes after the end), so passing it on could hand the
// member to one of them, and it cannot be taken out of a text that cannot be
// read. The cure is the client's: send JSON in UTF-8 (400).
var ErrReserved = errors.New("the body is not well-formed JSON but seems to hold a member that is reserved for the engines")

// Strip removes the reserved members from the body of any request to the pods
// of a dispatch configuration. It appends the result to dst; if there was
// nothing to remove it returns body itself and changed is false, as it does
// for a body that is not a JSON object, unless that is ErrReserved. Time is
// linear in the body; nothing is allocated but what dst lacks.
func Strip(dst, body []byte) (stripped []byte, changed bool, err error) {
	found, err := look(body)
	if err != nil && namesReserved(body) {
		return nil, false, ErrReserved
	}
	if err != nil || !found.reserved {
		return body, false, nil //nolint:nilerr // what is no JSON goes on as it is; the pod says so
	}
	var room [len(reserved)]jsonedit.Edit
	stripped, err = jsonedit.Apply(dst, body, withoutReserved(room[:0])...)
	return stripped, true, err
}

// withoutReserved appends to edits the removal of the reserved members.
func withoutReserved(edits []jsonedit.Edit) []jsonedit.Edit {
	for _, name := range reserved {
		edits = append(edits, jsonedit.Edit{Name: name, Fold: true})
	}
	return edits
}

// present is what a body holds of the members that matter here.
type present struct {
	reserved bool
	limits   [len(limits)]bool
}

// look reads the names of body's members. It fails if body is not one JSON
// object.
func look(body []byte) (p present, err error) {
	err = members(body, func(name []byte) {
		p.reserved = p.reserved || isReserved(name)
		for i, limit := range limits {
			p.limits[i] = p.limits[i] || string(name) == limit
		}
	})
	return p, err
}

func isReserved(name []byte) bool {
	for _, r := range reserved {
		if bytes.EqualFold(name, []byte(r)) {
			return true
		}
	}
	return false
}

var errNoObject = errors.New("the body is not a JSON object")

// members calls visit with the decoded name of each top-level member of body;
// a name is valid during the call only. It fails if body is not one JSON
// object.
func members(body []byte, visit func(name []byte)) error {
	i := jsonscan.Space(body, 0)
	if i >= len(body) || body[i] != '{' {
		return errNoObject
	}
	var decoded []byte
	first := true
	for i++; ; first = false {
		key, at := jsonscan.Member(body, i, first)
		if at < 0 {
			return jsonscan.Error(body, at)
		}
		if key == (jsonscan.Key{}) {
			if i = jsonscan.Space(body, at); i < len(body) {
				return jsonscan.Error(body, jsonscan.Trailing(i))
			}
			return nil
		}
		name := body[key.Lo:key.Hi]
		if key.Escaped {
			decoded = jsonscan.Unescape(decoded[:0], name)
			name = decoded
		}
		visit(name)
		if i = jsonscan.Skip(body, at, 1); i < 0 {
			return jsonscan.Error(body, i)
		}
	}
}
