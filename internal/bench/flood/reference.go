package flood

import (
	"iter"
	"slices"

	"levee/internal/bench"
)

// FarFactor is the factor by which cores are farther or nearer than in the reference if they are in
// another place: above the scatter of readings, and below the factor of two and six that was seen
// between places.
const FarFactor = 1.8

// Reference holds the readings that comparable windows share: the distance of the cores, and the
// speed of a core that levee has to itself. 0 stands for a reading that is not known.
type Reference struct {
	Distance float64 // ns of a cache line from one core to the other and back
	Work     float64 // ns of an operation
}

// referenceOf finds it in windows: the least tenth of each reading. For the distance the median
// would be, in one run, of cores with a common cache, and in the next of cores without; so would
// the quartile, where the cores are apart for most of a run. A core of one's own has one speed, and
// all else is slower; where neighbours work for most of a run the quartile would be of a core that
// is shared.
func referenceOf(windows iter.Seq[*Window]) Reference {
	var distance, work []float64
	for w := range windows {
		for _, d := range w.Distance {
			if d > 0 {
				distance = append(distance, d)
			}
		}
		if ns := w.OperationNs(); ns > 0 {
			work = append(work, ns)
		}
	}
	return Reference{leastTenth(distance), leastTenth(work)}
}

// leastTenth returns the greatest of the least tenth of values, which it sorts, 0 of none: one of
// them, for between two places there is nobody.
func leastTenth(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/10]
}

// OperationNs returns the mean of the readings before and behind the window, 0 if one is missing.
func (w *Window) OperationNs() float64 {
	if w.Work[0] <= 0 || w.Work[1] <= 0 {
		return 0
	}
	return (w.Work[0] + w.Work[1]) / 2
}

// Moved tells whether the cores were elsewhere before or behind the window; what is not known does
// not.
func (w *Window) Moved(r Reference) bool {
	return slices.ContainsFunc(w.Distance[:], func(d float64) bool {
		return d > 0 && r.Distance > 0 && (d > r.Distance*FarFactor || d < r.Distance/FarFactor)
	})
}

// Shared tells whether somebody else used the cores around the window; what is not known does not.
func (w *Window) Shared(r Reference) bool {
	return r.Work > 0 && w.OperationNs() > r.Work*bench.SameStep
}

// unlike tells whether the window is of other circumstances than the reference. It asks the
// machine, and never how long a packet took.
func (w *Window) unlike(r Reference) bool { return w.Moved(r) || w.Shared(r) }
