package literal

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/diag"
)

// MaxProblem is for a text that is no number from 1 to most; what stands before it.
func MaxProblem(what, text string, most int) diag.Problem {
	hint := ""
	plain := strings.NewReplacer("_", "", "'", "").Replace(text)
	switch {
	case plain != text && AllDigits(plain):
		hint = diag.DidYouMean(plain)
	case len(text) > 1 && AllDigits(text[:len(text)-1]) &&
		strings.ContainsAny(text[len(text)-1:], "kKmM"):
		zeros := "000"
		if strings.ContainsAny(text[len(text)-1:], "mM") {
			zeros = "000000"
		}
		hint = diag.DidYouMean(text[:len(text)-1] + zeros)
	}
	return diag.Problemf(hint, "%s is a number from 1 to %d, not %s", what, most, diag.Clip(text))
}

// Bounds of a lease.
const (
	minLease = time.Millisecond
	MaxLease = 520 * 7 * 24 * time.Hour // about ten years
)

var leaseUnits = []struct {
	suffix string
	unit   time.Duration
}{
	{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour},
	{"d", 24 * time.Hour}, {"w", 7 * 24 * time.Hour},
}

// Lease reads a whole number with one unit.
func Lease(text string) (time.Duration, diag.Problem) {
	const example = "write a duration such as 500ms, 30s, 10m, 12h, 7d or 2w."
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := text[len(digits):]
	if !AllDigits(digits) {
		return 0, diag.Problemf(example, "%q is not a duration", diag.Clip(text))
	}
	if unit == "" {
		return 0, diag.Problemf(diag.DidYouMean(diag.Clip(digits)+"s"),
			"the duration %s has no unit",
			diag.Clip(text))
	}
	for _, u := range leaseUnits {
		if u.suffix != unit {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > uint64(MaxLease/u.unit) {
			return 0,
				diag.Problemf("leave \"lease\" out for entries that stay until they are deleted.",
					"a lease is at most 520w")
		}
		if d := time.Duration(n) * u.unit; d >= minLease {
			return d, diag.Problem{}
		}
		return 0, diag.Problemf("leave \"lease\" out for entries that stay until they are deleted.",
			"a lease of 0 would end at once")
	}
	return 0, diag.Problemf(unitHint(digits, unit), "%q is not a unit of time", diag.Clip(unit))
}

func unitHint(digits, unit string) string {
	for _, u := range []struct{ words, unit string }{
		{"sec secs second seconds S", "s"}, {"min mins minute minutes M", "m"},
		{"hr hrs hour hours H", "h"},
		{"day days D", "d"}, {"week weeks W", "w"}, {"msec millis milliseconds", "ms"},
	} {
		for _, w := range strings.Fields(u.words) {
			if w == unit {
				return diag.DidYouMean(digits + u.unit)
			}
		}
	}
	return "units are ms, s, m, h, d and w."
}

// ParseLease reads a lease as policies write it.
func ParseLease(text string) (time.Duration, error) {
	d, p := Lease(text)
	if p.Found() {
		return 0, errors.New(p.Message + ": " + p.Hint)
	}
	return d, nil
}
