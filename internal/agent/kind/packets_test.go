package kind

import (
	"net/netip"
	"testing"

	"levee/internal/packet"
)

// TestAPacketIsOfOneKind: what a kind has was written in a switch of the detector, so that a new
// kind was a row, and a case elsewhere.
func TestAPacketIsOfOneKind(t *testing.T) {
	tcp := func(flags uint8) packet.Packet {
		return packet.Packet{Proto: packet.ProtoTCP, Transport: packet.TCPTransport, Flags: flags}
	}
	udp := func(from uint16) packet.Packet {
		return packet.Packet{Proto: packet.ProtoUDP, Transport: packet.PortTransport, SrcPort: from}
	}
	fragment := func(p packet.Packet) packet.Packet { p.Fragment = true; return p }
	asked := map[Kind]bool{Link: true}
	for _, c := range []struct {
		what string
		p    packet.Packet
		want Kind
	}{
		{"SYN", tcp(packet.SYN), SYN},
		{"SYN with other flags", tcp(packet.SYN | 0x28), SYN},
		{"SYN-ACK", tcp(packet.SYN | packet.ACK), TCP},
		{"ACK", tcp(packet.ACK), TCP},
		{"RST", tcp(packet.RST), TCP},
		{"FIN-ACK", tcp(packet.FIN | packet.ACK), TCP},
		{"RST-FIN", tcp(packet.RST | packet.FIN), TCP},
		{"no flags", tcp(0), Other},
		{"PSH", tcp(0x08), Other},
		{"FIN", tcp(packet.FIN), Other},
		{"SYN-FIN", tcp(packet.SYN | packet.FIN), Other},
		{"SYN-RST", tcp(packet.SYN | packet.RST), Other},
		{"a first fragment of TCP", fragment(tcp(packet.SYN)), Fragments},
		{"a first fragment of a connection", fragment(tcp(packet.ACK)), Fragments},
		{"UDP", udp(40_000), UDP},
		{"an answer of DNS", udp(53), Reflection},
		{"a first fragment of such", fragment(udp(53)), Fragments},
		{"ICMP", packet.Packet{Proto: packet.ProtoICMP, Transport: packet.ICMPTransport}, ICMP},
		{"ICMPv6", packet.Packet{Proto: packet.ProtoICMP6, Transport: packet.ICMP6Transport}, ICMP},
		{"GRE", packet.Packet{Proto: 47}, Other},
	} {
		asked[c.want] = true
		c.p.Family, c.p.Src = packet.IPv4, netip.MustParseAddr("192.0.2.1")
		if got := OfPacket(&c.p); got != c.want {
			t.Errorf("%s is of kind %q, want %q", c.what, got, c.want)
		}
		for k := range Num {
			if want := k == c.want || k == Packets || k == Bits; k.Is(&c.p) != want {
				t.Errorf("%s is of kind %q: %t", c.what, k, !want)
			}
		}
	}
	if arp := (packet.Packet{EtherType: 0x0806}); OfPacket(&arp) != Link || UDP.Is(&arp) {
		t.Error("ARP is of another kind")
	}
	for k, r := range Rows {
		if r.Has != nil && !asked[Kind(k)] {
			t.Errorf("this test has no packet of %s: add one, and one that is nearly so", r.Name)
		}
	}
}

// TestEachKindSaysWhichPacketsItHas, and counters by which they are known.
func TestEachKindSaysWhichPacketsItHas(t *testing.T) {
	counters := map[Counter]Kind{}
	for k, r := range Rows {
		of := Kind(k)
		if own := of != Other && of != Packets && of != Bits; (r.Has != nil) != own {
			t.Errorf("%s: it has a function Has: %t, want %t", r.Name, r.Has != nil, own)
		}
		all := []Counter{r.Counter}
		if r.All != r.Counter {
			all = append(all, r.All, r.Same)
		} else if r.Repeat != 1 && r.Repeat != 0 || r.Same != 0 {
			t.Errorf("%s: Repeat %v, Same %d: where All is Counter, want 1 or 0 and no Same",
				r.Name, r.Repeat, r.Same)
		}
		for _, c := range all {
			if o, there := counters[c]; there {
				t.Errorf("%s and %s have a counter in common", r.Name, o)
			}
			counters[c] = of
		}
	}
}
