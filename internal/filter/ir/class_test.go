package ir

import (
	"testing"

	"levee/internal/packet"
)

// TestPacketsHaveTheirClass: a packet of each protocol, of both families.
func TestPacketsHaveTheirClass(t *testing.T) {
	for proto, want := range map[uint8]Transport{
		packet.ProtoTCP: TCP, packet.ProtoUDP: UDP, packet.ProtoUDPLite: UDPLite,
		packet.ProtoSCTP: SCTP, packet.ProtoDCCP: DCCP, packet.ProtoICMP: ICMP,
		packet.ProtoICMP6: ICMP, 47: Other,
	} {
		for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
			if proto == packet.ProtoICMP && family == packet.IPv6 ||
				proto == packet.ProtoICMP6 && family == packet.IPv4 {
				continue
			}
			frame, err := packet.Build(packet.Spec{Family: family, Proto: &proto})
			if err != nil {
				t.Fatal(err)
			}
			var p packet.Packet
			packet.Decode(frame, &p)
			c := Class{Family: IPv4, Transport: want}
			if family == packet.IPv6 {
				c.Family = IPv6
			}
			if got := ClassOf(&p); got != c {
				t.Errorf("protocol %d: %v, want %v", proto, got, c)
			}
			p.Fragment = true
			if c.Fragment = true; ClassOf(&p) != c {
				t.Errorf("a fragment of protocol %d: %v", proto, ClassOf(&p))
			}
		}
	}
	if c := ClassOf(&packet.Packet{EtherType: 0x0806}); c != (Class{}) {
		t.Errorf("ARP: %v", c)
	}
}
