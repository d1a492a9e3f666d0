// Package option says which option of a measurement is wrong, in words for the person who wrote it.
//
// In go what was asked for and what there is; out come errors that match ErrWrong, so that a command tells wrong
// usage from work that failed. It must never decide what an option means, nor print anything.
package option

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrWrong is what all errors of this package match.
var ErrWrong = errors.New("wrong option")

// wrong is one error; its text stands alone, without that of ErrWrong.
type wrong struct{ text string }

func (e *wrong) Error() string        { return e.text }
func (e *wrong) Is(target error) bool { return target == ErrWrong }

// Wrongf is an error about an option, matching ErrWrong.
func Wrongf(format string, args ...any) error {
	return &wrong{fmt.Sprintf(format, args...)}
}

// Known refuses the first of the chosen names that is not in the list. What is what such a name is called.
func Known(what string, chosen, list []string) error {
	for _, c := range chosen {
		if !slices.Contains(list, c) {
			return Wrongf("there is no %s %q: choose from %s", what, c, Words(list))
		}
	}
	return nil
}

// Words lists names for a sentence. Names with a space or a comma of their own are quoted, so that one sees
// where each ends.
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

// Rounds of a measurement whose medians have 95 % intervals.
const (
	MinRounds = 6 // of fewer values no order statistic bounds the median at 95 %
	MaxRounds = 1000
)

// Rounds refuses a number of rounds that gives no 95 % interval of a median, and one without end.
func Rounds(n int) error {
	if n < MinRounds || n > MaxRounds {
		return Wrongf("%d rounds: a 95 %% interval of a median needs %d or more (and %d are enough)", n, MinRounds, MaxRounds)
	}
	return nil
}

// Window refuses a length of windows that is not within the two.
func Window(d, shortest, longest time.Duration) error {
	if d < shortest || d > longest {
		return Wrongf("windows of %v: they last %v to %v", d, short(shortest), short(longest))
	}
	return nil
}

// short is a duration without the zero units that Go prints: 1m, not 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
