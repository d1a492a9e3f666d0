package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"levee/internal/packet"
)

// forged returns a packet of an attacker who knows both ends of a connection, or nearly so, and
// guesses the numbers.
func (s *scene) forged(w *script) event {
	l := w.lines[s.IntN(len(w.lines))]
	p := l.p
	p.body = slices.Clone(p.body)
	if p.proto == packet.ProtoTCP {
		p.body[13] = one(s, tcpSYN, tcpSYN|tcpACK, tcpACK, tcpACK|tcpPSH, tcpRST, tcpRST|tcpACK,
			tcpFIN|tcpACK, tcpFIN, 0, tcpSYN|tcpFIN, tcpSYN|tcpRST, uint8(s.IntN(256)))
		for _, at := range []int{4, 8} {
			n := binary.BigEndian.Uint32(p.body[at:])
			n = one(s, n, n+1, n-1, n+uint32(s.IntN(20000)), n-uint32(s.IntN(100000)),
				n+16384, n+1<<26, s.Uint32())
			binary.BigEndian.PutUint32(p.body[at:], n)
		}
	}
	switch s.IntN(8) {
	case 0:
		p.body[s.IntN(4)] ^= 1 // a port, or of ICMP its type
	case 1:
		p.src = one(s, s.remote[b2i(p.src.Is6())]...)
	}
	return event{leaves: l.out && s.chance(2), packet: &p}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// group asks a group, or answers one.
func (s *scene) group() event {
	local, remote := s.ends()
	groups := [2][]string{{"224.0.0.251", "239.255.255.250", "255.255.255.255"},
		{"ff02::fb", "ff02::1:3", "ff05::c"}}[b2i(local.Is6())]
	group := netip.MustParseAddr(groups[s.IntN(len(groups))])
	port := one(s, 5353, 1900, 40000)
	near := local.Next()
	if s.chance(3) {
		near = remote
	}
	if s.chance(2) {
		p := rawPacket{src: local, dst: group, proto: packet.ProtoUDP,
			body: rawUDP(port, one(s, 5353, 1900), []byte("?")), toMAC: [6]byte{1, 0, 0x5e}}
		return event{leaves: true, packet: &p}
	}
	p := rawPacket{src: near, dst: local, proto: packet.ProtoUDP,
		body: rawUDP(one(s, 5353, 1900, 33333), port, []byte("!"))}
	if s.chance(3) {
		p.dst, p.toMAC = group, [6]byte{1, 0, 0x5e}
	}
	return event{packet: &p}
}

// quote is an ICMP error about something that was sent, or nearly.
func (s *scene) quote() event {
	if len(s.said) == 0 {
		return s.stranger()
	}
	about := *s.said[s.IntN(len(s.said))]
	about.body = slices.Clone(about.body)
	to := about.src
	switch s.IntN(6) {
	case 0: // what came in
		about.src, about.dst = about.dst, about.src
		to = about.src
	case 1:
		if len(about.body) > 4 {
			about.body[s.IntN(4)] ^= 1
		}
	case 2:
		to = one(s, s.local[b2i(to.Is6())]...)
	}
	if about.src.Is6() && s.chance(4) {
		about.extensions = []uint8{one(s, uint8(60), 43)}
	}
	q := about.ip()
	if s.chance(2) {
		q = q[:max(0, len(q)-s.IntN(len(about.body)+3))]
	}
	p := rawPacket{src: one(s, s.remote[b2i(to.Is6())]...), dst: to, proto: packet.ProtoICMP,
		body: rawError(one(s, uint8(3), 3, 11, 12, 5), uint8(s.IntN(5)), q)}
	if to.Is6() {
		p.proto = packet.ProtoICMP6
		p.body[0] = one(s, uint8(1), 2, 3, 4, 5)
	}
	if len(p.body) > 1200 {
		p.body = p.body[:1200]
	}
	return event{packet: &p}
}

// fragment is a part of a datagram that was sent, or of a longer one from there.
func (s *scene) fragment() event {
	of := *s.said[s.IntN(len(s.said))]
	if slices.Contains(s.local[b2i(of.src.Is6())], of.src) {
		of.src, of.dst = of.dst, of.src
	}
	body := slices.Clone(of.body)
	for len(body) < 64 {
		body = append(body, 0)
	}
	from := 8 * s.IntN(min(8, len(body)/8))
	if s.chance(3) {
		from = 0
	}
	to := from + 8*(1+s.IntN(4))
	more := to < len(body) || s.chance(8)
	to = min(to, len(body))
	if more && s.chance(12) {
		to -= s.IntN(3) // not of whole units
	}
	of.fragment = &rawPart{id: uint32(len(of.body)%3) + 1, at: from, more: more}
	of.body = body[from:max(from, to)]
	return event{packet: &of}
}

// flood is one of many queries of few hosts.
func (s *scene) flood() event {
	local, remote := s.local[0][0], s.remote[0][0]
	if s.chance(3) {
		local, remote = s.local[1][0], s.remote[1][0]
	}
	p := rawPacket{src: remote, dst: local, proto: packet.ProtoUDP,
		body: rawUDP(6000+s.IntN(2), 53, make([]byte, 10))}
	return event{packet: &p}
}

// client is one of a cookie: it asks, proves itself, and comes again.
func (s *scene) client() event {
	if n := len(s.given); n > 0 && s.chance(2) {
		g := s.given[s.IntN(n)]
		p := g.syn
		p.body = slices.Clone(p.body)
		if s.chance(4) {
			return event{packet: &p}
		}
		p.body[13] = tcpRST
		number := g.number
		if s.chance(4) {
			number += one(s, 1, ^uint32(0), s.Uint32())
		}
		binary.BigEndian.PutUint32(p.body[4:], number)
		return event{packet: &p}
	}
	local, remote := s.ends()
	p := rawPacket{src: remote, dst: local, proto: packet.ProtoTCP,
		body: rawTCP(50000+s.IntN(3), 80, tcpSYN, s.Uint32(), 0, 0)}
	return event{packet: &p}
}

// unsure reports whether a frame has a number that may hold or not, by its age.
func (s *scene) unsure(frame []byte) bool {
	var p packet.Packet
	packet.Decode(frame, &p)
	if p.Proto == packet.ProtoUDP && p.UDPPayload > 0 {
		return s.unsureNumber(&p, frame)
	}
	if p.Transport != packet.TCPTransport || p.Flags&tcpRST == 0 {
		return false
	}
	number := binary.BigEndian.Uint32(frame[p.TransportOffset+4:])
	return slices.ContainsFunc(s.given, func(g proof) bool {
		age := s.now().Sub(g.at)
		return g.number == number && age > 63*time.Second && age < 130*time.Second
	})
}

// stranger is something that belongs to nothing.
func (s *scene) stranger() event {
	local, remote := s.ends()
	p := rawPacket{src: remote, dst: local}
	switch s.IntN(3) {
	case 0:
		p.proto = packet.ProtoTCP
		p.body = rawTCP(s.IntN(1<<16), one(s, 22, 80, 443, 8080), uint8(s.IntN(64)), s.Uint32(),
			s.Uint32(), s.IntN(20))
	case 1:
		p.proto = packet.ProtoUDP
		p.body = rawUDP(s.IntN(1<<16), one(s, 53, 123, 443), make([]byte, s.IntN(20)))
	default:
		p.proto = one(s, uint8(0), 1, 2, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 60, 132, 136)
		p.body = make([]byte, s.IntN(60))
		for i := range p.body {
			p.body[i] = byte(s.Uint32())
		}
	}
	return event{packet: &p, leaves: s.chance(6)}
}
