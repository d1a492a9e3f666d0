package kernel

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Clock is the kernel's jiffies, with which eBPF programs compare leases: reading it costs them 2
// ns, where any clock in nanoseconds costs a helper call. Jiffies advance with CLOCK_MONOTONIC, so
// once both have been read together the one follows from the other without asking the kernel again.
type Clock struct {
	hz uint64

	mu     sync.Mutex
	at     time.Duration // CLOCK_MONOTONIC of the last reading
	ticks  uint64        // jiffies then
	last   uint64        // what Now has said
	sample func() (sample, error)
	mono   func() time.Duration
}

// sample is both clocks read together.
type sample struct {
	ticks uint64
	mono  time.Duration
}

// resample is the time for which a reading is used. The two clocks do not drift (both follow
// tick_do_update_jiffies64, kernel/time/tick-sched.c); this is for a guest that was stopped.
const resample = time.Second

var shared = sync.OnceValues(func() (*Clock, error) {
	read, err := jiffiesReader()
	if err != nil {
		return nil, err
	}
	return newClock(read, Monotonic)
})

// JiffiesClock returns the clock of this machine. It needs the right to load eBPF programs.
func JiffiesClock() (*Clock, error) { return shared() }

// Jiffies returns the time now in jiffies and how many there are in a second.
func Jiffies() (now, hz uint64, err error) {
	c, err := JiffiesClock()
	if err != nil {
		return 0, 0, err
	}
	return c.Now(), c.hz, nil
}

// together is the largest distance between the two readings of a sample.
const together = time.Millisecond

// tight reads both clocks, and again where this process had to wait between them: leases would end
// as much later, and seem to last longer than they were given.
func tight(read func() (sample, error), mono func() time.Duration) (best sample, err error) {
	least := time.Duration(math.MaxInt64)
	for range 10 {
		before := mono()
		s, err := read()
		if err != nil {
			return s, err
		}
		if took := mono() - before; took < least {
			best, least = s, took
		}
		if least < together {
			break
		}
	}
	return best, nil
}

func newClock(read func() (sample, error), mono func() time.Duration) (*Clock, error) {
	s, err := tight(read, mono)
	if err != nil {
		return nil, err
	}
	hz, err := rate()
	if err != nil {
		return nil, err
	}
	return &Clock{hz: hz, at: s.mono, ticks: s.ticks, sample: read, mono: mono}, nil
}

// ClockFrom returns the clock of this machine by a reading that somebody else has taken since it
// was booted: jiffies, how many there are in a second, and CLOCK_MONOTONIC then.
func ClockFrom(ticks, hz uint64, at time.Duration) *Clock {
	none := func() (sample, error) { return sample{}, errors.New("no right to read the clock") }
	return &Clock{hz: hz, at: at, ticks: ticks, sample: none, mono: Monotonic}
}

// HZ returns the number of jiffies in a second.
func (c *Clock) HZ() uint64 { return c.hz }

// Now returns the time in jiffies. It never goes back, and is at most one jiffy behind the
// kernel's.
func (c *Clock) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.mono()
	if now-c.at > resample {
		if s, err := tight(c.sample, c.mono); err == nil && s.ticks >= c.ticks {
			c.at, c.ticks = s.mono, s.ticks
			now = s.mono
		}
	}
	c.last = max(c.last, c.ticks+uint64(max(now-c.at, 0))*c.hz/uint64(time.Second))
	return c.last
}

// Expiry returns the end of a lease that begins now: at least d from now, never 0, which means that
// a lease does not end.
func (c *Clock) Expiry(d time.Duration) uint64 { return c.Now() + c.Ticks(d) }

// Ticks returns how many jiffies after now, whatever part of the present one has passed, d has
// passed too.
func (c *Clock) Ticks(d time.Duration) uint64 {
	d = max(d, 0)
	seconds, rest := uint64(d/time.Second), uint64(d%time.Second)
	return 1 + seconds*c.hz + (rest*c.hz+uint64(time.Second)-1)/uint64(time.Second)
}

// Remaining returns how long a lease still lasts; 0 if it has ended. A lease without end (expires
// 0) has the longest Duration.
func (c *Clock) Remaining(expires uint64) time.Duration {
	if expires == 0 {
		return math.MaxInt64
	}
	now := c.Now()
	if expires <= now {
		return 0
	}
	left := expires - now
	if left/c.hz >= uint64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(left/c.hz)*time.Second +
		time.Duration(left%c.hz)*time.Second/time.Duration(c.hz)
}

// rate returns the number of jiffies in a second: the resolution of a coarse clock is a tick
// (KTIME_LOW_RES, include/linux/hrtimer_defs.h).
func rate() (hz uint64, err error) {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, fmt.Errorf("find the rate of jiffies: %w", err)
	}
	ns := tick.Nano()
	if ns <= 0 {
		return 0, fmt.Errorf("find the rate of jiffies: a tick of %d ns", ns)
	}
	return uint64((int64(time.Second) + ns/2) / ns), nil
}

// jiffiesReader loads a program that writes jiffies into its map; running it takes a few
// microseconds. Program and map stay open as long as the process.
func jiffiesReader() (func() (sample, error), error) {
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{
			"now": {Name: "now", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		},
		Programs: map[string]*ebpf.ProgramSpec{
			"jiffies": {Name: "jiffies", Type: ebpf.XDP, License: "Dual BSD/GPL",
				Instructions: asm.Instructions{
					asm.FnJiffies64.Call(),
					asm.LoadMapValue(asm.R1, 0, 0).WithReference("now"),
					asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord),
					asm.Mov.Imm(asm.R0, 1),
					asm.Return(),
				}},
		},
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("read jiffies: load an eBPF program (needs root and Linux 5.6): %w",
			err)
	}
	prog, now := coll.DetachProgram("jiffies"), coll.DetachMap("now")
	coll.Close()
	frame := make([]byte, 64) // a test run of XDP takes at least an Ethernet header
	return func() (sample, error) {
		if _, err := prog.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			return sample{}, fmt.Errorf("read jiffies: run an eBPF program: %w", err)
		}
		s := sample{mono: Monotonic()}
		if err := now.Lookup(uint32(0), &s.ticks); err != nil {
			return sample{}, fmt.Errorf("read jiffies: %w", err)
		}
		return s, nil
	}, nil
}
