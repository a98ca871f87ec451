package prompt

import "slices"

// writer renders segments.
type writer struct {
	*scan
	out []byte

	turn   segment // the turn that we are in
	due    bool    // its marker has not been written
	long   bool    // what precedes would seem to go on in a text that follows
	result int     // the segment after the tool's result that we are in; -1

	media int // media written so far

	leading bool // no turn so far but system turns
	system  span // of out: those; empty until the first
	opening span // of out: from the first turn to the end of the user's first
}

// render appends the prompt to out. system is the part of its leading system
// turns, opening all turns up to the end of the user's first; it is empty if the
// user has none.
func (s *scan) render(out []byte) (text []byte, system, opening span) {
	size, media := 0, 0
	for i := range s.segments {
		size += s.segments[i].size()
		if s.segments[i].op == opMedia {
			media++
		}
	}
	size += min(media, maxMedia) * (mediaTokens - 1) * tokenBytes
	w := writer{scan: s, out: slices.Grow(out, size), result: -1}
	w.write(s.tools)
	w.write(s.functions)
	w.write(s.documents)
	w.leading = true
	if w.opening.lo = len(w.out); w.opening.lo > 0 {
		w.opening.lo++ // after the separator
	}
	w.write(s.prelude)
	w.endTurn()
	w.write(s.references)
	for _, g := range s.turns {
		w.write(g)
	}
	w.endTurn()
	w.endSystem()
	return w.out, w.system, w.opening
}

// endTurn ends the turn that we are in.
func (w *writer) endTurn() {
	if w.turn.op == opTurn {
		w.flush()
	}
	if w.turn.letter == 'u' && w.opening.hi == 0 {
		w.opening.hi = len(w.out)
	}
	w.turn, w.due = segment{}, false
}

// flush writes the turn's marker, if that is due.
func (w *writer) flush() {
	if !w.due {
		return
	}
	w.due, w.long = false, false
	w.enter(w.turn.letter)
	if w.turn.letter == 'x' {
		w.token('x', uint64(w.turn.lo))
	} else {
		w.marker(w.turn.letter)
	}
}

// enter notes that a turn begins.
func (w *writer) enter(letter byte) {
	switch {
	case letter != 's' && letter != 'd':
		w.endSystem()
	case w.leading && w.system.hi == 0:
		w.system.lo = len(w.out)
		if w.system.lo > 0 {
			w.system.lo++ // after the separator
		}
		w.system.hi = w.system.lo + 1
	}
}

// endSystem notes that no leading system turn follows.
func (w *writer) endSystem() {
	if w.leading && w.system.hi > 0 {
		w.system.hi = len(w.out)
	}
	w.leading = false
}

// write renders a span of segments.
func (w *writer) write(g span) {
	for i := g.lo; i < g.hi; i++ {
		if i == w.result {
			w.endResult()
		}
		w.segment(&w.segments[i])
	}
	if g.hi == w.result {
		w.endResult()
	}
}

// endResult goes back from a tool's result to the turn that it stood in.
func (w *writer) endResult() {
	w.result = -1
	w.due = true
	w.turn.op = opSoftTurn
}

func (w *writer) segment(g *segment) {
	switch g.op {
	case opTurn, opSoftTurn:
		w.endTurn()
		w.turn, w.due = *g, true
	case opResult:
		w.due, w.long = false, false
		w.enter('t')
		w.marker('t')
		w.result = g.hi
	case opBilling:
		if w.turn.letter != 's' {
			w.text(g)
		}
	case opText:
		w.text(g)
	case opLong:
		if g.hi > g.lo {
			w.flush()
			w.marker(g.letter)
			w.separate()
			w.out = append(w.out, w.of(g)...)
			w.long = true
		}
	case opToken, opMedia:
		if w.turn.op == opNothing {
			w.endSystem()
		}
		w.flush()
		w.token(g.letter, uint64(g.lo))
		if g.op == opMedia {
			w.repeat()
		}
	case opCall:
		w.flush()
		w.marker('c')
		w.long = true
	case opArgs:
		w.separate()
		w.out = appendArguments(w.out, w.of(g))
	case opNoArgs:
		w.separate()
		w.out = append(w.out, noArguments...)
	case opJSON:
		w.separate()
		w.out = appendShort(w.out, w.body[g.lo:g.hi], g.form)
	case opTool:
		w.marker('F')
		w.out = append(w.out, '\n', '{')
	case opMember:
		w.comma()
		w.out = append(w.out, memberNames[g.letter]...)
		w.out = appendShort(w.out, w.body[g.lo:g.hi], g.form)
	case opMore:
		w.comma()
		w.out = append(w.out, w.of(g)...)
	case opToolEnd:
		w.out = append(w.out, '}')
	case opDocs:
		w.marker('D')
	case opNext:
		w.marker('p')
	default: // a slot that was not filled
	}
}

// text writes a text.
func (w *writer) text(g *segment) {
	if g.hi == g.lo {
		return
	}
	w.flush()
	if w.long {
		w.marker('=')
		w.long = false
	}
	w.separate()
	w.out = append(w.out, w.of(g)...)
}

// of is the string of a segment.
func (w *writer) of(g *segment) []byte { return w.bytes(str{g.span, g.from}) }

// separate writes the newline between two things.
func (w *writer) separate() {
	if len(w.out) > 0 {
		w.out = append(w.out, '\n')
	}
}

// comma writes the comma before a member, if another precedes it.
func (w *writer) comma() {
	if w.out[len(w.out)-1] != '{' {
		w.out = append(w.out, ',')
	}
}

func (w *writer) marker(letter byte) {
	w.separate()
	w.out = append(w.out, mark, letter)
}

// tokenBytes is the length of a marker with a hash, and the newline before it.
const tokenBytes = 1 + 2 + 11

// repeat writes the token that was written last again, until media count as many
// as they shall.
func (w *writer) repeat() {
	if w.media++; w.media > maxMedia {
		return
	}
	lo := len(w.out) - (tokenBytes - 1)
	for range mediaTokens - 1 {
		w.separate()
		w.out = append(w.out, w.out[lo:lo+tokenBytes-1]...)
	}
}

// token writes a marker with a hash: 64 bits in eleven letters, so that it is
// one token under any sensible limit of a token's length.
func (w *writer) token(letter byte, hash uint64) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	w.marker(letter)
	for range 11 {
		w.out = append(w.out, letters[hash&63])
		hash >>= 6
	}
}
