package jsonscan

// Space returns the position of the first byte of b at or after i that is not
// JSON whitespace, len(b) if there is none.
func Space(b []byte, i int) int {
	if i < len(b) && b[i] > ' ' {
		return i
	}
	return skipSpace(b, i)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// Key is the name of a member, b[Lo:Hi] without its quotes. The zero Key means
// that the object has ended.
type Key struct {
	Lo, Hi  int
	Escaped bool // the name must be decoded to be compared
}

// Member goes on in an object: from b[i], the byte after the opening brace
// (first) or after a member's value, to the next member. It returns the name
// and the position of the value's first byte; at the object's end the zero Key
// and the position after the closing brace. The value itself is not looked at.
func Member(b []byte, i int, first bool) (Key, int) {
	i = Space(b, i)
	if i < len(b) && b[i] == '}' {
		return Key{}, i + 1
	}
	if !first {
		if i >= len(b) || b[i] != ',' {
			return Key{}, fault(i, wantComma)
		}
		i = Space(b, i+1)
	}
	return name(b, i)
}

// name reads a member's name and its colon.
func name(b []byte, i int) (Key, int) {
	if i >= len(b) || b[i] != '"' {
		return Key{}, fault(i, wantName)
	}
	i++
	end, escaped := String(b, i)
	if end < 0 {
		return Key{}, end
	}
	colon := Space(b, end+1)
	if colon >= len(b) || b[colon] != ':' {
		return Key{}, fault(colon, wantColon)
	}
	return Key{i, end, escaped}, Space(b, colon+1)
}

// Element goes on in an array, as Member in an object: more is false at the
// array's end, and the position the one after the closing bracket.
func Element(b []byte, i int, first bool) (at int, more bool) {
	i = Space(b, i)
	if i < len(b) && b[i] == ']' {
		return i + 1, false
	}
	if first {
		return i, true
	}
	if i >= len(b) || b[i] != ',' {
		return fault(i, wantComma), false
	}
	return Space(b, i+1), true
}
