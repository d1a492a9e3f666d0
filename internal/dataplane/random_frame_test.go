package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"levee/internal/packet"
)

// rawPacket is a packet as TestRandomSequencesAgreeWithTheOracle writes it, byte by byte: with
// nothing of internal/packet, so that a mistake there shows.
type rawPacket struct {
	toMAC, fromMAC [6]byte
	tags           []rawTag // outermost first
	pppoe          bool     // behind the tags
	labels         []uint32 // of MPLS, behind that; the last one has the bit that says so
	src, dst       netip.Addr
	options        int      // IPv4: words of options
	extensions     []uint8  // IPv6: extension headers by number
	fragment       *rawPart // nil: it is whole
	proto          uint8
	body           []byte // from the transport header on
}

type rawTag struct {
	kind, id uint16
}

// rawPart is the part of a datagram that a fragment has.
type rawPart struct {
	id   uint32
	at   int // bytes
	more bool
}

func put16(b []byte, v int) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }

// ip is the packet from its IP header on.
func (p *rawPacket) ip() (f []byte) {
	if p.src.Is4() {
		flags := 0
		if p.fragment != nil {
			flags = p.fragment.at / 8
			if p.fragment.more {
				flags |= 0x2000
			}
		}
		f = append(f, byte(0x45+p.options), 0)
		f = put16(f, 20+4*p.options+len(p.body))
		id := 0x1234
		if p.fragment != nil {
			id = int(p.fragment.id & 0xffff)
		}
		f = put16(f, id)
		f = put16(f, flags)
		f = append(f, 64, p.proto, 0, 0)
		f = append(append(f, p.src.AsSlice()...), p.dst.AsSlice()...)
		for range p.options {
			f = append(f, 1, 1, 1, 1)
		}
		return append(f, p.body...)
	}
	type header struct {
		kind uint8
		b    []byte
	}
	var chain []header
	for _, kind := range p.extensions {
		b := make([]byte, 8)
		if kind == 51 { // RFC 4302: words, less 2
			b = make([]byte, 16)
			b[1] = 2
		}
		chain = append(chain, header{kind, b})
	}
	if p.fragment != nil {
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b[2:], uint16(p.fragment.at))
		if p.fragment.more {
			b[3] |= 1
		}
		binary.BigEndian.PutUint32(b[4:], p.fragment.id)
		chain = append(chain, header{44, b})
	}
	next := p.proto
	rest := p.body
	for i := len(chain) - 1; i >= 0; i-- {
		chain[i].b[0] = next
		next = chain[i].kind
		rest = append(append([]byte(nil), chain[i].b...), rest...)
	}
	f = append(f, 0x60, 0, 0, 0)
	f = put16(f, len(rest))
	f = append(f, next, 64)
	f = append(append(f, p.src.AsSlice()...), p.dst.AsSlice()...)
	return append(f, rest...)
}

// frame is the packet in its frame.
func (p *rawPacket) frame() (f []byte) {
	f = append(append(f, p.toMAC[:]...), p.fromMAC[:]...)
	for _, t := range p.tags {
		f = put16(put16(f, int(t.kind)), int(t.id))
	}
	kind, ppp := 0x86dd, 0x57
	if p.src.Is4() {
		kind, ppp = 0x0800, 0x21
	}
	ip := p.ip()
	for i := len(p.labels) - 1; i >= 0; i-- {
		label := p.labels[i] &^ 0x100
		if i == len(p.labels)-1 {
			label |= 0x100
		}
		ip = append(binary.BigEndian.AppendUint32(nil, label), ip...)
		kind, ppp = 0x8847, 0x281
	}
	if p.pppoe { // RFC 2516, RFC 1661
		f = put16(put16(append(put16(f, 0x8864), 0x11, 0), 7), len(ip)+2)
		return append(put16(f, ppp), ip...)
	}
	return append(put16(f, kind), ip...)
}

// letters are so many of few.
func letters(s *scene, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcd"[s.Uint32()>>30]
	}
	return b
}

// rawTCP is a segment.
func rawTCP(from, to int, flags uint8, seq, ack uint32, data int) []byte {
	b := put16(put16(nil, from), to)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	return append(b, make([]byte, data)...)
}

// rawUDP is a datagram.
func rawUDP(from, to int, data []byte) []byte {
	b := put16(put16(put16(nil, from), to), 8+len(data))
	return append(append(b, 0, 0), data...)
}

// rawEcho is an echo request or reply, or another message with an identifier.
func rawEcho(kind, code uint8, id int) []byte {
	return append(put16(append([]byte{kind, code}, 0, 0), id), 0, 1, 'x')
}

// rawError is an ICMP error with what it quotes.
func rawError(kind, code uint8, quote []byte) []byte {
	return append([]byte{kind, code, 0, 0, 0, 0, 5, 0}, quote...)
}

// withinTunnel puts a packet, from its IP header on, into a tunnel between two hosts.
func withinTunnel(r *rand.Rand, outer *rawPacket, inner []byte, six bool) {
	kind := 0x0800
	if six {
		kind = 0x86dd
	}
	ether := put16(append(make([]byte, 5), 1, 2, 0, 0, 0, 0, 9), kind)
	switch r.IntN(6) {
	case 0:
		outer.proto, outer.body = 4, inner
		if six {
			outer.proto = 41
		}
	case 1:
		outer.proto, outer.body = 47, append(put16([]byte{0, 0}, kind), inner...)
	case 2:
		h := append([]byte{8, 0, 0, 0, 0, 0, 7, 0}, ether...)
		outer.proto, outer.body = packet.ProtoUDP, rawUDP(5000, 4789, append(h, inner...))
	case 3:
		h := append(append([]byte{0, 0}, 0x65, 0x58, 0, 0, 7, 0), ether...)
		outer.proto, outer.body = packet.ProtoUDP, rawUDP(5000, 6081, append(h, inner...))
	case 4:
		h := append([]byte{0x30, 0xff}, byte(len(inner)>>8), byte(len(inner)), 0, 0, 0, 1)
		outer.proto, outer.body = packet.ProtoUDP, rawUDP(2152, 2152, append(h, inner...))
	default: // nothing that anybody knows
		outer.proto, outer.body = 47, append([]byte{0xff, 0xff, 0, 0}, inner...)
	}
}
