package capture

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
)

// WatchedMap is the map of the programs that tell of decisions, beside EventsMap and CountersMap: a
// row for each CPU, one behind the other.
const WatchedMap = "watched"

// Sizes of a row: what it begins with, and what it has of each slot.
const (
	watchHead = int(unsafe.Sizeof(tellerWatchCpu{}))
	watchSlot = int(unsafe.Sizeof(tellerWatchSlot{}))
)

// unitBits is UNIT_BITS of bpf/watch.bpf.c.
const unitBits = 20

// burstShare of the events of a second may come at once.
const burstShare = 32

// MostWatched is the largest bound of events a second and CPU.
const MostWatched = 1_000_000

// MostToldOf limits the bytes of a packet in an event, WATCH_SNAP in bpf/watch.bpf.c.
const MostToldOf = len(tellerWatchEvent{}.Packet)

// Watch says which decisions are told.
type Watch struct {
	Judge
	Snap int    // bytes of each packet to hand on
	Rate int    // events a second and CPU, up to MostWatched
	HZ   uint64 // jiffies a second
	// Verdicts are codes that programs return, nil for all.
	Verdicts []int
	Slots    []int // that are told of
}

// WatchSpec returns the program with its maps, of which that of the counters is for the caller to
// replace. The rows have their first contents. One slot of several has half the rate, so that a
// flood at one rule leaves room for the others.
func WatchSpec(w Watch) (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	spec, err := loadTeller()
	if err != nil {
		return nil, nil, fmt.Errorf("read the programs that tell of decisions: %w", err)
	}
	if w.Snap > MostToldOf {
		return nil, nil, fmt.Errorf("an event has at most %d bytes of a packet, not %d", MostToldOf,
			w.Snap)
	}
	p := w.choose(spec, "watch")
	second := w.HZ << unitBits
	step := second / uint64(w.Rate)
	each := step
	if len(w.Slots) > 1 {
		each *= 2
	}
	m := spec.Maps[WatchedMap]
	m.ValueSize, m.MaxEntries = uint32(watchRow(w.NumSlots)), uint32(w.Rows)
	row := make([]byte, m.ValueSize)
	for i := range w.NumSlots {
		binary.NativeEndian.PutUint64(row[watchHead+i*watchSlot:], math.MaxUint64)
	}
	for _, i := range w.Slots {
		binary.NativeEndian.PutUint64(row[watchHead+i*watchSlot:], 0)
	}
	for cpu := range w.Rows {
		m.Contents = append(m.Contents, ebpf.MapKV{Key: uint32(cpu), Value: row})
	}
	return spec, p, w.set(spec, map[string]any{"snap": uint32(w.Snap),
		"verdicts": bits(w.Verdicts), "slots": uint32(w.NumSlots), "cpu_step": step,
		"wake_at": w.size(spec), "slot_step": each, "burst": second / burstShare})
}

// watchRow returns the size of a CPU's row for so many slots.
func watchRow(slots int) int { return watchHead + slots*watchSlot }

// Told counts the packets of a slot that the filter took, by their fate.
type Told struct {
	Events uint64 // that the kernel took
	Above  uint64 // the rate
	Full   uint64 // no place in the ring
}

// ReadTold adds the rows of a map WatchedMap, by slot.
func ReadTold(rows []byte, slots int) []Told {
	out := make([]Told, slots)
	for at := watchHead; at < len(rows); at += watchRow(slots) {
		for i := range out {
			s := (*tellerWatchSlot)(unsafe.Pointer(&rows[at+i*watchSlot]))
			out[i].Events += atomic.LoadUint64(&s.Told)
			out[i].Above += atomic.LoadUint64(&s.Above)
			out[i].Full += atomic.LoadUint64(&s.Full)
		}
	}
	return out
}
