package capture

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"

	"levee/internal/packet"
)

// FromSources returns a filter for the packets that come from one of some addresses, on a link
// layer, behind up to two tags.
func FromSources(l packet.Link, from []netip.Addr) (out []bpf.Instruction) {
	if l == packet.L3 {
		for _, a := range from {
			version := uint32(6)
			if a.Is4() {
				version = 4
			}
			out = append(out, bpf.LoadAbsolute{Off: 0, Size: 1},
				bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4})
			out = append(out, sourceIf(version, 0, a)...)
		}
		return append(out, bpf.RetConstant{})
	}
	const etherType, tag, tags = 12, 4, 2
	for n := range uint32(tags + 1) {
		at := etherType + n*tag
		for _, a := range from {
			ip := uint32(packet.EtherIPv6)
			if a.Is4() {
				ip = packet.EtherIPv4
			}
			out = append(out, bpf.LoadAbsolute{Off: at, Size: 2})
			out = append(out, sourceIf(ip, at+2, a)...)
		}
		if n < tags {
			out = append(out, bpf.LoadAbsolute{Off: at, Size: 2},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.EtherCTag, SkipTrue: 2},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: packet.EtherSTag, SkipTrue: 1},
				bpf.RetConstant{})
		}
	}
	return append(out, bpf.RetConstant{})
}

// sourceIf takes a packet if A is a value and the IP header at an offset has the source, and goes
// on behind itself else.
func sourceIf(value, at uint32, from netip.Addr) []bpf.Instruction {
	source := at + 12
	if from.Is6() {
		source = at + 8
	}
	bytes := from.AsSlice()
	words := len(bytes) / 4
	left := func(word int) uint8 { return uint8(2*(words-word-1) + 1) } // behind a comparison
	out := []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value,
		SkipTrue: left(-1)}}
	for i := range words {
		out = append(out, bpf.LoadAbsolute{Off: source + uint32(4*i), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(bytes[4*i:]),
				SkipTrue: left(i)})
	}
	return append(out, bpf.RetConstant{Val: 1})
}
