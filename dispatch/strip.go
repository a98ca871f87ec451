package dispatch

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/calinix/caddy-calinix/internal/jsonscan"
	"github.com/calinix/caddy-calinix/jsonedit"
)

// reserved are the members by which engines tell each other where KV blocks, or
// what an encoder made of a picture, lie. From a client they would make an engine fetch from, or serve to, an
// address of the client's choice, so no leg carries them. They are found as
// loosely as any JSON reader finds them: escapes decoded, whatever their case.
var reserved = [...]string{
	kvTransferParams,
	"ec_transfer_params",
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

// carriers are the members whose own members vLLM copies to where it keeps the
// reserved ones: vllm_xargs of the OpenAI APIs (to_sampling_params), and
// extra_args below sampling_params of /inference/v1/generate.
var carriers = [...]string{"vllm_xargs", "sampling_params", "extra_args"}

// ErrCarried says that a carrier names a reserved member. No client has cause to
// write that, so it is refused (400), not removed.
var ErrCarried = errors.New("vllm_xargs, sampling_params and extra_args must not name a member that is reserved for the engines")

// AddressMark stands in every request id out of which vLLM's P2pNcclConnector
// reads addresses (___prefill_addr_…___decode_addr_…), and in no other.
const AddressMark = "_addr_"

// ErrAddressed says that the body's request_id, which vLLM takes where there is no
// X-Request-Id, may hold addresses of engines (400).
var ErrAddressed = errors.New("request_id must not name addresses of engines, nor hold escapes")

// addressed says whether a value of the member request_id may name engines.
func addressed(value []byte) bool {
	return bytes.Contains(value, []byte(AddressMark)) || bytes.IndexByte(value, '\\') >= 0
}

var requestID = []string{"request_id"}

// Strip removes the reserved members from the body of any request to the pods
// of a dispatch configuration. It appends the result to dst; if there was
// nothing to remove it returns body itself and changed is false, as it does
// for a body that is not a JSON object, unless that is ErrReserved. Besides that
// it fails with ErrCarried, with ErrAddressed, and if body has far too many members. Time is
// linear in the body; nothing is allocated but what dst lacks.
func Strip(dst, body []byte) (stripped []byte, changed bool, err error) {
	found, err := look(body)
	switch {
	case errors.Is(err, errTooMany):
		return nil, false, err
	case err != nil && namesReserved(body):
		return nil, false, ErrReserved
	case err == nil && found.carried:
		return nil, false, ErrCarried
	case err == nil && found.addressed:
		return nil, false, ErrAddressed
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
	reserved  bool
	carried   bool // reserved names in a carrier
	addressed bool // a request_id that names engines
	limits    [len(limits)]bool
}

// look reads the names of body's members. It fails if body is not one JSON
// object.
func look(body []byte) (p present, err error) {
	err = members(body, func(name, value []byte) {
		p.reserved = p.reserved || isOne(name, reserved[:])
		p.carried = p.carried || isOne(name, carriers[:]) && spellsReserved(value)
		p.addressed = p.addressed || isOne(name, requestID) && addressed(value)
		for i, limit := range limits {
			p.limits[i] = p.limits[i] || string(name) == limit
		}
	})
	return p, err
}

// isOne reports whether name is one of names, whatever its case.
func isOne(name []byte, names []string) bool {
	for _, one := range names {
		if bytes.EqualFold(name, []byte(one)) {
			return true
		}
	}
	return false
}

var errNoObject = errors.New("the body is not a JSON object")

// maxMembers is how many members a body may have. Each is compared with all the
// names that matter here, more than once, and noted if it is to change: a body of
// nothing but members would take half a second a megabyte, or several times its
// size in memory.
const maxMembers = 1 << 14

var errTooMany = fmt.Errorf("the body has more than %d members", maxMembers)

// members calls visit with the decoded name and the value of each top-level
// member of body; a name is valid during the call only. It fails if body is not
// one JSON object, or has more than maxMembers members.
func members(body []byte, visit func(name, value []byte)) error {
	i := jsonscan.Space(body, 0)
	if i >= len(body) || body[i] != '{' {
		return errNoObject
	}
	var decoded []byte
	i++
	for n := 0; ; n++ {
		key, at := jsonscan.Member(body, i, n == 0)
		if at < 0 {
			return jsonscan.Error(body, at)
		}
		if key == (jsonscan.Key{}) {
			if i = jsonscan.Space(body, at); i < len(body) {
				return jsonscan.Error(body, jsonscan.Trailing(i))
			}
			return nil
		}
		if n == maxMembers {
			return errTooMany
		}
		name := body[key.Lo:key.Hi]
		if key.Escaped {
			decoded = jsonscan.Unescape(decoded[:0], name)
			name = decoded
		}
		if i = jsonscan.Skip(body, at, 1); i < 0 {
			return jsonscan.Error(body, i)
		}
		visit(name, body[at:i])
	}
}
