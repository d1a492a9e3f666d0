package packet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// must builds a packet that the test needs.
func must(t testing.TB, s Spec) []byte {
	t.Helper()
	b, err := Build(s)
	if err != nil {
		t.Fatalf("Build(%+v): %v", s, err)
	}
	return b
}

// specs are one of each kind of packet, in both families.
func specs() map[string]Spec {
	all := map[string]Spec{
		"arp":            {Family: ARP},
		"arp-addresses":  {Family: ARP, From: addr("10.0.0.1"), To: addr("10.0.0.2")},
		"lldp":           {Family: OtherFamily, EtherType: 0x88cc, Len: new(46)},
		"icmp-unreach":   {Type: new(uint8(3)), Code: 4},
		"icmp6-too-big":  {Family: IPv6, Type: new(uint8(2))},
		"icmp6-by-proto": {Proto: new(uint8(ProtoICMP6))},
		"vlan":           {VLAN: new(uint16(7)), ToPort: new(uint16(53))},
		"qinq": {VLAN: new(uint16(7)), InnerVLAN: new(uint16(4095)),
			ToPort: new(uint16(53))},
		"ether-addresses": {EtherFrom: &[6]byte{2, 1, 2, 3, 4, 5},
			EtherTo: &[6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		"4-default": {},
	}
	for _, f := range []Family{IPv4, IPv6} {
		for name, s := range map[string]Spec{
			"tcp": {Proto: new(uint8(ProtoTCP)), FromPort: new(uint16(1)),
				ToPort: new(uint16(65535))},
			"tcp-syn":     {Flags: new(uint8(SYN)), TTL: new(uint8(1)), DSCP: 46},
			"tcp-all":     {Flags: new(uint8(0xff)), Len: new(1400)},
			"udp":         {ToPort: new(uint16(53)), Len: new(1500)},
			"udp-odd":     {ToPort: new(uint16(53)), Len: new(77)},
			"udplite":     {Proto: new(uint8(ProtoUDPLite)), Len: new(101)},
			"sctp":        {Proto: new(uint8(ProtoSCTP)), ToPort: new(uint16(9))},
			"dccp":        {Proto: new(uint8(ProtoDCCP)), ToPort: new(uint16(9))},
			"esp":         {Proto: new(uint8(50)), Len: new(200)},
			"no-protocol": {Proto: new(uint8(59))},
			"options-tcp": {Flags: new(uint8(ACK)), Options: true},
			"options-frag": {Flags: new(uint8(ACK)), Options: true, Frag: new(uint16(185)),
				Len: new(200)},
			"frag-first": {ToPort: new(uint16(53)), Frag: new(uint16(0)), Len: new(1480)},
			"frag-later": {ToPort: new(uint16(53)), Frag: new(uint16(185)), Len: new(900)},
		} {
			s.Family = f
			all[f.String()+"-"+name] = s
		}
	}
	return all
}

func TestBuiltPacketsDecodeToWhatWasAskedFor(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			frame := must(t, s)
			var p Packet
			Decode(frame, &p)
			if p.Malformed != WellFormed {
				t.Fatalf("malformed %d: % x", p.Malformed, frame)
			}
			if s.Len != nil && p.Len != *s.Len {
				t.Errorf("len %d, want %d", p.Len, *s.Len)
			}
			if s.VLAN != nil && (p.Tags == 0 || p.VLAN != *s.VLAN) {
				t.Errorf("vlan %d (%d tags), want %d", p.VLAN, p.Tags, *s.VLAN)
			}
			if s.InnerVLAN != nil && (p.Tags != 2 || p.InnerVLAN != *s.InnerVLAN) {
				t.Errorf("inner-vlan %d (%d tags), want %d", p.InnerVLAN, p.Tags, *s.InnerVLAN)
			}
			if s.EtherFrom != nil && p.SrcMAC != mac(s.EtherFrom[:]) {
				t.Errorf("ether from %x", p.SrcMAC)
			}
			if !p.IsIP() {
				return
			}
			if p.Proto != s.Protocol() || p.DSCP != s.DSCP || p.TTL != s.ttl() {
				t.Errorf("proto %d dscp %d ttl %d, want %d %d %d", p.Proto, p.DSCP, p.TTL,
					s.Protocol(), s.DSCP, s.ttl())
			}
			from, to := s.addresses()
			if p.Src != from || p.Dst != to {
				t.Errorf("from %s to %s, want %s to %s", p.Src, p.Dst, from, to)
			}
			if want := s.Frag != nil; p.Fragment != want {
				t.Errorf("fragment %t, want %t", p.Fragment, want)
			}
			if s.ToPort != nil && !p.LaterFragment && p.DstPort != *s.ToPort {
				t.Errorf("port %d, want %d", p.DstPort, *s.ToPort)
			}
			if s.Flags != nil && !p.LaterFragment && p.Flags != *s.Flags {
				t.Errorf("flags %#x, want %#x", p.Flags, *s.Flags)
			}
			if s.Type != nil && (p.Type != *s.Type || p.Code != s.Code) {
				t.Errorf("type %d/%d, want %d/%d", p.Type, p.Code, *s.Type, s.Code)
			}
		})
	}
}

// gopacket verifies lengths and checksums of what Build made, and agrees with Decode on addresses,
// protocol and ports.
func TestDecodeAgreesWithGopacket(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			frame := must(t, s)
			var p Packet
			Decode(frame, &p)
			gp := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
			if e := gp.ErrorLayer(); e != nil && gopacketKnows(s, &p) {
				t.Fatalf("gopacket: %v: % x", e.Error(), frame)
			}
			for _, l := range gp.Layers() {
				if l, ok := l.(interface {
					SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
				}); ok {
					if err := l.SetNetworkLayerForChecksum(gp.NetworkLayer()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err, bad := gp.VerifyChecksums(); (err != nil || len(bad) > 0) && s.Frag == nil {
				t.Errorf("checksums: %v %v", err, bad)
			}
			if ip, ok := gp.NetworkLayer().(*layers.IPv4); ok {
				if src, _ := netip.AddrFromSlice(ip.SrcIP); src != p.Src ||
					uint8(ip.Protocol) != p.Proto ||
					int(ip.Length) != p.Len || ip.TTL != p.TTL || ip.TOS>>2 != p.DSCP {
					t.Errorf("gopacket: %+v, Decode: %+v", ip, p)
				}
			}
			if ip, ok := gp.NetworkLayer().(*layers.IPv6); ok {
				if dst, _ := netip.AddrFromSlice(ip.DstIP); dst != p.Dst ||
					int(ip.Length)+40 != p.Len ||
					ip.HopLimit != p.TTL || ip.TrafficClass>>2 != p.DSCP {
					t.Errorf("gopacket: %+v, Decode: %+v", ip, p)
				}
			}
			if tcp, ok := gp.TransportLayer().(*layers.TCP); ok && s.Frag == nil {
				if uint16(tcp.SrcPort) != p.SrcPort || uint16(tcp.DstPort) != p.DstPort ||
					tcp.SYN != (p.Flags&SYN != 0) {
					t.Errorf("gopacket: %+v, Decode: %+v", tcp, p)
				}
			}
			if udp, ok := gp.TransportLayer().(*layers.UDP); ok && s.Frag == nil {
				if uint16(udp.SrcPort) != p.SrcPort || uint16(udp.DstPort) != p.DstPort {
					t.Errorf("gopacket: %+v, Decode: %+v", udp, p)
				}
			}
		})
	}
}

// gopacketKnows says whether gopacket can decode the packet to its end.
func gopacketKnows(s Spec, p *Packet) bool {
	switch {
	case s.Frag != nil, !p.IsIP(): // it has no fragments in IPv6, and wants more of LLDP than zeros
		return false
	case p.Proto == 50 || p.Proto == ProtoDCCP ||
		p.Proto == ProtoSCTP: // it wants chunks, or has no decoder
		return false
	}
	return p.Len > 40 // it takes an IPv6 payload length of 0 for a jumbogram
}

// gopacket does not check these: the one's complement sum over a datagram and its pseudo header is
// all ones when the checksum is right (RFC 1071).
func TestUDPLiteAndDCCPChecksums(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		for _, proto := range []uint8{ProtoUDPLite, ProtoDCCP, ProtoTCP, ProtoUDP} {
			s := Spec{Family: f, Proto: &proto, Len: new(131)}
			frame := must(t, s)
			var p Packet
			Decode(frame, &p)
			l4 := frame[p.TransportOffset:]
			acc := partial(p.Dst.AsSlice(), partial(p.Src.AsSlice(), uint32(proto)+uint32(len(l4))))
			if got := sum(l4, acc); got != 0xffff {
				t.Errorf("%s proto %d: sum %#04x, want 0xffff", f, proto, got)
			}
		}
	}
}

func TestBuildRefusesWhatNoPacketCanBe(t *testing.T) {
	tests := []struct {
		name, want string
		s          Spec
	}{
		{"families mixed", "2001:db8::1 in an ipv4 packet",
			Spec{From: addr("192.0.2.1"), To: addr("2001:db8::1")}},
		{"port of icmp", "protocol 1 has no ports",
			Spec{Proto: new(uint8(ProtoICMP)), ToPort: new(uint16(80))}},
		{"flags of udp", "protocol 17 is not TCP",
			Spec{Proto: new(uint8(ProtoUDP)), Flags: new(uint8(SYN))}},
		{"icmp type in IPv6", "ICMPv6 in IPv6",
			Spec{Family: IPv6, Proto: new(uint8(ProtoICMP)), Type: new(uint8(8))}},
		{"extension as protocol", "extension header",
			Spec{Family: IPv6, Proto: new(uint8(ProtoAH))}},
		{"len below headers", "has 40 to 65535 bytes", Spec{Flags: new(uint8(SYN)), Len: new(39)}},
		{"len above IPv4", "has 20 to 65535 bytes", Spec{Len: new(65536)}},
		{"len above IPv6", "has 40 to 65575 bytes", Spec{Family: IPv6, Len: new(65576)}},
		{"negative len", "below 0", Spec{Len: new(-1)}},
		{"frag too far", "at most 8191", Spec{Frag: new(uint16(8192))}},
		{"vlan too high", "at most 4095", Spec{VLAN: new(uint16(4096))}},
		{"inner-vlan alone", "give the outer tag", Spec{InnerVLAN: new(uint16(1))}},
		{"inner-vlan too high", "at most 4095",
			Spec{VLAN: new(uint16(1)), InnerVLAN: new(uint16(4096))}},
		{"dscp too high", "at most 63", Spec{DSCP: 64}},
		{"ttl of arp", "not IP", Spec{Family: ARP, TTL: new(uint8(1))}},
		{"IPv6 in arp", "IPv4 addresses", Spec{Family: ARP, From: addr("::1")}},
		{"address of lldp", "without one",
			Spec{Family: OtherFamily, EtherType: 0x88cc, From: addr("192.0.2.1")}},
		{"ether of IPv4", "write ipv4", Spec{Family: OtherFamily, EtherType: EtherIPv4}},
		{"options of lldp", "not IP", Spec{Family: OtherFamily, EtherType: 0x88cc, Options: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := Build(tt.s)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got % x, %v; want an error with %q", b, err, tt.want)
			}
		})
	}
	if _, err := Build(Spec{Proto: new(uint8(ProtoICMP)), ToPort: new(uint16(80))}); !errors.Is(err,
		errNoSuchField) {
		t.Error("the error of a field that is not there cannot be told from others")
	}
}

func TestBuildReachesTheLongestPackets(t *testing.T) {
	for f, n := range map[Family]int{IPv4: 65535, IPv6: 65575} {
		var p Packet
		Decode(must(t, Spec{Family: f, ToPort: new(uint16(1)), Proto: new(uint8(ProtoTCP)),
			Len: &n}), &p)
		if p.Malformed != WellFormed || p.Len != n {
			t.Errorf("%s: malformed %d, len %d, want %d", f, p.Malformed, p.Len, n)
		}
	}
}
