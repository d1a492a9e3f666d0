package path

import (
	"math"
)

// Fit is the line through the least round trips of a host.
type Fit struct {
	Base float64 // ns that a packet without bytes would take
	Byte float64 // ns for each byte, both ways together
	// Low and High bound Byte at 95 %, as if what is left were normal.
	Low, High float64
	Left      float64 // ns that the worst size is off the line
}

// minPoints is the fewest sizes for a line: two leave nothing that could be off.
const minPoints = 4

// point is a size and its least round trip.
type point struct{ bytes, ns float64 }

// fit draws the line of least squares; false where there are too few points.
func fit(all []point) (f Fit, ok bool) {
	n := float64(len(all))
	if len(all) < minPoints {
		return f, false
	}
	var x, y float64
	for _, p := range all {
		x, y = x+p.bytes/n, y+p.ns/n
	}
	var xx, xy float64
	for _, p := range all {
		xx += (p.bytes - x) * (p.bytes - x)
		xy += (p.bytes - x) * (p.ns - y)
	}
	if xx == 0 {
		return f, false
	}
	f.Byte = xy / xx
	f.Base = y - f.Byte*x
	var squares float64
	for _, p := range all {
		off := p.ns - f.Base - f.Byte*p.bytes
		squares += off * off
		f.Left = max(f.Left, math.Abs(off))
	}
	wide := student(len(all)-2) * math.Sqrt(squares/(n-2)/xx)
	f.Low, f.High = f.Byte-wide, f.Byte+wide
	return f, true
}

// student returns the quantile of Student's distribution beyond which 2.5 % lie, by degrees of
// freedom.
func student(freedom int) float64 {
	table := []float64{12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
		2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 2.086
}
