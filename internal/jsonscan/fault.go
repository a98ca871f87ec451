package jsonscan

import "fmt"

// MaxDepth is how many containers may be open at once, the limit of
// encoding/json.
const MaxDepth = 10000

// The causes of a fault. The zero cause is a byte that no rule allows.
const (
	wantValue = iota
	wantName
	wantColon
	wantComma
	badLiteral
	badNumber
	badEscape
	unfinished
	badControl
	badUTF8
	tooDeep
	trailing
)

var causes = [...]string{
	wantValue:  "want a value",
	wantName:   "want a member name in quotes",
	wantColon:  "want a colon after the member name",
	wantComma:  "want a comma or the closing bracket",
	badLiteral: "want true, false or null",
	badNumber:  "malformed number",
	badEscape:  "malformed escape in a string",
	unfinished: "unfinished string",
	badControl: "control character in a string, want it escaped",
	badUTF8:    "not UTF-8",
	tooDeep:    "nested too deep",
	trailing:   "data after the end of the value",
}

const causeBits = 4

// fault packs a position and its cause into a negative position.
func fault(pos, cause int) int { return ^(pos<<causeBits | cause) }

// Trailing is the fault of data at pos after a complete value.
func Trailing(pos int) int { return fault(pos, trailing) }

// SyntaxError says where and why a text is not JSON.
type SyntaxError struct {
	Offset int    // of the first byte that cannot stay
	Cause  string // what is wrong with it or what was wanted
	End    bool   // the text ends at Offset, too early
}

func (e *SyntaxError) Error() string {
	if e.End {
		return fmt.Sprintf("malformed JSON: the text ends at byte %d: %s", e.Offset, e.Cause)
	}
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.Offset, e.Cause)
}

// Error explains a negative position that a function of this package returned
// for b.
func Error(b []byte, pos int) *SyntaxError {
	pos = ^pos
	at := pos >> causeBits
	return &SyntaxError{Offset: at, Cause: causes[pos&(1<<causeBits-1)], End: at >= len(b)}
}
