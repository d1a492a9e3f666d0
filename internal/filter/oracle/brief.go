package oracle

import (
	"fmt"
	"net/netip"
	"strings"

	"levee/internal/packet"
)

// Brief returns what most want to know of a frame, in one short line: who sends what to whom, and
// what is uncommon. The frame has length bytes, of which the last may be missing. Headers says
// everything.
func Brief(frame []byte, length int, link packet.Link) string {
	var p packet.Packet
	frame, _ = packet.Record{Data: frame, Length: length}.Whole(nil)
	link.Decode(frame, &p)
	var words []string
	for i, id := range []uint16{p.VLAN, p.InnerVLAN} {
		if i < p.Tags {
			words = append(words, fmt.Sprintf("vlan %d", id))
		}
	}
	if !p.IsIP() || !p.Src.IsValid() {
		return strings.Join(append(words, fmt.Sprintf("ether 0x%04x, %d bytes", p.EtherType,
			length)), " ")
	}
	words = append(words, protoName(uint64(p.Proto)), end(&p, p.Src, p.SrcPort), ">",
		end(&p, p.Dst, p.DstPort))
	switch p.Transport {
	case packet.TCPTransport:
		words = append(words, flagNames(p.Flags))
	case packet.ICMPTransport, packet.ICMP6Transport:
		words = append(words, fmt.Sprintf("type %d/%d", p.Type, p.Code))
	}
	if p.Fragment && !p.LaterFragment {
		words = append(words, "first fragment")
	} else if p.LaterFragment {
		words = append(words, "fragment")
	}
	return strings.Join(append(words, fmt.Sprintf("len %d", p.Len)), " ")
}

// end returns an address, with its port if the packet has ports.
func end(p *packet.Packet, a netip.Addr, port uint16) string {
	if !p.HasPorts() {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}
