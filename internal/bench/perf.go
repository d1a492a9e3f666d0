package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hardware counts cycles and instructions of one core, whoever uses it, kernel and user. Guests often have no
// such counters; why says so then.
type hardware struct {
	fds []int
	why string
}

// events are what hardware counts, in the order of reading.
var events = []uint64{unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_INSTRUCTIONS}

func openHardware(cpu int) *hardware { return openEvents(cpu, unix.PERF_TYPE_HARDWARE, events) }

// openEvents opens a counter of a core for each event (perf_event_open(2)).
func openEvents(cpu int, typ uint32, events []uint64) *hardware {
	h := new(hardware)
	for _, e := range events {
		attr := unix.PerfEventAttr{
			Type: typ, Config: e,
			Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		}
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
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

// counts reads the counters; nil where there are none. A counter that shared its register with others
// is extrapolated to the whole time.
func (h *hardware) counts() ([]float64, error) {
	if len(h.fds) == 0 {
		return nil, nil
	}
	out := make([]float64, len(h.fds))
	for i, fd := range h.fds {
		var b [24]byte // struct read_format: value, time enabled, time running
		n, err := unix.Read(fd, b[:])
		if err != nil || n != len(b) {
			return nil, fmt.Errorf("reading a hardware counter: %d bytes, %w", n, err)
		}
		word := func(i int) float64 { return float64(binary.NativeEndian.Uint64(b[8*i:])) }
		if word(2) > 0 {
			out[i] = word(0) * word(1) / word(2)
		}
	}
	return out, nil
}

func (h *hardware) close() {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	h.fds = nil
}
