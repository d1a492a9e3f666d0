package capture

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Maps of the programs that take samples, beside CountersMap: a pair of kinds for each CPU, and
// levee's array of programs, which is for the caller to replace.
const (
	SampledMap  = "sampled"
	ProgramsMap = "programs"
	SamplesMap  = "samples" // the ring
)

// Sizes of the ring: for each CPU, and at most.
const (
	sampleRing     = 256 << 10
	mostSampleRing = 16 << 20
)

// MostSnap limits the bytes of a packet in a sample, SAMPLE_SNAP in bpf/sample.bpf.c.
const MostSnap = 256

// Sample says of which packets samples are taken.
type Sample struct {
	Judge
	Snap   int   // bytes of each packet that are handed on
	Passes []int // codes of packets that pass
}

// SampleSpec returns the program with its maps.
func SampleSpec(s Sample) (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	spec, err := loadSampler()
	if err != nil {
		return nil, nil, fmt.Errorf("read the programs that take samples: %w", err)
	}
	if s.Snap > MostSnap {
		return nil, nil, fmt.Errorf("a sample has at most %d bytes of a packet, not %d", MostSnap,
			s.Snap)
	}
	p := s.choose(spec, "sample")
	spec.Maps[SampledMap].MaxEntries = uint32(s.Rows)
	spec.Maps["rooms"].MaxEntries = uint32(s.Rows)
	spec.Maps[SamplesMap].MaxEntries = RingFor(s.Rows, sampleRing, mostSampleRing)
	return spec, p, s.set(spec, map[string]any{"snap": uint32(s.Snap), "verdicts": bits(s.Passes),
		"bound": uint64(1)})
}

// sampleBytes is the size of what a sample says, in front of the packet.
const sampleBytes = int(unsafe.Sizeof(samplerSampleEvent{}))

// ParseSample reads what a sample says, how many packets it stands for, and the packet.
func ParseSample(raw []byte, snap int) (e Event, weight uint64, packet []byte, err error) {
	if len(raw) < sampleBytes {
		return e, 0, nil, fmt.Errorf("a sample of %d bytes is too short", len(raw))
	}
	e, _, err = Parse(raw[:EventBytes], 0)
	weight = binary.NativeEndian.Uint64(raw[EventBytes:])
	packet = raw[sampleBytes:]
	return e, weight, packet[:min(len(packet), e.Bytes, snap)], err
}

// Sampled holds the counts of samples, of all CPUs together.
type Sampled struct {
	Told uint64 // samples that the kernel took
	Full uint64 // had no place in the ring; others stand for them
}

// ReadSampled adds the kinds in a map SampledMap.
func ReadSampled(mem []byte) (out Sampled) {
	size := int(unsafe.Sizeof(samplerSampleKind{}))
	for at := 0; at+size <= len(mem); at += size {
		k := (*samplerSampleKind)(unsafe.Pointer(&mem[at]))
		out.Told += atomic.LoadUint64(&k.Told)
		out.Full += atomic.LoadUint64(&k.Full)
	}
	return out
}
