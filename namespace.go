package calinix

import (
	"bytes"
	"strconv"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// namespaces remembers the namespaces of a few models, by a hash of the model's
// name: clients name few, and always the same. So strangers who make names up
// cannot make it grow.
type namespaces [16]atomic.Pointer[namespaced]

type namespaced struct {
	model     []byte
	namespace string
}

// of is cacheNamespace, remembered.
func (n *namespaces) of(model []byte, blockSize int) string {
	if len(model) > maxNamespaceModel {
		return cacheNamespace(model, blockSize)
	}
	known := &n[xxhash.Sum64(model)%uint64(len(n))]
	if k := known.Load(); k != nil && bytes.Equal(k.model, model) {
		return k.namespace
	}
	k := &namespaced{bytes.Clone(model), cacheNamespace(model, blockSize)}
	known.Store(k)
	return k.namespace
}

// maxNamespaceModel is the length at which the model in a namespace is cut.
const maxNamespaceModel = 128

// cacheNamespace names the space in which a prompt's blocks are compared:
// openai:MODEL:whitespace-v1:block-N. Every byte of the model but letters,
// digits and -_.~ is written as %XX, so that it can neither split the header
// nor forge another namespace; the result is cut at 128 bytes, never inside an
// escape. A request without a model is of the model "unknown".
func cacheNamespace(model []byte, blockSize int) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len("openai:")+min(3*len(model), maxNamespaceModel)+len(":whitespace-v1:block-")+4)
	out = append(out, "openai:"...)
	if len(model) == 0 {
		out = append(out, "unknown"...)
	}
	room := maxNamespaceModel
	for _, c := range model {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == '~'
		size := 3
		if plain {
			size = 1
		}
		if room -= size; room < 0 {
			break
		}
		if plain {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	out = append(out, ":whitespace-v1:block-"...)
	out = strconv.AppendInt(out, int64(blockSize), 10)
	return string(out)
}
