package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// bytesOf reads hex digits with free white space.
func bytesOf(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const ethernetHex = "020000000002 020000000001"

// v4 is a frame with an IPv4 packet of that protocol and payload; change edits the header.
func v4(t testing.TB, proto uint8, payload []byte, change func(h []byte)) []byte {
	h := append(bytesOf(t, ethernetHex+"0800"),
		bytesOf(t, "45000000 00000000 40000000 c0000201 c6336401")...)
	ip := h[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload)))
	ip[9] = proto
	h = append(h, payload...)
	if change != nil {
		change(h[14:])
	}
	return h
}

// v6 is a frame with an IPv6 packet of that first next header and payload.
func v6(t testing.TB, next uint8, payload []byte, change func(h []byte)) []byte {
	h := append(bytesOf(t, ethernetHex+"86dd"),
		bytesOf(t, "60000000 00000040 20010db8000000000000000000000001 "+
			"20010db8000100000000000000000001")...)
	ip := h[14:]
	binary.BigEndian.PutUint16(ip[4:], uint16(len(payload)))
	ip[6] = next
	h = append(h, payload...)
	if change != nil {
		change(h[14:])
	}
	return h
}

func zeros(n int) []byte { return make([]byte, n) }

// tcp is n bytes of TCP with that data offset.
func tcp(n, offset int) []byte {
	b := zeros(n)
	if n > 12 {
		b[12] = byte(offset << 4)
	}
	return b
}

// udp is n bytes of UDP with that length field.
func udp(n, length int) []byte {
	b := zeros(n)
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	return b
}

// chain is a chain of extension headers, 8 bytes each, then the header number last.
func chain(last uint8, kinds ...uint8) []byte {
	var b []byte
	for i := range kinds {
		next := last
		if i+1 < len(kinds) {
			next = kinds[i+1]
		}
		b = append(b, next, 0, 0, 0, 0, 0, 0, 0)
	}
	return b
}

func repeat(kind uint8, n int) []uint8 { return bytes.Repeat([]byte{kind}, n) }

func cut(b []byte, n int) []byte { return b[:len(b)-n] }

func TestEachMalformedReasonAndItsBoundary(t *testing.T) {
	tag := func(n int) string { return strings.Repeat("8100 0007", n) }
	length := func(d int) func([]byte) {
		return func(h []byte) {
			binary.BigEndian.PutUint16(h[2:],
				uint16(int(binary.BigEndian.Uint16(h[2:]))+d))
		}
	}
	length6 := func(d int) func([]byte) {
		return func(h []byte) {
			binary.BigEndian.PutUint16(h[4:],
				uint16(int(binary.BigEndian.Uint16(h[4:]))+d))
		}
	}
	frag4 := func(field int) func([]byte) {
		return func(h []byte) { binary.BigEndian.PutUint16(h[6:], uint16(field)) }
	}
	frag6 := func(next uint8, field uint16, behind int) []byte {
		b := append(zeros(8), zeros(behind)...)
		b[0] = next
		binary.BigEndian.PutUint16(b[2:], field)
		return b
	}
	tests := []struct {
		name  string
		frame []byte
		want  Malformed
	}{
		{"no bytes", nil, TruncatedEthernet},
		{"13 bytes", cut(bytesOf(t, ethernetHex+"88cc"), 1), TruncatedEthernet},
		{"14 bytes", bytesOf(t, ethernetHex+"88cc"), WellFormed},
		{"a tag without its bytes", bytesOf(t, ethernetHex+"8100"), TruncatedEthernet},
		{"a tag with 3 of 4 bytes", bytesOf(t, ethernetHex+"8100 0007 88"), TruncatedEthernet},
		{"a tag with its 4 bytes", bytesOf(t, ethernetHex+"8100 0007 88cc"), WellFormed},
		{"a second tag with 3 bytes", bytesOf(t, ethernetHex+"88a8 0007 8100 0001 88"),
			TruncatedEthernet},
		{"two tags", bytesOf(t, ethernetHex+tag(2)+"88cc"), WellFormed},
		{"three tags", bytesOf(t, ethernetHex+tag(3)+"88cc"), VLANDepth},
		{"a third tag's TPID alone", bytesOf(t, ethernetHex+tag(2)+"88a8"), VLANDepth},
		{"802.3 length", bytesOf(t, ethernetHex+"0026 4242 03"), WellFormed},

		{"IPv4 without bytes", bytesOf(t, ethernetHex+"0800"), TruncatedIP},
		{"IPv4 with 19 bytes", cut(v4(t, 253, nil, nil), 1), TruncatedIP},
		{"IPv4 with 20 bytes", v4(t, 253, nil, nil), WellFormed},
		{"IPv6 with 39 bytes", cut(v6(t, 253, nil, nil), 1), TruncatedIP},
		{"IPv6 with 40 bytes", v6(t, 253, nil, nil), WellFormed},
		{"IPv4 with 19 bytes of version 6: the bytes come first",
			cut(v4(t, 253, nil, func(h []byte) { h[0] = 0x65 }), 1), TruncatedIP},

		{"version 6 in IPv4", v4(t, 253, zeros(40), func(h []byte) { h[0] = 0x65 }), IPVersion},
		{"version 0 in IPv4, header length 0: the version comes first",
			v4(t, 253, nil, func(h []byte) { h[0] = 0 }), IPVersion},
		{"version 4 in IPv6", v6(t, 253, nil, func(h []byte) { h[0] = 0x45 }), IPVersion},
		{"version 7 in IPv6, payload too long",
			v6(t, 253, nil, func(h []byte) { h[0] = 0x70; h[4] = 1 }), IPVersion},

		{"IPv4 header of 16 bytes", v4(t, 253, nil, func(h []byte) { h[0] = 0x44 }),
			IPHeaderLength},
		{"IPv4 header of 0 bytes and total length 0",
			v4(t, 253, nil, func(h []byte) { h[0] = 0x40; h[3] = 0 }), IPHeaderLength},
		{"IPv4 header of 24 bytes in 24", v4(t, 253, zeros(4), func(h []byte) { h[0] = 0x46 }),
			WellFormed},
		{"IPv4 header of 60 bytes in 60", v4(t, 253, zeros(40), func(h []byte) { h[0] = 0x4f }),
			WellFormed},

		{"IPv4 total length 19", v4(t, 253, nil, length(-1)), IPLength},
		{"IPv4 total length 0", v4(t, 253, zeros(20), func(h []byte) { h[2], h[3] = 0, 0 }),
			IPLength},
		{"IPv4 total length below the options",
			v4(t, 253, zeros(3), func(h []byte) { h[0] = 0x46 }), IPLength},
		{"IPv4 total length above the frame", v4(t, 253, nil, length(1)), IPLength},
		{"IPv4 with padding", append(v4(t, 253, nil, nil), 0), WellFormed},
		{"IPv6 payload length above the frame", v6(t, 253, nil, length6(1)), IPLength},
		{"IPv6 with padding", append(v6(t, 253, nil, nil), 0), WellFormed},
		// 65,504 + 27
		{"IPv4 fragment that ends at 65,531", v4(t, 253, zeros(7), frag4(8188)), WellFormed},
		{"IPv4 fragment that ends at 65,535 exactly", v4(t, 253, zeros(11), frag4(8188)),
			WellFormed},
		{"IPv4 fragment that ends at 65,536", v4(t, 253, zeros(12), frag4(8188)), IPLength},
		// 65,528 + 20
		{"IPv4 fragment with the last offset", v4(t, 253, nil, frag4(8191)), IPLength},
		{"IPv6 fragment that ends at 65,535", v6(t, 44, frag6(253, 8191<<3, 7), nil), WellFormed},
		{"IPv6 fragment that ends at 65,536", v6(t, 44, frag6(253, 8191<<3, 8), nil), IPLength},
		{"padding does not lengthen a fragment",
			append(v6(t, 44, frag6(253, 8191<<3, 7), nil), zeros(20)...), WellFormed},

		{"8 extension headers", v6(t, 60, chain(253, repeat(60, 8)...), nil), WellFormed},
		{"9 extension headers", v6(t, 60, chain(253, repeat(60, 9)...), nil), ExtHeaders},
		{"a ninth extension header without bytes", v6(t, 60, chain(60, repeat(60, 8)...), nil),
			ExtHeaders},
		{"9 of all kinds", v6(t, 0, chain(6, 0, 60, 43, 44, 51, 135, 60, 60, 44), nil), ExtHeaders},
		{"8 of all kinds, UDP behind", v6(t, 0,
			append(chain(17, 0, 60, 43, 44, 51, 135, 60, 44), udp(8, 8)...), nil), WellFormed},
		{"a later fragment behind 7 headers ends the walk before a ninth",
			v6(t, 60, append(chain(44, repeat(60, 7)...), frag6(60, 8, 0)...), nil), WellFormed},

		{"extension header without bytes", v6(t, 0, nil, nil), TruncatedExt},
		{"extension header with 1 byte", v6(t, 60, []byte{59}, nil), TruncatedExt},
		{"extension header with 7 of 8 bytes", v6(t, 43, cut(chain(59, 43), 1), nil), TruncatedExt},
		{"extension header with 15 of 16 bytes", v6(t, 0, append([]byte{59, 1}, zeros(13)...), nil),
			TruncatedExt},
		{"extension header with 16 of 16 bytes", v6(t, 0, append([]byte{59, 1}, zeros(14)...), nil),
			WellFormed},
		{"fragment header with 7 of 8 bytes", v6(t, 44, cut(chain(59, 44), 1), nil), TruncatedExt},
		{"fragment header whose reserved byte is no length",
			v6(t, 44, append([]byte{59, 255}, zeros(6)...), nil), WellFormed},
		{"authentication header with 11 of 12 bytes",
			v6(t, 51, append([]byte{59, 1}, zeros(9)...), nil), TruncatedExt},
		{"authentication header with 12 of 12 bytes",
			v6(t, 51, append([]byte{59, 1}, zeros(10)...), nil), WellFormed},
		{"authentication header of 1,028 bytes",
			v6(t, 51, append([]byte{59, 255}, zeros(1026)...), nil), WellFormed},
		{"extension header in the padding", append(v6(t, 60, nil, nil), zeros(8)...), TruncatedExt},
		{"jumbogram", append(v6(t, 0, nil, nil), bytesOf(t, "3b00 c204 00010000")...),
			TruncatedExt},

		{"TCP of 19 bytes", v4(t, 6, tcp(19, 5), nil), TruncatedL4},
		{"TCP of 20 bytes", v4(t, 6, tcp(20, 5), nil), WellFormed},
		{"TCP of 20 bytes, the last in the padding", v4(t, 6, tcp(20, 5), length(-1)), TruncatedL4},
		{"UDP of 7 bytes", v4(t, 17, zeros(7), nil), TruncatedL4},
		{"UDP-Lite of 7 bytes", v6(t, 136, zeros(7), nil), TruncatedL4},
		{"UDP-Lite of 8 bytes", v6(t, 136, zeros(8), nil), WellFormed},
		{"SCTP of 11 bytes", v6(t, 132, zeros(11), nil), TruncatedL4},
		{"SCTP of 12 bytes", v6(t, 132, zeros(12), nil), WellFormed},
		{"DCCP of 11 bytes", v4(t, 33, zeros(11), nil), TruncatedL4},
		{"DCCP of 12 bytes", v4(t, 33, zeros(12), nil), WellFormed},
		{"ICMP of 7 bytes", v4(t, 1, zeros(7), nil), TruncatedL4},
		{"ICMP of 8 bytes", v4(t, 1, zeros(8), nil), WellFormed},
		{"ICMPv6 of 7 bytes", v6(t, 58, zeros(7), nil), TruncatedL4},
		{"ICMPv6 of 8 bytes", v6(t, 58, zeros(8), nil), WellFormed},
		{"ICMPv6 in IPv4 has no header", v4(t, 58, nil, nil), WellFormed},
		{"ICMP in IPv6 has no header", v6(t, 1, nil, nil), WellFormed},
		{"AH in IPv4 is not walked", v4(t, 51, nil, nil), WellFormed},
		{"no next header, and bytes behind it", v6(t, 59, zeros(3), nil), WellFormed},
		{"first fragment of TCP with 19 bytes", v4(t, 6, tcp(19, 5), frag4(0x2000)), TruncatedL4},
		{"later fragment of TCP with 1 byte", v4(t, 6, zeros(1), frag4(1)), WellFormed},
		{"later fragment of TCP with no bytes in IPv6", v6(t, 44, frag6(6, 8, 0), nil), WellFormed},
		{"first fragment of UDP with 7 bytes in IPv6", v6(t, 44, frag6(17, 1, 7), nil),
			TruncatedL4},

		{"TCP data offset 4", v4(t, 6, tcp(20, 4), nil), L4Length},
		{"TCP data offset 6 in 23 bytes", v4(t, 6, tcp(23, 6), nil), L4Length},
		{"TCP data offset 6 in 24 bytes", v4(t, 6, tcp(24, 6), nil), WellFormed},
		{"TCP data offset 6 in 24 bytes, the last in the padding", v4(t, 6, tcp(24, 6), length(-1)),
			L4Length},
		{"first fragment of TCP, data offset beyond it", v4(t, 6, tcp(20, 6), frag4(0x2000)),
			L4Length},
		{"UDP length 7", v4(t, 17, udp(8, 7), nil), L4Length},
		{"UDP length 0", v6(t, 17, udp(8, 0), nil), L4Length},
		{"UDP length 8 in 9 bytes", v4(t, 17, udp(9, 8), nil), WellFormed},
		{"UDP length 9 in 8 bytes", v4(t, 17, udp(8, 9), nil), L4Length},
		{"UDP length 9 in 8 bytes and padding", append(v4(t, 17, udp(8, 9), nil), 0), L4Length},
		{"first fragment with the length of the whole datagram",
			v4(t, 17, udp(8, 4000), frag4(0x2000)), WellFormed},
		{"first fragment with UDP length 7", v4(t, 17, udp(8, 7), frag4(0x2000)), L4Length},
		{"atomic fragment with UDP length 9 in 8 bytes",
			v6(t, 44, append(chain(17, 44), udp(8, 9)...), nil), L4Length},
		{"don't-fragment is no fragment", v4(t, 17, udp(8, 9), frag4(0x4000)), L4Length},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p Packet
			Decode(tt.frame, &p)
			if p.Malformed != tt.want {
				t.Errorf("malformed %d, want %d: % x", p.Malformed, tt.want, tt.frame)
			}
		})
	}
}

// carried is a frame with an IPv4 packet of 29 bytes behind what the digits say, and padding.
func carried(t *testing.T, head string, padding int) []byte {
	t.Helper()
	ip := v4(t, ProtoUDP, append([]byte{0, 1, 0, 2, 0, 9, 0, 0}, 1), nil)[etherHeader:]
	return slices.Concat(bytesOf(t, ethernetHex+head), ip, zeros(padding))
}

func TestPPPoEHoldsWhatItSays(t *testing.T) {
	for name, tt := range map[string]struct {
		frame []byte
		want  Malformed
	}{
		"IP that goes on behind it": {carried(t, "8864 1100 0007 001e 0021", 9), IPLength},
		"longer than the frame": {carried(t, "8864 1100 0007 0020 0021", 0),
			TruncatedEthernet},
		"shorter than its protocol": {carried(t, "8864 1100 0007 0001 0021", 0),
			TruncatedEthernet},
		"shorter than a protocol of one byte": {carried(t, "8864 1100 0007 0000 21", 0),
			TruncatedEthernet},
		"without its header": {bytesOf(t, ethernetHex+"8864 1100 0007 0000 00"),
			TruncatedEthernet},
	} {
		var p Packet
		if Decode(tt.frame, &p); p.Malformed != tt.want {
			t.Errorf("%s: reason %d, want %d", name, p.Malformed, tt.want)
		}
	}
}

func TestDecodeFields(t *testing.T) {
	// atomic, then a later fragment with more to come
	two := append(chain(44, 44), 17, 0, 0, 9, 0, 0, 0, 0)
	tests := []struct {
		name  string
		frame []byte
		check func(*Packet) bool
	}{
		{"a priority tag has id 0", bytesOf(t, ethernetHex+"8100 e000 88cc"),
			func(p *Packet) bool {
				return p.Tags == 0 && p.AllTags == 1 && p.EtherType == 0x88cc &&
					p.Len == 0
			}},
		{"the id is the low 12 bits", bytesOf(t, ethernetHex+"88a8 ffff 8100 f001 0806 00"),
			func(p *Packet) bool {
				return p.VLAN == 4095 && p.InnerVLAN == 1 && p.EtherType == EtherARP && p.Len == 1
			}},
		{"IP within PPPoE", carried(t, "8100 0005 8864 1100 0007 001f 0021", 9),
			func(p *Packet) bool {
				return p.Malformed == WellFormed && p.Carried && p.EtherType == EtherIPv4 &&
					p.NetworkOffset == 26 && p.VLAN == 5 && p.Len == 29 &&
					p.Transport == PortTransport
			}},
		{"IP within PPPoE, by a protocol of one byte",
			carried(t, "8100 0005 8864 1100 0007 001e 21", 9),
			func(p *Packet) bool {
				return p.Malformed == WellFormed && p.Carried && p.EtherType == EtherIPv4 &&
					p.NetworkOffset == 25 && p.Len == 29 && p.Transport == PortTransport
			}},
		{"PPP's own protocols", carried(t, "8864 1100 0007 001f c021", 0),
			func(p *Packet) bool {
				return p.Malformed == WellFormed && !p.Carried && p.EtherType == EtherPPPoE &&
					p.Family == AnyFamily
			}},
		{"PPPoE of another version and code", carried(t, "8864 2109 0007 001f 0021", 0),
			func(p *Packet) bool {
				return p.Malformed == WellFormed && p.Carried && p.EtherType == EtherIPv4
			}},
		{"two labels", carried(t, "8847 00010040 00011140", 0),
			func(p *Packet) bool {
				return p.Carried && p.EtherType == EtherIPv4 && p.NetworkOffset == 22 && p.Len == 29
			}},
		{"labels without end", carried(t, "8848 00010040", 0),
			func(p *Packet) bool { return p.Malformed == TruncatedEthernet || !p.Carried }},
		{"nine labels", carried(t, "8847"+strings.Repeat("00010040", 8)+"00011140", 0),
			func(p *Packet) bool { return p.Malformed == WellFormed && !p.Carried }},
		{"a label and no IP", bytesOf(t, ethernetHex+"8847 00011140 00"),
			func(p *Packet) bool { return p.Malformed == WellFormed && !p.Carried }},
		{"one tag has no inner id", bytesOf(t, ethernetHex+"8100 0001 88cc"),
			func(p *Packet) bool { return p.InnerVLAN == 0 && p.Tags == 1 }},
		{"Ethernet addresses, first octet highest", bytesOf(t, "010203040506 0708090a0b0c 0026 00"),
			func(p *Packet) bool {
				return p.DstMAC == 0x010203040506 && p.SrcMAC == 0x0708090a0b0c &&
					p.EtherType == 0x26 && p.Len == 1
			}},
		{"len is the total length, not the frame", append(v4(t, 253, zeros(5), nil), zeros(30)...),
			func(p *Packet) bool { return p.Len == 25 }},
		{"len is the payload length plus 40", append(v6(t, 253, zeros(5), nil), zeros(30)...),
			func(p *Packet) bool { return p.Len == 45 }},
		{"dscp of TOS", v4(t, 253, nil, func(h []byte) { h[1] = 0xbb }),
			func(p *Packet) bool { return p.DSCP == 46 }},
		{"dscp of traffic class", v6(t, 253, nil, func(h []byte) { h[0], h[1] = 0x6b, 0xbf }),
			func(p *Packet) bool { return p.DSCP == 46 }},
		{"hop limit", v6(t, 253, nil, func(h []byte) { h[7] = 255 }),
			func(p *Packet) bool { return p.TTL == 255 }},
		{"ports behind options", v4(t, 17, append(zeros(40), 0, 53, 1, 0, 0, 8, 0, 0),
			func(h []byte) { h[0] = 0x4f }),
			func(p *Packet) bool {
				return p.SrcPort == 53 && p.DstPort == 256 &&
					p.TransportOffset == 74
			}},
		{"the protocol is the last next header",
			v6(t, 0, append(chain(58, 0, 60), 128, 1, 0, 0, 0, 0, 0, 0), nil),
			func(p *Packet) bool {
				return p.Proto == 58 && p.Transport == ICMP6Transport && p.Type == 128 &&
					p.Code == 1 &&
					p.ExtensionHeaders == 2
			}},
		{"ESP ends the walk", v6(t, 0, append(chain(50, 0), zeros(20)...), nil),
			func(p *Packet) bool { return p.Proto == 50 && p.Transport == NoTransport }},
		{"no next header", v6(t, 59, nil, nil), func(p *Packet) bool { return p.Proto == 59 }},
		{"AH in IPv4 is a protocol", v4(t, 51, zeros(24), nil),
			func(p *Packet) bool { return p.Proto == 51 && p.Transport == NoTransport }},
		{"ICMPv6 in IPv4 has no type", v4(t, 58, []byte{135, 0, 0, 0, 0, 0, 0, 0}, nil),
			func(p *Packet) bool {
				return p.Proto == 58 && p.Transport == NoTransport &&
					p.Type == 0
			}},
		{"more fragments is a first fragment with ports",
			v4(t, 17, []byte{0, 53, 0, 54, 9, 9, 0, 0}, func(h []byte) { h[6] = 0x20 }),
			func(p *Packet) bool { return p.Fragment && !p.LaterFragment && p.DstPort == 54 }},
		{"an offset is a later fragment without",
			v4(t, 17, []byte{0, 53, 0, 54, 0, 8, 0, 0}, func(h []byte) { h[7] = 1 }),
			func(p *Packet) bool {
				return p.Fragment && p.LaterFragment && !p.HasPorts() && p.DstPort == 0 &&
					p.Proto == 17
			}},
		{"don't-fragment and the reserved bit are not fragments",
			v4(t, 253, nil, func(h []byte) { h[6] = 0xc0 }),
			func(p *Packet) bool { return !p.Fragment }},
		{"an atomic fragment is not one", v6(t, 44, append(chain(17, 44), udp(8, 8)...), nil),
			func(p *Packet) bool { return !p.Fragment && p.HasPorts() }},
		{"reserved bits of a Fragment header do not make one",
			v6(t, 44, []byte{59, 0, 0, 6, 0, 0, 0, 0}, nil),
			func(p *Packet) bool { return !p.Fragment }},
		{"the next header of a later fragment is the protocol",
			v6(t, 44, []byte{60, 0, 0, 8, 0, 0, 0, 0}, nil),
			func(p *Packet) bool { return p.Proto == 60 && p.LaterFragment }},
		{"two Fragment headers", v6(t, 44, two, nil),
			func(p *Packet) bool {
				return p.Fragment && p.LaterFragment && p.Proto == 17 &&
					p.ExtensionHeaders == 2
			}},
		{"a first and an atomic Fragment header",
			v6(t, 44, append([]byte{44, 0, 0, 1, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0},
				udp(8, 99)...), nil), func(p *Packet) bool {
				return p.Fragment &&
					!p.LaterFragment && p.HasPorts()
			}},
		{"headers behind a first fragment's",
			v6(t, 44, append([]byte{60, 0, 0, 1, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0},
				udp(8, 99)...), nil), func(p *Packet) bool {
				return p.Fragment && p.HasPorts() &&
					p.Proto == 17
			}},
		{"an IPv4-mapped source is an IPv6 address",
			v6(t, 59, nil, func(h []byte) {
				copy(h[8:],
					bytesOf(t, "00000000000000000000ffffc0000201"))
			}), func(p *Packet) bool {
				return p.Src.String() == "::ffff:192.0.2.1" &&
					p.Src.BitLen() == 128
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p Packet
			Decode(tt.frame, &p)
			if p.Malformed != WellFormed || !tt.check(&p) {
				t.Errorf("%+v\n% x", p, tt.frame)
			}
		})
	}
}

func TestDecodeForgetsThePacketBefore(t *testing.T) {
	var p, fresh Packet
	Decode(must(t, Spec{Flags: new(uint8(SYN)), VLAN: new(uint16(7)), Family: IPv6}), &p)
	next := must(t, Spec{Family: ARP})
	Decode(next, &p)
	Decode(next, &fresh)
	if p != fresh {
		t.Errorf("%+v, want %+v", p, fresh)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for name, s := range specs() {
		frame := must(t, s)
		var p Packet
		if n := testing.AllocsPerRun(10, func() { Decode(frame, &p) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzDecode holds what every reader of a Packet relies on.
func FuzzDecode(f *testing.F) {
	for _, s := range specs() {
		f.Add(must(f, s))
	}
	f.Add(v6(f, 0, chain(6, 0, 60, 43, 44, 51, 135, 60, 60, 44), nil))
	f.Add(v4(f, 17, append(zeros(40), udp(8, 8)...), func(h []byte) { h[0] = 0x4f }))
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		var p Packet
		Decode(frame, &p)
		if !bytes.Equal(frame, before) {
			t.Fatal("the frame was changed")
		}
		if p.Malformed > L4Length {
			t.Fatalf("malformed %d", p.Malformed)
		}
		if p.Malformed != WellFormed {
			return
		}
		end := p.NetworkOffset + p.Len
		switch {
		case p.Tags > maxTags, p.ExtensionHeaders > maxExtensions, end > len(frame),
			p.NetworkOffset != 14+4*p.AllTags, p.Tags > p.AllTags:
			t.Fatalf("%+v", p)
		case p.IsIP() != (p.EtherType == EtherIPv4 || p.EtherType == EtherIPv6):
			t.Fatalf("%+v", p)
		case p.IsIP() && (p.TransportOffset < p.NetworkOffset+20 || p.TransportOffset > end):
			t.Fatalf("%+v", p)
		case p.IsIP() && (p.Src.Is4() != (p.Family == IPv4) || p.Dst.Is4() != p.Src.Is4()):
			t.Fatalf("%+v", p)
		case p.LaterFragment && (p.Transport != NoTransport || !p.Fragment):
			t.Fatalf("%+v", p)
		case p.HasPorts() && !HasPorts(p.Proto):
			t.Fatalf("%+v", p)
		}
	})
}
