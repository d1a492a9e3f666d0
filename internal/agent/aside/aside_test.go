package aside

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// cpusOf returns the CPUs on which all threads of this process may run; an error where they differ.
func cpusOf(t *testing.T) (all unix.CPUSet) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for i, th := range threads {
		var set unix.CPUSet
		tid, _ := strconv.Atoi(th.Name())
		switch err := unix.SchedGetaffinity(tid, &set); {
		case err == unix.ESRCH:
		case err != nil:
			t.Fatal(err)
		case i > 0 && set != all:
			t.Errorf("thread %d may run on %v, others on %v", tid, set, all)
		default:
			all = set
		}
	}
	return all
}

func setOf(cpus ...int) (set unix.CPUSet) {
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return set
}

// TestTheAgentKeepsOffBusyCPUs of all interfaces while others are left, and comes back.
func TestTheAgentKeepsOffBusyCPUs(t *testing.T) {
	a := New(nil)
	started := cpusOf(t)
	var cpus []int
	for cpu := range len(started) * 64 {
		if started.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	t.Cleanup(func() { _ = onCPUs(started) })
	first, rest := setOf(cpus[0]), setOf(cpus[1:]...)
	if len(cpus) == 1 {
		rest = first // there is nowhere to go
	}
	for _, c := range []struct {
		dev  string
		busy unix.CPUSet
		want unix.CPUSet
	}{{"eth0", first, rest}, {"eth1", rest, started}, {"eth0", unix.CPUSet{}, setOf(cpus[0])},
		{"eth1", started, started}, {"eth1", unix.CPUSet{}, started}} {
		a.From(c.dev, c.busy)
		if got := cpusOf(t); got != c.want {
			t.Errorf("with a flood of %s on %v: %v, want %v", c.dev, c.busy, got, c.want)
		}
	}
}

// TestBusyCPUsHaveMoreThanTheirShare: where all have, nobody is told apart.
func TestBusyCPUsHaveMoreThanTheirShare(t *testing.T) {
	for _, c := range []struct {
		packets map[int]float64
		cpus    int
		want    unix.CPUSet
	}{
		{map[int]float64{1: 1e5, 0: 80}, 2, setOf(1)},
		{map[int]float64{1: 1e5, 0: 9e4}, 2, setOf(0, 1)},
		{map[int]float64{2: 1e5, 3: 1e5, 0: 900}, 4, setOf(2, 3)},
		{nil, 4, unix.CPUSet{}},
	} {
		if got := BusyOf(c.packets, c.cpus); got != c.want {
			t.Errorf("%s: %v, want %v", fmt.Sprint(c.packets), got, c.want)
		}
	}
}
