// Package usage says which option is wrong, in words for the person who wrote it.
//
// In go what was asked for and what there is. Out come errors that match ErrWrong, so that a
// command tells wrong usage from work that failed. It must never decide what an option means, nor
// print.
package usage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrWrong is matched by all errors of this package.
var ErrWrong = errors.New("wrong option")

// wrong is one error; its text stands alone, without that of ErrWrong.
type wrong struct{ text string }

func (e *wrong) Error() string        { return e.text }
func (e *wrong) Is(target error) bool { return target == ErrWrong }

// Wrongf returns an error about an option, matching ErrWrong.
func Wrongf(format string, args ...any) error {
	return &wrong{fmt.Sprintf(format, args...)}
}

// Known refuses the first of the chosen names that is not in the list. What is what such a name is
// called.
func Known(what string, chosen, list []string) error {
	for _, c := range chosen {
		if !slices.Contains(list, c) {
			return Wrongf("there is no %s %q: choose from %s", what, c, Words(list))
		}
	}
	return nil
}

// Words lists names for a sentence. Names with a space or a comma of their own are quoted, so that
// one sees where each ends.
func Words(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		if out[i] = n; strings.ContainsAny(n, " ,") {
			out[i] = strconv.Quote(n)
		}
	}
	return strings.Join(out, ", ")
}

// Numbers lists whole numbers for a sentence.
func Numbers(list []int) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, ", ")
}
