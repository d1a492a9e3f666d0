// Package quantity writes numbers as people read them. In go a value and its unit, out come four
// digits with the unit that fits. It must never lose which unit that is.
package quantity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// step is a unit and where it begins.
type step struct {
	from float64
	name string
}

var (
	secondsOf = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}
	timeSteps = []step{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}}
	byteSteps = []step{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "bytes"}}
	siSteps   = []step{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}, {1, ""}}
)

// Print returns a value with its unit as people write it, four digits of it: 1.23 µs, 4.5 M
// packets/s, 12 MiB.
func Print(v float64, unit string) string {
	text := Short(v, unit)
	if Scales(unit) || unit == "" {
		return text
	}
	return text + " " + unit
}

// Scales tells whether Short names the unit, because a larger or a smaller one may fit better.
func Scales(unit string) bool {
	_, isTime := secondsOf[unit]
	return isTime || unit == "bytes"
}

// Short returns the same without the unit where that is on the axis already.
func Short(v float64, unit string) string {
	if size, ok := secondsOf[unit]; ok {
		if v == 0 {
			return "0 " + unit
		}
		return scaled(v*size, timeSteps)
	}
	if unit == "bytes" {
		return scaled(v, byteSteps)
	}
	return scaled(v, siSteps)
}

func scaled(v float64, steps []step) string {
	s := steps[len(steps)-1]
	for _, candidate := range steps {
		if math.Abs(v) >= candidate.from*0.9995 {
			s = candidate
			break
		}
	}
	text := strconv.FormatFloat(Round(v/s.from, 4), 'f', -1, 64)
	if s.name == "" {
		return text
	}
	return text + " " + s.name
}

// Round keeps so many significant digits: the number nearest to the decimal, so that printing it
// gives no more.
func Round(v float64, digits int) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
	if err != nil { // rounded up out of the range
		return v
	}
	return out
}

// Plural is "1 rule", "12 rules".
func Plural[N int | int64 | uint64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y") && !strings.HasSuffix(noun, "ay"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
