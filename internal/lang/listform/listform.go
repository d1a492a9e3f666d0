// Package listform is the table of the ways in which a policy says what of a published list is an
// entry. The parser, the printer, the editor's words and the checks take them from here; the
// package feed has a reader for each.
//
// In goes a value as the policy has it, out comes whether it can be one. It must never read a list.
package listform

import (
	"errors"
	"fmt"
	"strconv"
)

// Form is one way. The zero value is that of lines, which no word stands for.
type Form uint8

// The forms.
const (
	Lines  Form = iota
	Field       // each value of one name in JSON
	Column      // of CSV, counted from 1
)

// Info describes a form of lists.
type Info struct {
	Word    string // in front of the value; "": the value, a text in quotes, stands alone
	What    string // the value is, in messages
	Example string // of a value
	Hint    string // what to write where Check refuses a value
	Check   func(value string) error
}

const maxColumn = 1000

var table = [...]Info{
	Lines: {},
	Column: {Word: "column", What: "the number of a column", Example: "2",
		Hint: "the first column is 1.",
		Check: func(value string) error {
			if n, err := strconv.ParseUint(value, 10, 32); err != nil || n < 1 || n > maxColumn {
				return fmt.Errorf("is no column from 1 to %d", maxColumn)
			}
			return nil
		}},
	Field: {What: "the name of a JSON value", Example: `"cidr"`,
		Hint: "write: add \"cidr\" to SET.",
		Check: func(value string) error {
			if value == "" {
				return errors.New("is no name of a value")
			}
			return nil
		}},
}

// Info returns what is known of it.
func (f Form) Info() *Info { return &table[f] }

// All returns the forms that a policy can say.
func All() (all []Form) {
	for f := Lines + 1; int(f) < len(table); f++ {
		all = append(all, f)
	}
	return all
}
