package flood

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hardware counts cycles and instructions of one core, whoever uses it, kernel and user. Guests
// often have no such counters; why says so then.
type hardware struct {
	fds []int
	why string
}

// events are those that hardware counts, in the order of reading.
var events = []uint64{unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_INSTRUCTIONS}

func openHardware(cpu int) *hardware { return openEvents(cpu, unix.PERF_TYPE_HARDWARE, events) }

// openEvents opens a counter of a core for each event (perf_event_open(2)).
func openEvents(cpu int, typ uint32, events []uint64) *hardware {
	h := new(hardware)
	for _, e := range events {
		fd, err := openEvent(-1, cpu, typ, e)
		if err != nil {
			h.close()
			h.why = fmt.Sprintf("no hardware counters here (%v): no cycles", err)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
				h.why = "the machine has no hardware counters, as many guests: no cycles"
			}
			return h
		}
		h.fds = append(h.fds, fd)
	}
	return h
}

// openEvent opens a counter of a core, or of a thread wherever it runs.
func openEvent(tid, cpu int, typ uint32, event uint64) (int, error) {
	attr := unix.PerfEventAttr{
		Type: typ, Config: event,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	return unix.PerfEventOpen(&attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
}

// counts reads the counters; nil where there are none. A counter that shared its register with
// others is extrapolated to the whole time.
func (h *hardware) counts() ([]float64, error) {
	if len(h.fds) == 0 {
		return nil, nil
	}
	out := make([]float64, len(h.fds))
	for i, fd := range h.fds {
		value, enabled, running, err := readEvent(fd)
		if err != nil {
			return nil, err
		}
		if running > 0 {
			out[i] = float64(value) * float64(enabled) / float64(running)
		}
	}
	return out, nil
}

// readEvent reads a counter, and the ns for which it was wanted and did count.
func readEvent(fd int) (value, enabled, running uint64, err error) {
	var b [24]byte // struct read_format
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, 0, 0, fmt.Errorf("reading a counter of events: %w", err)
	}
	if n != len(b) {
		return 0, 0, 0, fmt.Errorf("reading a counter of events: %d bytes of %d", n, len(b))
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	return word(0), word(1), word(2), nil
}

func (h *hardware) close() {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	h.fds = nil
}

// Stopwatch is the run time of a few threads. The scheduler's own count is wrong here: a thread
// that is woken while the receiver works through a batch is charged from that moment on
// (wakeup_preempt skips the next update of the clock, kernel/sched/core.c), so that most of the
// receiver's time would be the application's. The sum of both is right, and what perf counts is.
type Stopwatch struct {
	tids []int
	fds  []int // of task clocks; none where the kernel has no perf
}

// NewStopwatch watches threads, by their ids. Close ends it.
func NewStopwatch(tids ...int) *Stopwatch {
	w := &Stopwatch{tids: tids}
	for _, tid := range tids {
		fd, err := openEvent(tid, -1, unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK)
		if err != nil {
			w.Close()
			return w
		}
		w.fds = append(w.fds, fd)
	}
	return w
}

// Ran returns the run time since the beginning of the threads or of the watch.
func (w *Stopwatch) Ran() (sum time.Duration, err error) {
	for _, fd := range w.fds {
		ns, _, _, err := readEvent(fd)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	if len(w.fds) > 0 {
		return sum, nil
	}
	for _, tid := range w.tids {
		s, err := readSchedule(tid)
		if err != nil {
			return 0, err
		}
		sum += s.ran
	}
	return sum, nil
}

// Close gives the counters back.
func (w *Stopwatch) Close() {
	for _, fd := range w.fds {
		unix.Close(fd)
	}
	w.fds = nil
}
