package bench

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere is how many times as far, or as near, as at home the cores must be to be in another place: above the scatter of
// readings, and below the factor of two and six that was seen between places.
const elsewhere = 1.8

// A reading of the distance is the least of some blocks of round trips: what else runs makes blocks longer, never
// shorter. It takes less than a millisecond on an idle machine.
const (
	distanceBlocks = 12
	distanceTrips  = 100 // in a block
	distanceTime   = 50 * time.Millisecond
)

// line is what goes back and forth, alone in its cache lines (128 bytes: processors fetch them in pairs).
type line struct {
	_ [128]byte
	n atomic.Uint32
	_ [124]byte
}

// await spins until the line holds n, or the time is up.
func (l *line) await(n uint32, deadline time.Time) bool {
	for spins := 1; l.n.Load() != n; spins++ {
		if spins%4096 == 0 && time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// coreDistance is how long a cache line takes from one core to another and back, in ns, and 0 where both never
// ran at the same time for long enough to tell.
//
// On a machine of its own it is a constant. Under a hypervisor the cores are threads of the host, which it moves: from
// two threads of one core to two cores with a common cache, to cores that have none in common.
func coreDistance(a, b int) (float64, error) {
	var l line
	deadline := time.Now().Add(distanceTime)
	echo := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := runOn(b); err != nil {
			echo <- err
			return
		}
		for i := range uint32(distanceBlocks * distanceTrips) {
			if !l.await(2*i+1, deadline) {
				break
			}
			l.n.Store(2*i + 2)
		}
		echo <- nil
	}()
	least, here := math.Inf(1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := runOn(a); err != nil {
			here <- err
			return
		}
		for block := range uint32(distanceBlocks) {
			begun := time.Now()
			for i := range uint32(distanceTrips) {
				n := 2 * (block*distanceTrips + i)
				l.n.Store(n + 1)
				if !l.await(n+2, deadline) {
					here <- nil
					return
				}
			}
			least = min(least, float64(time.Since(begun).Nanoseconds())/distanceTrips)
		}
		here <- nil
	}()
	if err := errors.Join(<-here, <-echo); err != nil {
		return 0, err
	}
	if math.IsInf(least, 1) {
		return 0, nil
	}
	return least, nil
}

// homeDistance is the least tenth of the readings, 0 of none: where the cores were in the nearest tenth of the time is
// what figures are to be of. The median would be, in one run, of cores with a common cache, and in the next of cores without; so would
// the quartile, where the cores are apart for most of a run.
func homeDistance(windows iter.Seq[*Window]) float64 {
	var all []float64
	for w := range windows {
		for _, d := range w.Distance {
			if d > 0 {
				all = append(all, d)
			}
		}
	}
	return leastTenth(all)
}

// leastTenth is the greatest of the least tenth of values, which it sorts, 0 of none: one of them, for between two places there
// is nobody.
func leastTenth(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/10]
}

// displaced tells whether the cores were elsewhere before or behind the window; what is not known does not.
func (w *Window) displaced(home float64) bool {
	return slices.ContainsFunc(w.Distance[:], func(d float64) bool {
		return d > 0 && home > 0 && (d > home*elsewhere || d < home/elsewhere)
	})
}

// runOn gives the calling thread one core, before what else runs on it.
func runOn(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("running on core %d: %w", cpu, err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, receiverNice); err != nil {
		return fmt.Errorf("raising the priority of a thread on core %d: %w", cpu, err)
	}
	return nil
}
