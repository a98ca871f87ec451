package jsonscan

// Form says what keeps a value's text from being its shortest spelling.
type Form uint8

// The bits of a Form.
const (
	Spaced  Form = 1 << iota // whitespace between tokens
	Escaped                  // escapes in strings
)

// Value finds the end of the value that begins at b[i]: the position after its
// last byte. depth is the number of containers open around it. form describes
// the value's text.
func Value(b []byte, i, depth int) (end int, form Form) {
	if i < len(b) && (b[i] == '{' || b[i] == '[') {
		return container(b, i, depth)
	}
	return scalar(b, i)
}

// Skip is Value for callers that need only the end.
func Skip(b []byte, i, depth int) int {
	end, _ := Value(b, i, depth)
	return end
}

// Whole reports the fault of b as one JSON value with nothing but whitespace
// around it; 0 if it is one.
func Whole(b []byte) int {
	i := Skip(b, Space(b, 0), 0)
	if i < 0 {
		return i
	}
	if i = Space(b, i); i < len(b) {
		return Trailing(i)
	}
	return 0
}

func scalar(b []byte, i int) (int, Form) {
	if i >= len(b) {
		return fault(i, wantValue), 0
	}
	switch c := b[i]; {
	case c == '"':
		end, escaped := String(b, i+1)
		if end < 0 {
			return end, 0
		}
		if escaped {
			return end + 1, Escaped
		}
		return end + 1, 0
	case c == '-' || '0' <= c && c <= '9':
		return number(b, i), 0
	case c == 't':
		return literal(b, i, "true"), 0
	case c == 'f':
		return literal(b, i, "false"), 0
	case c == 'n':
		return literal(b, i, "null"), 0
	}
	return fault(i, wantValue), 0
}

func literal(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return fault(i, badLiteral)
	}
	return i + len(word)
}

func number(b []byte, i int) int {
	start := i
	if b[i] == '-' {
		i++
	}
	lead := i
	i = digits(b, i)
	if i == lead || b[lead] == '0' && i > lead+1 {
		return fault(start, badNumber)
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = digits(b, from); i == from {
			return fault(start, badNumber)
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = digits(b, from); i == from {
			return fault(start, badNumber)
		}
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// levels is how many open containers one call of container keeps in a word;
// deeper ones are a call of their own.
const levels = 64

// container is Value for the object or array at b[i].
func container(b []byte, i, depth int) (int, Form) {
	var (
		form    Form
		objects uint64 // lowest bit: the innermost open container is an object
		open    int
	)
	for {
		// b[i] begins a value.
		if c := byteAt(b, i); c != '{' && c != '[' {
			end, f := scalar(b, i)
			if end < 0 {
				return end, form
			}
			i, form = end, form|f
		} else if open == levels {
			end, f := container(b, i, depth+levels)
			if end < 0 {
				return end, form
			}
			i, form = end, form|f
		} else {
			if depth+open >= MaxDepth {
				return fault(i, tooDeep), form
			}
			open++
			objects <<= 1
			at := Space(b, i+1)
			if at != i+1 {
				form |= Spaced
			}
			i = at
			switch {
			case c == '{' && byteAt(b, i) == '}', c == '[' && byteAt(b, i) == ']':
				i++
				open--
				objects >>= 1
			case c == '{':
				objects |= 1
				k, at := name(b, i)
				if at < 0 {
					return at, form
				}
				i, form = at, form|keyForm(k, at)
				continue
			default:
				continue
			}
		}
		// A value has ended before b[i].
		for {
			if open == 0 {
				return i, form
			}
			at := Space(b, i)
			if at != i {
				form |= Spaced
			}
			c := byteAt(b, at)
			i = at + 1
			if c == ',' {
				break
			}
			if c != ']'+('}'-']')*byte(objects&1) || at >= len(b) {
				return fault(at, wantComma), form
			}
			open--
			objects >>= 1
		}
		at := Space(b, i)
		if at != i {
			form |= Spaced
		}
		i = at
		if objects&1 != 0 {
			k, at := name(b, i)
			if at < 0 {
				return at, form
			}
			i, form = at, form|keyForm(k, at)
		}
	}
}

// keyForm is the form of a name, its colon and what stands between them and
// the value at at.
func keyForm(k Key, at int) Form {
	var form Form
	if at != k.Hi+2 {
		form = Spaced
	}
	if k.Escaped {
		form |= Escaped
	}
	return form
}

// byteAt is b[i], 0 past the end.
func byteAt(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}
