package diag

import "fmt"

// Problem describes an error in a piece of source, with a hint on the right text. The zero value is
// no error.
type Problem struct{ Message, Hint string }

// Found reports whether something is wrong.
func (p Problem) Found() bool { return p.Message != "" }

// Report reports p at a place, as an error.
func (c *Collector) Report(at Pos, p Problem) { c.Errorf(at, p.Hint, "%s", p.Message) }

// Problemf returns the problem of a message, with the hint what to write instead.
func Problemf(hint, format string, args ...any) Problem {
	return Problem{fmt.Sprintf(format, args...), hint}
}

// DidYouMean returns the hint with what was probably meant.
func DidYouMean(what any) string { return fmt.Sprintf("did you mean \"%v\"?", what) }
