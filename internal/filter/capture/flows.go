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
	FlowsMap  = "flows"     // of TCP
	UDPMap    = "flows_udp" // of UDP
	PortsMap  = "ports"
	CountsMap = "counts"
)

// Sizes of the ring of flows: for each CPU, and at most.
const (
	flowRing     = 1 << 20
	mostFlowRing = 8 << 20
)

// flowSnap is the largest number of a packet's bytes that are handed on, FLOWS_SNAP in
// bpf/flows.bpf.c.
const flowSnap = len(readerFlowsCpu{}.Packet)

// Ports says for each port of a destination which flows to it are read, in bits.
type Ports = [1 << 16]byte

// Which flows to a port are read.
const (
	ReadTCP      = 1
	ReadUDP      = 2
	ReadInitials = 4 // of UDP: datagrams that begin with an Initial of QUIC
)

// flowIdle is after how long without a datagram a flow of UDP begins anew.
const flowIdle = time.Minute

// FlowBounds say how much of a flow goes to the reader: bytes of a stream, or datagrams, and one
// more of these.
type FlowBounds struct{ Bytes, Datagrams int }

// FlowSpec returns the program with its maps. passes are codes of packets that pass, ether is
// whether frames begin with Ethernet, and hz is how many jiffies a second has.
func FlowSpec(j Judge, passes []int, ether bool, most FlowBounds, hz uint64) (*ebpf.CollectionSpec,
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
	return spec, p, j.set(spec, map[string]any{"snap": uint32(flowSnap), "verdicts": bits(passes),
		"ether": with, "limit": uint32(most.Bytes), "datagrams": uint32(most.Datagrams),
		"idle": uint32(uint64(flowIdle/time.Second) * hz)})
}

// flowBytes is the size of an event in front of the packet.
const flowBytes = int(unsafe.Sizeof(readerFlowsEvent{}))

// FlowEvent describes a packet's place in its flow.
type FlowEvent struct {
	Time   time.Duration // of CLOCK_MONOTONIC
	Bytes  int           // of the whole frame
	First  uint32        // the number of the first byte; of UDP what tells the flow from others
	Number uint32        // of a datagram: how many came before
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
		Proven: binary.NativeEndian.Uint32(raw[EventBytes+4:]) != 0,
		Number: binary.NativeEndian.Uint32(raw[EventBytes+8:])}
	packet = raw[flowBytes:]
	return e, packet[:min(len(packet), of.Bytes)], err
}

// FlowKey returns the key of a flow in the map of its protocol. Addresses of IPv4 are no mapped
// ones.
func FlowKey(src, dst netip.AddrPort, proto uint8) any {
	const six = 1 << 8 // FLOWS_IPV6
	k := readerFlowsKey{SrcPort: bigEndian(src.Port()), DstPort: bigEndian(dst.Port()),
		Proto: uint32(proto)}
	if src.Addr().Is6() {
		k.Proto |= six
	}
	copy(k.Src[:], src.Addr().AsSlice())
	copy(k.Dst[:], dst.Addr().AsSlice())
	return &k
}

// FlowState is the state of a flow in that map.
type FlowState readerFlowsFlow

// DoneFlow says that nothing more of a flow is wanted.
func DoneFlow() *FlowState {
	const done = 2
	return &FlowState{State: done}
}

// Datagrams returns how many there were, if the flow is that which began at first.
func (f *FlowState) Datagrams(first uint32) (n uint32, ok bool) {
	const above = 8 // FLOWS_COUNT
	return f.State >> above, f.From == first
}

// bigEndian returns a number whose bytes in memory are those on the wire.
func bigEndian(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

// FlowCounts are packets and flows since the programs began, as each CPU counts them in the map
// CountsMap: struct flows_counts of bpf/flows.bpf.c.
type FlowCounts struct {
	Begun uint64 // flows
	Told  uint64 // packets
	Lost  uint64 // packets for which the ring had no place
}

// Add adds others.
func (c *FlowCounts) Add(o FlowCounts) {
	c.Begun, c.Told, c.Lost = c.Begun+o.Begun, c.Told+o.Told, c.Lost+o.Lost
}
