// Package pattern makes automata that search payloads for texts and expressions.
//
// In go texts, bytes and regular expressions; out comes one deterministic automaton for all of them
// as a table that Go and eBPF step through alike, a load a byte. The package must never take
// more memory or time than its bounds say, whatever the expression, and knows neither packets nor
// policies.
package pattern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// Item is one thing to search for.
type Item struct {
	Text       []byte // bytes to be found; nil of an expression
	Expression string // in the syntax of RE2; each byte is the character of its number
}

// Bounds of an automaton.
const (
	// MaxTable is the largest table in bytes.
	MaxTable = 4 << 20
	// maxWork is the number of steps of the expression's own automaton that are followed to make
	// the table, less than a second.
	maxWork = 20_000_000
	// maxProgram is the largest number of instructions that package syntax may make of the items.
	maxProgram = 50_000
	// maxTogether bounds the steps of all automata that are made with one Work.
	maxTogether = 5 * maxWork
)

// The table begins with the class of each byte. Rows follow, one a state: for each class, and in
// the end for the end of the input, the offset in the table of the next state's row.
const (
	classes = 256
	entry   = 4
	// Slack is the least length of the table behind the beginning of any row, so that a
	// program needs one compare to know that a load lies within it.
	Slack = 256 * entry
)

// Machine is an automaton. States are offsets of their rows in Table.
type Machine struct {
	Table []byte
	// Accept and Dead are states that are never left, the first two of all: something was found, or
	// nothing can be found any more.
	Accept, Dead uint32
	Start, Last  uint32 // of an empty input; the highest of all
	End          uint32 // where in a row the state is that the input ends in
	States       int
}

// Stride returns the bytes of a row.
func (m *Machine) Stride() uint32 { return m.Dead - m.Accept }

// Run returns the state behind more bytes of the input.
func (m *Machine) Run(state uint32, b []byte) uint32 {
	for _, c := range b {
		if state <= m.Dead {
			break
		}
		state = m.at(state + entry*uint32(m.Table[c]))
	}
	return state
}

// Found tells whether something has been found in an input that ends in a state.
func (m *Machine) Found(state uint32) bool { return m.at(state+m.End) == m.Accept }

// AsksEnd tells whether the end of some input decides that something is found: `$`, or `\b` behind
// all else.
func (m *Machine) AsksEnd() bool {
	for at := m.Dead; at <= m.Last; at += m.Stride() {
		if m.Found(at) {
			return true
		}
	}
	return false
}

// Match tells whether anything is found in an input.
func (m *Machine) Match(b []byte) bool { return m.Found(m.Run(m.Start, b)) }

func (m *Machine) at(offset uint32) uint32 { return binary.LittleEndian.Uint32(m.Table[offset:]) }

// ErrEmpty is of items that are found in an empty payload, and so in all.
var ErrEmpty = errors.New("it is found in every payload")

// ErrNever is of items that no payload contains.
var ErrNever = errors.New("it is found in no payload")

// LargeError is of items whose automaton is too large.
type LargeError struct {
	States int // that were made until then
	Bytes  int // of their table
}

func (e *LargeError) Error() string {
	return fmt.Sprintf("it takes more than %d states", e.States)
}

// ErrSpent is of items that are one too many for a Work: nobody tries whether they can be searched
// for.
var ErrSpent = errors.New("what is searched for takes too long together")

// Work counts the steps that automata take together, as those of one policy. The zero value has
// taken none.
type Work struct{ steps int }

// Compile is the function of that name, as a part of the work.
func (w *Work) Compile(items []Item, anyCase bool) (*Machine, error) {
	if w.steps > maxTogether {
		return nil, ErrSpent
	}
	return w.compile(items, anyCase)
}

// Compile makes the automaton that finds any of the items. With anyCase letters of ASCII are found
// in either case.
func Compile(items []Item, anyCase bool) (*Machine, error) {
	return new(Work).Compile(items, anyCase)
}

// compile adds the steps that it takes.
func (w *Work) compile(items []Item, anyCase bool) (*Machine, error) {
	plain := true
	for _, it := range items {
		plain = plain && it.Text != nil
	}
	if plain {
		return compileTexts(items, anyCase)
	}
	re, err := parse(items, anyCase)
	if err != nil {
		return nil, err
	}
	return compileExpression(re, &w.steps)
}

// parse is one expression for all items.
func parse(items []Item, anyCase bool) (*syntax.Regexp, error) {
	flags := syntax.Perl
	if anyCase {
		flags |= syntax.FoldCase
	}
	all := make([]string, len(items))
	for i, it := range items {
		if it.Text == nil {
			if _, err := syntax.Parse(it.Expression, flags); err != nil {
				return nil, err // and not of what all together are
			}
			all[i] = "(?:" + it.Expression + ")"
			continue
		}
		var b strings.Builder
		b.WriteString("(?-i:")
		for _, c := range it.Text {
			if other := otherCase(c); anyCase && other != c {
				fmt.Fprintf(&b, "[%c%c]", c, other)
			} else {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		}
		b.WriteString(")")
		all[i] = b.String()
	}
	return syntax.Parse(strings.Join(all, "|"), flags)
}

// otherCase returns a letter of ASCII in the other case, and any other byte as it is.
func otherCase(c byte) byte {
	if l := c | 0x20; l >= 'a' && l <= 'z' {
		return c ^ 0x20
	}
	return c
}

// Example returns a shortest input in which something is found.
func (m *Machine) Example() []byte {
	type step struct {
		from uint32
		by   byte
	}
	var bytes [classes]bool
	var one []byte // of each class
	for c := classes - 1; c >= 0; c-- {
		if class := m.Table[c]; !bytes[class] {
			bytes[class] = true
			one = append(one, byte(c))
		}
	}
	came := map[uint32]step{m.Start: {}}
	for queue := []uint32{m.Start}; len(queue) > 0; queue = queue[1:] {
		state := queue[0]
		if m.Found(state) {
			var out []byte
			for ; state != m.Start; state = came[state].from {
				out = append(out, came[state].by)
			}
			slices.Reverse(out)
			return out
		}
		for _, c := range one {
			next := m.Run(state, []byte{c})
			if _, ok := came[next]; !ok && next != m.Dead {
				came[next] = step{state, c}
				queue = append(queue, next)
			}
		}
	}
	return nil
}
