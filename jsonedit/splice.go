package jsonedit

// hit is a member that an edit is about.
type hit struct {
	member
	edit int // the edit whose value it gets, or goes
	next int // first byte of the member after it; the member's end if none
}

// What may become of a member instead of getting an edit's value.
const (
	stays = -1
	goes  = -2
)

// find looks for the edit about m: the edit whose value it gets, stays or goes.
func find(edits []Edit, m *member, body []byte) int {
	folded := stays
	for i := len(edits) - 1; i >= 0; i-- {
		e := &edits[i]
		if m.is(body, e.Name) {
			if e.Value == nil {
				return goes
			}
			return i
		}
		if e.Fold && m.folds(body, e.Name) {
			folded = goes
		}
	}
	return folded
}

// splice appends to dst the body up to its last member's end, the hits changed
// or removed. gone is the number of those removed.
func splice(dst, body []byte, edits []Edit, hits []hit) (out []byte, gone int) {
	from := 0 // body up to here has been dealt with
	for i := range hits {
		h := &hits[i]
		if h.edit != goes {
			dst = append(dst, body[from:h.value]...)
			dst = append(dst, edits[h.edit].Value...)
			from = h.end
			continue
		}
		if h.index > gone { // a member before it stays: the comma between them goes
			dst = append(dst, body[from:h.comma]...)
			from = h.end
		} else { // the comma after it goes, if there is one
			dst = append(dst, body[from:h.start()]...)
			from = h.next
		}
		gone++
	}
	return append(dst, body[from:]...), gone
}

// add appends the members that edits set and that the body has not; alone
// says that no member stands before them. last is zero for edits without hit.
func add(dst []byte, edits []Edit, last []int, alone bool) []byte {
	for i := range edits {
		e := &edits[i]
		if e.Value == nil || last[i] > 0 || repeated(edits[i+1:], e.Name) {
			continue
		}
		if !alone {
			dst = append(dst, ',')
		}
		alone = false
		dst = appendName(dst, e.Name)
		dst = append(dst, ':')
		dst = append(dst, e.Value...)
	}
	return dst
}

// repeated reports whether a later edit has that name, which then counts.
func repeated(later []Edit, name string) bool {
	for i := range later {
		if later[i].Name == name {
			return true
		}
	}
	return false
}

// appendName appends name as a JSON string.
func appendName(dst []byte, name string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
