package stream

import (
	"encoding/binary"
	"net/netip"

	"levee/internal/packet"
)

// SegmentOf returns what a whole frame carries of a flow; false: it is of none. p is overwritten.
func SegmentOf(link packet.Link, frame []byte, p *packet.Packet) (s Segment, ok bool) {
	*p = packet.Packet{}
	link.Decode(frame, p)
	if p.Malformed != packet.WellFormed || p.Fragment || !p.IsIP() {
		return s, false
	}
	s.Src = netip.AddrPortFrom(p.Src, p.SrcPort)
	s.Dst = netip.AddrPortFrom(p.Dst, p.DstPort)
	s.Proto = p.Proto
	end, at := p.NetworkOffset+p.Len, p.TransportOffset
	switch p.Proto {
	case packet.ProtoTCP:
		const fin, rst = 1, 4
		s.Seq = binary.BigEndian.Uint32(frame[at+4:])
		s.Ends = p.Flags&(fin|rst) != 0
		at += int(frame[at+12]>>4) * 4
	case packet.ProtoUDP:
		at += 8
		end = min(end, at+p.UDPPayload)
	default:
		return s, false
	}
	if at > end || end > len(frame) {
		return s, false
	}
	s.Data = frame[at:end]
	return s, true
}
