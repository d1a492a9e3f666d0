package calibration

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// topNice is the priority of the threads that read two cores: before what else runs there.
const topNice = -20

// onCore runs f on a thread of its own that has one core, and hands its error on.
func onCore(cpu int, f func()) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := kernel.RunOn(cpu)
		if err == nil {
			if err = unix.Setpriority(unix.PRIO_PROCESS, 0, topNice); err != nil {
				err = fmt.Errorf("raising the priority of a thread on core %d: %w", cpu, err)
			}
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return done
}

// workTime is the time that a reading works on each core: neighbours come and go within ms, so a
// shorter one would be of chance.
const workTime = 8 * time.Millisecond

// WorkOn returns the ns that an operation takes among many that do not wait for each other, on two
// cores at the same time, the mean of both. It grows while somebody else's work shares the cores,
// which nothing else in a guest shows.
func WorkOn(a, b int) (float64, error) {
	var ns [2]float64
	var ended [2]<-chan error
	for i, cpu := range []int{a, b} {
		ended[i] = onCore(cpu, func() { ns[i] = Work(workTime) })
	}
	err := errors.Join(<-ended[0], <-ended[1])
	return (ns[0] + ns[1]) / 2, err
}

// A reading of the distance is the least of some blocks of round trips: what else runs makes blocks
// longer, never shorter. It takes less than a millisecond on an idle machine.
const (
	distanceBlocks = 12
	distanceTrips  = 100 // in a block
	distanceTime   = 50 * time.Millisecond
)

// passed is the number that two cores hand back and forth, alone in its cache lines (128 bytes:
// processors fetch them in pairs).
type passed struct {
	_ [128]byte
	n atomic.Uint32
	_ [124]byte
}

// await spins until n has come, or the time is up.
func (p *passed) await(n uint32, deadline time.Time) bool {
	for spins := 1; p.n.Load() != n; spins++ {
		if spins%4096 == 0 && time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// Distance returns how long a cache line takes from one core to another and back, in ns, and 0
// where both never ran at the same time for long enough to tell.
//
// On a machine of its own it is a constant. Under a hypervisor the cores are threads of the host,
// which it moves: from two threads of one core to two cores with a common cache, to cores that have
// none in common.
func Distance(a, b int) (float64, error) {
	var p passed
	deadline := time.Now().Add(distanceTime)
	echo := onCore(b, func() {
		for i := range uint32(distanceBlocks * distanceTrips) {
			if !p.await(2*i+1, deadline) {
				return
			}
			p.n.Store(2*i + 2)
		}
	})
	least := math.Inf(1)
	here := onCore(a, func() {
		for block := range uint32(distanceBlocks) {
			begun := time.Now()
			for i := range uint32(distanceTrips) {
				n := 2 * (block*distanceTrips + i)
				p.n.Store(n + 1)
				if !p.await(n+2, deadline) {
					return
				}
			}
			least = min(least, float64(time.Since(begun).Nanoseconds())/distanceTrips)
		}
	})
	if err := errors.Join(<-here, <-echo); err != nil {
		return 0, err
	}
	if math.IsInf(least, 1) {
		return 0, nil
	}
	return least, nil
}
