package defend

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Aside keeps this process off the CPUs that floods come in on (decision 0083).
type Aside struct {
	mu      sync.Mutex
	started unix.CPUSet            // where it may run at all
	busy    map[string]unix.CPUSet // by interface
	now     unix.CPUSet
	failed  bool
}

// NewAside is one of a process that has not been moved.
func NewAside() *Aside {
	a := &Aside{busy: map[string]unix.CPUSet{}}
	a.failed = unix.SchedGetaffinity(0, &a.started) != nil
	a.now = a.started
	return a
}

// from says which CPUs are busy with what comes in on an interface. Where no other is left, the
// process stays where it is.
func (a *Aside) from(dev string, busy unix.CPUSet) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed || a.busy[dev] == busy {
		return nil
	}
	a.busy[dev] = busy
	next := a.started
	for _, set := range a.busy {
		for i := range next {
			next[i] &^= set[i]
		}
	}
	if next.Count() == 0 {
		next = a.started
	}
	if next == a.now {
		return nil
	}
	a.now = next
	if err := onCPUs(next); err != nil {
		a.failed = true
		return fmt.Errorf("keep off the processors that a flood comes in on: %w", err)
	}
	return nil
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

// busyOf are the CPUs that took more than half of an even share of packets.
func busyOf(packets map[int]float64, cpus int) (busy unix.CPUSet) {
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
