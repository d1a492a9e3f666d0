package bench

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"levee/internal/kernel"
	"levee/internal/usage"
)

// Options are those of every measurement. One that has no windows takes no Window.
type Options struct {
	Rounds  int
	Window  time.Duration
	Quick   bool   // short windows or few rounds: a look, not a figure to quote
	Seed    uint64 // of what is drawn
	Command string // to repeat it, for the report
	// Progress, if given, is told what is measured now.
	Progress func(Progress)

	begun time.Time
}

// Rounds of a measurement whose medians have 95 % intervals.
const (
	MinRounds = 6 // of fewer values no order statistic bounds the median at 95 %
	MaxRounds = 1000
)

// Usual holds the default options of a measurement, and their bounds.
type Usual struct {
	Rounds, QuickRounds int // QuickRounds 0: as many
	// FewestRounds and MostRounds are for measurements that are content with fewer, or bear fewer.
	FewestRounds, MostRounds int
	Window, QuickWindow      time.Duration // 0: whoever uses it knows
	Shortest, Longest        time.Duration // of a window
}

// Complete fills in what is usual and refuses what cannot be measured. The error matches
// usage.ErrWrong.
func (o *Options) Complete(u Usual) error {
	o.begun = time.Now()
	if o.Quick {
		u.Rounds, u.Window = cmp.Or(u.QuickRounds, u.Rounds), cmp.Or(u.QuickWindow, u.Window)
	}
	o.Rounds, o.Window = cmp.Or(o.Rounds, u.Rounds), cmp.Or(o.Window, u.Window)
	switch fewest, most := u.FewestRounds, u.MostRounds; {
	case most == 0 && (o.Rounds < MinRounds || o.Rounds > MaxRounds):
		return usage.Wrongf("%d rounds: a 95 %% interval of a median needs %d or more (and %d "+
			"are enough)", o.Rounds, MinRounds, MaxRounds)
	case most > 0 && (o.Rounds < fewest || o.Rounds > most):
		return usage.Wrongf("%d rounds: there must be %d to %d", o.Rounds, fewest, most)
	}
	if o.Window != 0 && (o.Window < u.Shortest || o.Window > u.Longest) {
		return usage.Wrongf("windows of %v: they last %v to %v", o.Window, short(u.Shortest),
			short(u.Longest))
	}
	return nil
}

// short returns a duration without the zero units that Go prints: 1m, not 1m0s.
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

// Ready returns an error for wrong options, and for a user who may not make the measurement of that
// name.
func Ready(name string, wrong ...error) error {
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return kernel.RefuseAs(os.ErrPermission, "measuring needs root: sudo levee bench %s", name)
	}
	return nil
}

// Wanted tells whether a name is among the chosen ones; none chosen means all.
func Wanted(chosen []string, name string) bool {
	return len(chosen) == 0 || slices.Contains(chosen, name)
}

// Choose keeps those of a list whose names are chosen, in the list's order. what is what a name is
// called that none of them has.
func Choose[T any](what string, chosen []string, list []T, name func(T) string) ([]T, error) {
	if err := usage.Known(what, chosen, Names(list, name)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(list),
		func(x T) bool { return !Wanted(chosen, name(x)) }), nil
}

// Names lists the names of things.
func Names[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = name(x)
	}
	return out
}

// CheckSizes refuses sizes that are not 1 to most.
func CheckSizes(sizes []int, most int) error {
	for _, n := range sizes {
		if n < 1 || n > most {
			return usage.Wrongf("a size of %d: 1 to %d", n, most)
		}
	}
	return nil
}
