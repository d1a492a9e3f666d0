// Package importer turns rule sets of other tools into levee policies.
//
// In goes the text of a rule set, out comes the text of a policy in the layout of `levee fmt`, and
// a report of what was changed or could not be carried over, rule by rule. Each format is a package
// above this one, with one function Import: classbench for filter sets, iptables and nft for the
// rulesets of netfilter, pf for those of pf. This one has what they share. Chains are flattened
// into one list, and what a policy has no words for is told by headers or left out
// (docs/guides/import.md). An importer must never print half a policy, drop a rule or its place in
// the order without saying so, or let text of its input become anything but what it was meant as:
// input is hostile, so its size, its lines and the errors about it are bounded.
package importer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"levee/internal/lang/syntax"
)

// Options say how an import is written. The zero value drops.
type Options struct {
	Action Action // of the imported rules, for formats that have none of their own
	Name   string // of the input, for errors and the heading: a file's base name
}

// Action is the action of imported rules.
type Action uint8

const (
	Drop      Action = iota
	Pass             // with it, the default is pass as well, so that the policy only counts
	Alternate        // r0 drops, r1 passes, r2 drops, ...
)

var actions = [...]string{"drop", "pass", "alternate"}

func (a Action) String() string { return actions[a] }

// ParseAction reads the name of an action.
func ParseAction(s string) (Action, error) {
	for i, name := range actions {
		if s == name {
			return Action(i), nil
		}
	}
	return 0, fmt.Errorf("no action %q: it is one of %s", s, strings.Join(actions[:], ", "))
}

// Of returns the action of the rule with this number, as the policy writes it.
func (a Action) Of(rule int) string {
	if a == Alternate {
		return actions[rule%2]
	}
	return actions[a]
}

// Report counts the rules of an import, and lists what differs from the source.
type Report struct {
	Rules int    // rules written
	Notes []Note // what differs from the source, in its order; those about all of it first
}

// Note is one thing that differs from the source.
type Note struct {
	Line int    `json:"line"` // in the source, from 1; 0 for all of it
	Text string `json:"text"`
}

// Bounds on what is read. The largest ClassBench sets in use have 100,000 rules in lines of under
// 100 bytes.
const (
	MaxRules  = 250_000 // in one input
	MaxLine   = 1024    // bytes of a line without its end
	MaxErrors = 100     // that are told; the others are counted
	maxLines  = 1 << 22 // of one input: what has more goes on without end
)

// Errors are the lines of an input that could not be read. Nothing was written.
type Errors struct {
	Name  string
	Lines []LineError // at most 100
	More  int         // further ones
}

// LineError is an error in one line.
type LineError struct {
	Line int
	Text string
}

// Error is one line for each error, "NAME:LINE: what is wrong".
func (e *Errors) Error() string {
	var b strings.Builder
	for i, l := range e.Lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: %s", e.Name, l.Line, l.Text)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more lines that could not be read", e.Name, e.More)
	}
	return b.String()
}

// Add adds an error; of more than 100 it only counts.
func (e *Errors) Add(line int, text string) {
	if len(e.Lines) == MaxErrors {
		e.More++
		return
	}
	e.Lines = append(e.Lines, LineError{line, text})
}

// ErrStop, returned by the function given to EachLine, ends the reading.
var ErrStop = errors.New("stop")

// EachLine calls f with each line of r, numbered from 1, without its end. A line longer than
// most bytes is given as its first ones with long set. Input of more than 64 MiB or maxLines lines
// is an error of its last line: it may have no end.
func EachLine(r io.Reader, most int, f func(n int, line string, long bool) error) error {
	limited := &io.LimitedReader{R: r, N: syntax.MaxSource + 1}
	in := bufio.NewReaderSize(limited, most+2) // with room for "\r\n"
	for n := 1; ; n++ {
		part, err := in.ReadSlice('\n')
		line := strings.TrimSuffix(strings.TrimSuffix(string(part), "\n"), "\r")
		long := len(line) > most
		for err == bufio.ErrBufferFull {
			long = true
			_, err = in.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return err
		}
		switch {
		case limited.N == 0:
			return tooLong{n, fmt.Sprintf("the input is larger than %d MiB", syntax.MaxSource>>20)}
		case n > maxLines:
			return tooLong{n, fmt.Sprintf("the input has more than %d lines", maxLines)}
		}
		if len(part) > 0 {
			if stop := f(n, line[:min(len(line), most)], long); stop != nil {
				return stop
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// NoText says why a line is of no text file, "" if it is.
func NoText(line string) string {
	switch {
	case !strings.ContainsRune(line, 0):
		return ""
	case strings.HasPrefix(line, "\xff\xfe"), strings.HasPrefix(line, "\xfe\xff"):
		return "this is UTF-16: give it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE"
	}
	return "has a byte 0: this is no text, or it is damaged"
}

// tooLong is the size at which an input is given up.
type tooLong struct {
	line int
	text string
}

func (e tooLong) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.text) }

// EndOf adds where reading was given up to the errors of an input. What else went wrong comes back.
func (e *Errors) EndOf(err error) error {
	var long tooLong
	switch {
	case errors.As(err, &long):
		e.Lines = append(e.Lines, LineError{long.line, long.text})
	case err != nil && !errors.Is(err, ErrStop):
		return fmt.Errorf("reading %s: %w", e.Name, err)
	}
	return nil
}

// Heading is text of the caller as it may stand in a comment: printable, in one line, short.
func Heading(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\ufffd' {
			return '?'
		}
		return r
	}, name)
	if r := []rune(name); len(r) > 80 {
		name = string(r[:80])
	}
	return name
}
