package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Maps of the programs that hand on the first bytes of flows, beside those of others.
const (
	FlowsMap  = "flows"
	PortsMap  = "ports"
	CountsMap = "counts"
)

// Sizes of the ring of flows: for each CPU, and at most.
const (
	flowRing     = 1 << 20
	mostFlowRing = 8 << 20
)

// FlowSnap is how many bytes of a packet are handed on at most, FLOWS_SNAP in bpf/flows.bpf.c.
const FlowSnap = len(readerFlowsCpu{}.Packet)

// Ports says for each port of a destination whether flows of TCP to it are read: 0 or Read.
type Ports = [1 << 16]byte

// Read is that a port is read.
const Read = 1

// FlowSpec is the program with its maps. passes are codes of packets that pass, ether is whether
// frames begin with Ethernet, and limit is how many bytes of a flow are handed on.
func FlowSpec(j Judge, passes []int, ether bool, limit int) (*ebpf.CollectionSpec,
	*ebpf.ProgramSpec, error) {
	spec, err := loadReader()
	if err != nil {
		return nil, nil, fmt.Errorf("read the programs that hand on flows: %w", err)
	}
	p := j.choose(spec, "flows")
	spec.Maps[EventsMap].MaxEntries = RingFor(j.Rows, flowRing, mostFlowRing)
	with := uint32(0)
	if ether {
		with = 1
	}
	return spec, p, j.set(spec, map[string]any{"snap": uint32(FlowSnap), "verdicts": bits(passes),
		"ether": with, "limit": uint32(limit)})
}

// flowBytes is the size of an event in front of the packet.
const flowBytes = int(unsafe.Sizeof(readerFlowsEvent{}))

// FlowEvent is what is known of the flow of a packet.
type FlowEvent struct {
	Time   time.Duration // of CLOCK_MONOTONIC
	Bytes  int           // of the whole frame
	First  uint32        // the number of the first byte
	Proven bool          // the kernel has the connection
}

// ParseFlow reads an event and the packet behind it.
func ParseFlow(raw []byte) (e FlowEvent, packet []byte, err error) {
	if len(raw) < flowBytes {
		return e, nil, fmt.Errorf("an event of %d bytes is too short", len(raw))
	}
	of, _, err := Parse(raw[:EventBytes], 0)
	e = FlowEvent{Time: of.Time, Bytes: of.Bytes,
		First:  binary.NativeEndian.Uint32(raw[EventBytes:]),
		Proven: binary.NativeEndian.Uint32(raw[EventBytes+4:]) != 0}
	packet = raw[flowBytes:]
	return e, packet[:min(len(packet), of.Bytes)], err
}

// ForgetFlow tells the programs that nothing more of a flow is wanted.
func ForgetFlow(flows *ebpf.Map, src, dst netip.AddrPort, proto uint8) error {
	k := readerFlowsKey{SrcPort: bigEndian(src.Port()), DstPort: bigEndian(dst.Port()),
		Proto: uint32(proto)}
	copy(k.Src[:], src.Addr().AsSlice())
	copy(k.Dst[:], dst.Addr().AsSlice())
	const done = 2
	return flows.Update(&k, &readerFlowsFlow{State: done}, ebpf.UpdateExist)
}

// bigEndian is a number whose bytes in memory are those on the wire.
func bigEndian(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

// FlowCounts are packets and flows since the programs began.
type FlowCounts struct {
	Begun uint64 // flows
	Told  uint64 // packets
	Lost  uint64 // packets for which the ring had no place
}

// ReadFlows adds what the CPUs count in the map CountsMap.
func ReadFlows(counts *ebpf.Map) (out FlowCounts, err error) {
	var values []readerFlowsCounts
	if err := counts.Lookup(uint32(0), &values); err != nil {
		return out, fmt.Errorf("count flows: %w", err)
	}
	for i := range values {
		out.Begun += values[i].Begun
		out.Told += values[i].Told
		out.Lost += values[i].Lost
	}
	return out, nil
}
