package enginesim

import (
	"math"
	"strconv"
)

// get returns the member of that name; absent and null are the same, a zero node.
func (n node) get(key string) node {
	for i := len(n.kids) - 1; i >= 0 && n.isObject(); i-- {
		if n.kids[i].key == key {
			if n.kids[i].isNull() {
				return node{}
			}
			return n.kids[i]
		}
	}
	return node{}
}

func (n node) first() byte {
	if len(n.raw) == 0 {
		return 0
	}
	return n.raw[0]
}

func (n node) absent() bool   { return len(n.raw) == 0 }
func (n node) isNull() bool   { return n.first() == 'n' }
func (n node) isObject() bool { return n.first() == '{' }
func (n node) isArray() bool  { return n.first() == '[' }
func (n node) isString() bool { return n.first() == '"' }
func (n node) isTrue() bool   { return n.first() == 't' }
func (n node) isFalse() bool  { return n.first() == 'f' }

// str returns the decoded string, "" if the value is none.
func (n node) str() string {
	if !n.isString() {
		return ""
	}
	return unquote(n.raw)
}

// integer returns the value of a number without a fraction.
func (n node) integer() (int64, bool) {
	if v, err := strconv.ParseInt(string(n.raw), 10, 64); err == nil {
		return v, true
	}
	c := n.first()
	if c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(n.raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<62 {
		return 0, false
	}
	return int64(f), true
}
