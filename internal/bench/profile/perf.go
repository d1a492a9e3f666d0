package profile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// sample is the place of the core at one moment.
type sample struct {
	pid   uint32 // 0 is the idle task
	user  bool
	stack []uint64 // of the kernel, innermost first; at most maxStack
}

const (
	maxStack  = 127 // kernel.perf_event_max_stack, unless somebody changed it
	maxSample = 8 * (maxStack + 8)
	pageSize  = 4096
)

// ringPages returns how many pages, a power of two, hold the samples of a time at a frequency in
// samples a second, all as deep as can be.
func ringPages(frequency int, between time.Duration) int {
	bytes := int(float64(frequency)*between.Seconds()) * maxSample
	return 1 << bits.Len(uint(bytes/pageSize))
}

// sampler takes samples of one core (perf_event_open(2)).
type sampler struct {
	fd    int
	ring  []byte
	event string // what makes a sample
	lost  uint64 // records that found no room
}

const clockEvent = "cpu-clock"

// events that may make a sample, best first: cycles are counted by the hardware and interrupt what
// cannot be interrupted otherwise; the clock is a timer, so that code which runs with interrupts
// off is seen where it allows them again.
var events = []struct {
	name   string
	typ    uint32
	config uint64
}{
	{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
	{clockEvent, unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK},
}

// newSampler opens a sampler that is off. frequency is samples a second, which are taken out at
// least as often as between says.
func newSampler(cpu, frequency int, between time.Duration) (*sampler, error) {
	var err error
	for _, e := range events {
		attr := unix.PerfEventAttr{
			Type: e.typ, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Sample:      uint64(frequency),
			Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CALLCHAIN,
			Bits:        unix.PerfBitDisabled | unix.PerfBitFreq | unix.PerfBitExcludeCallchainUser,
		}
		var fd int
		if fd, err = unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
			if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
				break
			}
			continue // not counted here
		}
		s := &sampler{fd: fd, event: e.name}
		if s.ring, err = unix.Mmap(fd, 0, (1+ringPages(frequency, between))*pageSize,
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			unix.Close(fd)
			return nil, kernel.Refuse(err, "map the memory for samples")
		}
		return s, nil
	}
	return nil, refusal(err)
}

// refusal says what to do about a sampler that could not be opened.
func refusal(err error) error {
	level, readErr := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	switch {
	case os.IsNotExist(readErr):
		return kernel.RefuseAs(unix.ENOTSUP,
			"take samples: this kernel has no perf events (CONFIG_PERF_EVENTS)")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return kernel.Refuse(err, "take samples: kernel.perf_event_paranoid is %s and this "+
			"process lacks CAP_PERFMON: run it as root, outside a container that forbids "+
			"perf_event_open",
			strings.TrimSpace(string(level)))
	}
	return kernel.Refuse(err, "take samples of a core (perf_event_open)")
}

func (s *sampler) on() error  { return s.control(unix.PERF_EVENT_IOC_ENABLE) }
func (s *sampler) off() error { return s.control(unix.PERF_EVENT_IOC_DISABLE) }

func (s *sampler) control(request uint) error {
	if err := unix.IoctlSetInt(s.fd, request, 0); err != nil {
		return fmt.Errorf("switching the sampler: %w", err)
	}
	return nil
}

func (s *sampler) close() {
	_ = unix.Munmap(s.ring)
	unix.Close(s.fd)
}

// take returns the samples since the last time, of a sampler that is on or off.
func (s *sampler) take() ([]sample, error) {
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&s.ring[0]))
	head := atomic.LoadUint64(&page.Data_head)
	tail := page.Data_tail
	data := s.ring[pageSize:]
	if head-tail > uint64(len(data)) {
		return nil, errors.New("the kernel's ring of samples is inconsistent")
	}
	// A record may wrap around the end of the ring.
	text := make([]byte, head-tail)
	at := int(tail % uint64(len(data)))
	n := copy(text, data[at:])
	copy(text[n:], data)
	atomic.StoreUint64(&page.Data_tail, head)
	out, lost, err := parseRecords(text)
	s.lost += lost
	return out, err
}

// parseRecords reads struct perf_event_header and what follows it; records of other kinds are
// skipped.
func parseRecords(b []byte) (out []sample, lost uint64, err error) {
	for len(b) > 0 {
		if len(b) < 8 {
			return out, lost, errors.New("the kernel's ring of samples ends within a record")
		}
		kind, misc, size := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:]),
			int(binary.NativeEndian.Uint16(b[6:]))
		if size < 8 || size > len(b) {
			return out, lost, fmt.Errorf("a record of %d bytes in the kernel's ring of samples",
				size)
		}
		body := b[8:size]
		b = b[size:]
		switch kind {
		case unix.PERF_RECORD_SAMPLE:
			s, ok := parseSample(body, misc)
			if !ok {
				return out, lost, fmt.Errorf("a sample of %d bytes that is none", size)
			}
			out = append(out, s)
		case unix.PERF_RECORD_LOST:
			if len(body) >= 16 {
				lost += binary.NativeEndian.Uint64(body[8:])
			}
		}
	}
	return out, lost, nil
}

// parseSample reads instruction pointer, process and thread, and the call chain with its marks.
func parseSample(b []byte, misc uint16) (sample, bool) {
	if len(b) < 24 {
		return sample{}, false
	}
	s := sample{pid: binary.NativeEndian.Uint32(b[8:]),
		user: misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_USER}
	n := binary.NativeEndian.Uint64(b[16:])
	if b = b[24:]; n > uint64(len(b)/8) {
		return sample{}, false
	}
	if s.user {
		return s, true
	}
	for i := range n {
		ip := binary.NativeEndian.Uint64(b[8*i:])
		if ip >= ^uint64(4094) { // PERF_CONTEXT_KERNEL and its like: not an address
			continue
		}
		if len(s.stack) < maxStack {
			s.stack = append(s.stack, ip)
		}
	}
	return s, true
}
