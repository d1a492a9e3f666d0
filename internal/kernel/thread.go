package kernel

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// RunOn gives the calling thread one core. The thread should be locked to its goroutine, and end
// with it.
func RunOn(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("running on core %d: %w", cpu, err)
	}
	return nil
}

// GoFirst lets a thread, 0 for the calling one, go before all that have no real-time priority
// (SCHED_FIFO). A control group may have no budget for that: EPERM.
func GoFirst(tid int, priority uint32) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	return unix.SchedSetAttr(tid, &attr, 0)
}

// Monotonic is CLOCK_MONOTONIC, which all processes and programs of the kernel share.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock exists and ts is ours
	return time.Duration(ts.Nano())
}

// ProcessorTime returns the time that the threads of this process have run, on all cores.
func ProcessorTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // cannot fail either
	return time.Duration(ts.Nano())
}

// nap is the longest time that a sleeper may take to see that its context has ended.
const nap = 20 * time.Millisecond

// SleepUntil waits for a time of Monotonic and says whether ctx is still going. The calling thread
// itself sleeps: by a timer of Go, the scheduler would have to find the thread again, which takes
// ms on a busy machine.
func SleepUntil(ctx context.Context, end time.Duration) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		now := Monotonic()
		if now >= end {
			return true
		}
		until := unix.NsecToTimespec(int64(min(end, now+nap)))
		// a signal: look again
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil)
	}
}
