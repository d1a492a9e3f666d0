package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"levee/internal/quantity"
)

// Value returns a single figure without an interval.
func Value(x, y float64) Point { return Point{X: x, Y: &y} }

// Measured returns the median of rounds with its 95 % interval; fewer than six rounds have no
// interval, none at all is a Gap.
func Measured(x float64, rounds []float64) Point {
	if len(rounds) == 0 {
		return Gap(x, "not measured")
	}
	y, low, high := Summary(rounds)
	p := Point{X: x, Y: &y, Rounds: rounds}
	return p.Between(low, high)
}

// Bin returns a column of a histogram, from x to to.
func Bin(x, to, y float64) Point { return Point{X: x, XTo: &to, Y: &y} }

// Boxed returns the median of many values within their spread; a Gap of none.
func Boxed(label string, values []float64) Point {
	if len(values) == 0 {
		return Gap(0, "no values").Of(label)
	}
	sorted := slices.Sorted(slices.Values(values))
	p := Value(0, quantile(sorted, 0.5)).Of(label)
	p.Spread = &Spread{quantile(sorted, 0.05), quantile(sorted, 0.25), quantile(sorted, 0.75),
		quantile(sorted, 0.95)}
	return p
}

// Gap says why there is no figure.
func Gap(x float64, why string) Point { return Point{X: x, Invalid: true, Why: why} }

// Between gives the point an interval; an interval with an infinite bound is left out.
func (p Point) Between(low, high float64) Point {
	if finite(low) && finite(high) {
		p.Low, p.High = &low, &high
	}
	return p
}

// Of names the point: the bar that it is, or what is shown on hover.
func (p Point) Of(label string) Point { p.Label = label; return p }

// Bound marks the point as a lower bound where yes.
func (p Point) Bound(atLeast bool) Point { p.AtLeast = atLeast; return p }

// Text returns a cell of words.
func Text(s string) Cell { return Cell{Text: s} }

// Number returns a cell with a number, printed with up to four digits; what is no number is a dash.
func Number(v float64) Cell {
	if !finite(v) {
		return Text("-")
	}
	return Cell{strconv.FormatFloat(quantity.Round(v, 4), 'f', -1, 64), &v}
}

// Quantity returns a number that is printed in a way of the caller's own; it is sorted by v.
func Quantity(v float64, format string, args ...any) Cell {
	return Cell{fmt.Sprintf(format, args...), &v}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
