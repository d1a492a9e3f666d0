package demo

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// bars are shares of eighths.
const bars = "_▁▂▃▄▅▆▇█"

// curves draws the share of the requests in time over the rate of the flood, a line for each act
// and a mark for each step. What was not tried is not above the next lower rate that was, and has
// the bar of the next higher one.
func curves(columns []*column) []string {
	low, high := lastStep, 0
	for _, c := range columns {
		for _, t := range c.trials {
			low, high = min(low, t.sent), max(high, t.sent)
		}
	}
	if low > high {
		return nil
	}
	low -= low % perOctave // a label at each octave
	axis := ""
	for step := low; step <= high; step += perOctave {
		axis += pad(SI(rateOf(step)), perOctave)
	}
	lines := []string{pad("requests in time, by flood", firstWidth+2) +
		strings.TrimRight(axis, " ")}
	for _, c := range columns {
		if len(c.trials) > 0 {
			lines = append(lines, pad("  "+c.title, firstWidth+2)+curve(c.trials, low))
		}
	}
	return lines
}

// curve returns the line of an act from a step on.
func curve(trials []trial, low int) string {
	share, last := make([]float64, lastStep+1), -1
	for _, t := range trials {
		last = max(last, t.sent)
	}
	for step := range share {
		share[step] = -1
	}
	for _, t := range trials {
		share[t.sent] = t.share // the last one of a step
	}
	var marks []rune
	next := 0.0
	for step := last; step >= low; step-- {
		if share[step] >= 0 {
			next = share[step]
		}
		marks = append([]rune{[]rune(bars)[int(next*8)]}, marks...)
	}
	return string(marks)
}

// verdict compares what the acts held, in sentences.
func verdict(columns []*column) []string {
	var said []string
	levee := columns[len(columns)-1]
	most, ok := levee.best()
	for i := len(columns) - 1; i >= 0; i-- {
		c := columns[i]
		switch t, held := c.best(); {
		case c.missing != "":
		case !held:
			said = append(said, c.title+" at no rate")
		default:
			text := c.title + " " + c.limit()
			if ok && c != levee {
				text += fmt.Sprintf(" (levee %s times)", ratio(most.rate, t.rate))
			}
			said = append(said, text)
		}
	}
	lines := []string{"Held up to packets/s: " + strings.Join(said, ", ") + "."}
	if ok && levee.search.open() {
		lines = append(lines, "≥: the flood went no faster.")
	}
	for i, c := range columns {
		for _, d := range columns[i+1:] {
			if alike(c, d) {
				lines = append(lines, c.title+" and "+d.title+
					" lie closer than two runs do: which holds more is not told.")
			}
		}
	}
	if moved(columns) {
		lines = append(lines, "A cache line took longer in one act than in another: "+
			"the hypervisor has moved the cores.",
			"Ratios of such a run say little; run the demo again.")
	}
	for _, c := range columns {
		switch _, _, more := c.search.next(); {
		case c.missing != "":
			lines = append(lines, c.title+": "+c.missing)
		case more:
			lines = append(lines, c.title+": the time for floods was over before the search was.")
		}
	}
	return lines
}

// runsApart is the quotient of two rates up to which they are taken for the same: from run to run
// that of nftables and no defence went from 0.71 to 1.30 on one kind of machine, see benchmarks.md.
const runsApart = 1.5

// alike tells that two acts held rates that another run may show the other way around.
func alike(a, b *column) bool {
	x, held := a.best()
	y, too := b.best()
	return held && too && max(x.rate, y.rate) < runsApart*min(x.rate, y.rate)
}

// movedApart is the quotient of two distances between which the cores have moved. Readings in one
// place differ by a third.
const movedApart = 2

// moved tells that the cores were not equally far from each other in the best floods of all acts.
func moved(columns []*column) bool {
	low, high := math.Inf(1), 0.0
	for _, c := range columns {
		if t, ok := c.best(); ok && t.line > 0 {
			low, high = min(low, t.line), max(high, t.line)
		}
	}
	return high > movedApart*low
}

// ratio returns the ratio of two rates as they are printed.
func ratio(a, b float64) string {
	r := shown(a) / shown(b)
	if r < 9.95 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

// shown returns a number of three digits.
func shown(v float64) float64 {
	if v <= 0 {
		return 0
	}
	unit := math.Pow10(int(math.Floor(math.Log10(v))) - 2)
	return math.Round(v/unit) * unit
}

// percent returns a share, rounded down: all is all, and what is below a bound is not shown as it.
func percent(share float64) string {
	return fmt.Sprintf("%.1f %%", math.Floor(share*1000+1e-9)/10)
}

// ms returns a latency.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	if v < 10 {
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// ns returns a time of that many ns, 0 for one that is not known.
func ns(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f ns", v)
}

// SI returns a number with three digits and k, M or G.
func SI(v float64) string {
	v = shown(v)
	for _, u := range []struct {
		unit string
		size float64
	}{{" G", 1e9}, {" M", 1e6}, {" k", 1e3}} {
		if v >= u.size {
			v /= u.size
			digits := 2 - int(math.Floor(math.Log10(v)+1e-9))
			return fmt.Sprintf("%.*f%s", max(digits, 0), v, u.unit)
		}
	}
	return fmt.Sprintf("%.0f", v)
}
