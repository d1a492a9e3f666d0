package bench

import (
	"errors"
	"iter"
	"runtime"
	"time"

	"levee/internal/bench/calibration"
)

// crowded is how many times as long as in the freest tenth of the readings work must take for a core to be shared: above the
// scatter of readings, and below the third and more that a busy neighbour on the core's other thread costs.
const crowded = 1.15

// crowdTime is how long a reading works on each core: neighbours come and go within ms, so a shorter one would be of chance.
const crowdTime = 8 * time.Millisecond

// workOn is the ns that an operation takes among many that do not wait for each other, on two cores at the same time, the mean
// of both. It grows while somebody else's work shares the cores, whom nothing else in a guest shows.
func workOn(a, b int) (float64, error) {
	type result struct {
		ns  float64
		err error
	}
	done := make(chan result, 2)
	for _, cpu := range []int{a, b} {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := runOn(cpu); err != nil {
				done <- result{0, err}
				return
			}
			done <- result{calibration.Work(crowdTime), nil}
		}()
	}
	one, other := <-done, <-done
	return (one.ns + other.ns) / 2, errors.Join(one.err, other.err)
}

// home is what windows are to have in common: where the cores were, and that they were levee's own. Zero is what is not known.
type home struct {
	distance float64 // ns of a cache line from one core to the other and back (homeDistance)
	work     float64 // ns of an operation (homeWork)
}

// homeOf finds it in windows.
func homeOf(windows iter.Seq[*Window]) home { return home{homeDistance(windows), homeWork(windows)} }

// homeWork is the least tenth of the windows' readings, 0 of none: a core of one's own has one speed, and all else is slower. The
// quartile would be, where neighbours work for most of a run, of a core that is shared.
func homeWork(windows iter.Seq[*Window]) float64 {
	var all []float64
	for w := range windows {
		if work := w.work(); work > 0 {
			all = append(all, work)
		}
	}
	return leastTenth(all)
}

// work is the mean of the readings before and behind the window, 0 if one is missing.
func (w *Window) work() float64 {
	if w.Work[0] <= 0 || w.Work[1] <= 0 {
		return 0
	}
	return (w.Work[0] + w.Work[1]) / 2
}

// crowded tells whether the cores were shared around the window; what is not known does not.
func (w *Window) crowded(h home) bool { return h.work > 0 && w.work() > h.work*crowded }

// away tells whether the window is of other circumstances than those at home. It asks the machine, and never how long a packet took.
func (w *Window) away(h home) bool { return w.displaced(h.distance) || w.crowded(h) }
