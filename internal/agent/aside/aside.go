// Package aside keeps the agent off the CPUs that floods come in on (decision 0083).
//
// In go, by interface, the CPUs that are busy with what comes in there; all threads of this process
// run on others, while others are left. It must never move another process.
package aside

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/part"
)

// Aside keeps this process off busy CPUs. It may be used by several goroutines.
type Aside struct {
	mu      sync.Mutex
	started unix.CPUSet            // where it may run at all
	busy    map[string]unix.CPUSet // by interface
	now     unix.CPUSet
	failed  bool      // to ask where it may run: it stays where it is
	next    time.Time // it is not tried again before
	part    *part.Part
}

// moveAgain is the time at which a move that has failed is tried again.
const moveAgain = 10 * time.Second

// New returns one of a process that has not been moved.
func New(parts *part.Register) *Aside {
	a := &Aside{busy: map[string]unix.CPUSet{}, part: parts.Begin(part.Help,
		"keeping off busy processors", "")}
	err := unix.SchedGetaffinity(0, &a.started)
	a.failed = a.part.Did(err) != nil
	a.now = a.started
	return a
}

// From says which CPUs are busy with what comes in on an interface. Where no other is left, the
// process stays where it is.
func (a *Aside) From(dev string, busy unix.CPUSet) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed || a.busy[dev] == busy && a.next.IsZero() {
		return
	}
	a.busy[dev] = busy
	if time.Now().Before(a.next) {
		return
	}
	next := a.started
	for _, set := range a.busy {
		for i := range next {
			next[i] &^= set[i]
		}
	}
	if next.Count() == 0 {
		next = a.started
	}
	if next == a.now && a.next.IsZero() {
		return
	}
	if err := onCPUs(next); err != nil {
		a.next = time.Now().Add(moveAgain)
		a.part.FailsUntil(fmt.Errorf("keep off the processors that a flood comes in on: %w", err),
			a.next)
		return
	}
	a.now, a.next = next, time.Time{}
	a.part.Works()
}

// onCPUs has all threads of this process run there. Those to come take after who made them.
func onCPUs(set unix.CPUSet) error {
	done := map[string]bool{}
	for again := true; again; {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		again = false
		for _, t := range threads {
			if done[t.Name()] {
				continue
			}
			done[t.Name()], again = true, true
			tid, _ := strconv.Atoi(t.Name()) // the kernel writes numbers
			if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
				return err
			}
		}
	}
	return nil
}

// BusyOf returns the CPUs that took more than half of an even share of packets.
func BusyOf(packets map[int]float64, cpus int) (busy unix.CPUSet) {
	all := 0.0
	for _, n := range packets {
		all += n
	}
	for cpu, n := range packets {
		if n > all/float64(cpus)/2 {
			busy.Set(cpu)
		}
	}
	return busy
}
