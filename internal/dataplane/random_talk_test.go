package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"levee/internal/packet"
)

// scene is one random sequence: some hosts, what they have to say to each other, and somebody who
// forges what he can guess of it.
type scene struct {
	*rand.Rand
	local, remote [2][]netip.Addr // by family
	scripts       []*script
	said          []*rawPacket // what was sent, to be repeated, quoted, cut and forged
	given         []proof
	now           func() time.Time
	merges        bool // packets arrive as the kernel merges them
}

// proof is the number by which a client may prove itself to a cookie.
type proof struct {
	syn    rawPacket
	number uint32
	at     time.Time
}

// event is the next of a sequence.
type event struct {
	leaves bool
	packet *rawPacket
	frame  []byte // the packet's, but for what was bent
	merged int    // TCP: bytes of payload in each of the segments it stands for; 0: it is one
}

// script is what two hosts say on a connection, in order. What is lost is not said.
type script struct {
	lines []line
	at    int
	ports [2]int
	base  [2]uint32 // TCP: first numbers of each side
}

type line struct {
	out bool
	p   rawPacket
}

const (
	tcpSYN, tcpACK, tcpRST, tcpFIN, tcpPSH uint8 = packet.SYN, packet.ACK, packet.RST, packet.FIN,
		packet.PSH
)

func newScene(r *rand.Rand, now func() time.Time) *scene {
	s := &scene{Rand: r, now: now}
	v4 := func(a, b byte) netip.Addr {
		return netip.AddrFrom4([4]byte{a, b, byte(r.Uint32()), byte(1 + r.IntN(250))})
	}
	v6 := func(net byte) netip.Addr {
		a := [16]byte{0x20, 1, 0xd, 0xb8, 0, net}
		binary.BigEndian.PutUint64(a[8:], r.Uint64())
		return netip.AddrFrom16(a)
	}
	for range 2 {
		s.local[0] = append(s.local[0], v4(198, 18))
		s.local[1] = append(s.local[1], v6(1))
	}
	for range 3 {
		s.remote[0] = append(s.remote[0], v4(203, 0))
		s.remote[1] = append(s.remote[1], v6(2))
	}
	for range 1 + r.IntN(4) {
		s.scripts = append(s.scripts, s.write())
	}
	return s
}

func one[T any](s *scene, of ...T) T { return of[s.IntN(len(of))] }

func (s *scene) chance(n int) bool { return s.IntN(n) == 0 }

// ends are the addresses of two hosts, this side's first.
func (s *scene) ends() (local, remote netip.Addr) {
	family := min(1, s.IntN(3)/2)
	return one(s, s.local[family]...), one(s, s.remote[family]...)
}

// write makes a script.
func (s *scene) write() *script {
	w := &script{}
	local, remote := s.ends()
	say := func(out bool, proto uint8, body []byte) {
		p := rawPacket{src: remote, dst: local, proto: proto, body: body}
		if out {
			p.src, p.dst = local, remote
		}
		w.lines = append(w.lines, line{out, p})
	}
	w.ports = [2]int{one(s, 22, 80, 53, 443, 40000+s.IntN(4)), one(s, 22, 443, 5353, 50000+s.IntN(4))}
	switch s.IntN(8) {
	case 0, 1, 2, 3, 4:
		s.writeTCP(w, func(out bool, b []byte) { say(out, packet.ProtoTCP, b) })
	case 5, 6:
		outFirst := s.chance(2)
		for i := range 2 + s.IntN(8) {
			out := outFirst == (i == 0 || s.chance(2))
			from, to := w.ports[1], w.ports[0]
			if out {
				from, to = to, from
			}
			say(out, packet.ProtoUDP, rawUDP(from, to, make([]byte, s.IntN(40))))
		}
	default:
		proto, ask, answer := uint8(packet.ProtoICMP), uint8(8), uint8(0)
		if local.Is6() {
			proto, ask, answer = packet.ProtoICMP6, 128, 129
		}
		for range 1 + s.IntN(4) {
			out := s.chance(2)
			say(out, proto, rawEcho(ask, 0, w.ports[0]))
			say(!out, proto, rawEcho(answer, 0, w.ports[0]))
		}
	}
	if len(w.lines) == 0 {
		return s.write()
	}
	return w
}

// writeTCP writes how a connection begins, goes on and ends, as stacks do it.
func (s *scene) writeTCP(w *script, say func(out bool, b []byte)) {
	w.base = [2]uint32{one(s, s.Uint32(), 0xfffffff0, 0x7fffff00), one(s, s.Uint32(), 0, 0xffff0000)}
	next := w.base
	segment := func(side int, flags uint8, data int) {
		from, to := w.ports[side], w.ports[1-side]
		ack := uint32(0)
		if flags&tcpACK != 0 {
			ack = next[1-side]
		}
		say(side == 0, rawTCP(from, to, flags, next[side], ack, data))
		next[side] += uint32(data)
		if flags&(tcpSYN|tcpFIN) != 0 {
			next[side]++
		}
	}
	a := s.IntN(2) // who begins
	b := 1 - a
	switch s.IntN(8) {
	case 0: // both at once
		segment(a, tcpSYN, 0)
		segment(b, tcpSYN, 0)
		for _, side := range []int{a, b} {
			next[side]--
			segment(side, tcpSYN|tcpACK, 0)
		}
	case 1: // Fast Open
		segment(a, tcpSYN, 100)
		segment(b, tcpSYN|tcpACK, 0)
		for range 1 + s.IntN(3) {
			segment(b, tcpACK|tcpPSH, 1200)
		}
	case 2: // it is older than the policy
	case 3: // a client that has crashed, and is answered from before
		next[a] += 70000
		segment(a, tcpSYN, 0)
		next[a] -= 70001
		segment(b, tcpACK, 0)
		next[a] = next[b]
		segment(a, tcpRST, 0)
		next[a] = w.base[a]
		segment(a, tcpSYN, 0)
		segment(b, tcpSYN|tcpACK, 0)
		segment(a, tcpACK, 0)
	default:
		segment(a, tcpSYN, 0)
		segment(b, tcpSYN|tcpACK, 0)
		segment(a, tcpACK, 0)
	}
	for range s.IntN(8) {
		side := s.IntN(2)
		segment(side, tcpACK|tcpPSH, one(s, 1, 100, 1200))
		if s.chance(3) {
			next[side] += uint32(s.IntN(200_000)) // what went another way
		}
		if s.chance(2) {
			segment(1-side, tcpACK, 0)
		}
	}
	switch s.IntN(4) {
	case 0:
		segment(s.IntN(2), one(s, tcpRST, tcpRST|tcpACK), 0)
		segment(s.IntN(2), tcpACK, 0)
	case 1, 2:
		first := s.IntN(2)
		segment(first, tcpFIN|tcpACK, one(s, 0, 100))
		segment(1-first, tcpACK, 0)
		segment(1-first, tcpFIN|tcpACK, 0)
		segment(first, tcpACK, 0)
	}
}

// pause is the time before the next event.
func (s *scene) pause(tick time.Duration) time.Duration {
	switch s.IntN(20) {
	case 0, 1, 2, 3:
		return time.Duration(s.IntN(4)) * tick
	case 4:
		return time.Second + time.Duration(s.IntN(5)-2)*tick
	case 5:
		return time.Duration(s.Int64N(int64(20 * time.Second)))
	case 6: // about a lease
		return one(s, 2*time.Second, 10*time.Second, 30*time.Second, 60*time.Second,
			64*time.Second, 2*time.Minute, 128*time.Second, 4*time.Minute, 5*time.Minute,
			10*time.Minute, 2*time.Hour+4*time.Minute) +
			time.Duration(s.IntN(2))*time.Second + time.Duration(s.IntN(5)-2)*tick
	}
	return 0
}

// next makes the next event.
func (s *scene) next() event {
	e := s.plain()
	if e.packet == nil {
		return e
	}
	if len(s.said) < 64 {
		s.said = append(s.said, e.packet)
	} else {
		s.said[s.IntN(64)] = e.packet
	}
	p := *e.packet
	e.packet = &p
	s.decorate(&e)
	if e.merged > 0 && !e.leaves && !s.merges {
		e.packet.body, e.merged = e.packet.body[:20+e.merged], 0
	}
	e.frame = e.packet.frame()
	if s.chance(24) {
		e.frame = s.bend(e.frame[:min(len(e.frame), 1400)])
		e.merged = 0
	}
	return e
}

func (s *scene) plain() event {
	kind := s.IntN(20)
	w := s.scripts[s.IntN(len(s.scripts))]
	switch {
	case kind < 9:
		for w.at < len(w.lines) {
			l := w.lines[w.at]
			w.at++
			if s.chance(8) {
				continue // lost
			}
			return event{leaves: l.out, packet: &l.p}
		}
		s.scripts[s.IntN(len(s.scripts))] = s.write()
	case kind < 11 && len(s.said) > 0: // sent again
		p := *s.said[s.IntN(len(s.said))]
		return event{leaves: slices.Contains(s.local[0], p.src) || slices.Contains(s.local[1],
			p.src), packet: &p}
	case kind < 14:
		return s.forged(w)
	case kind == 14:
		return s.group()
	case kind == 15:
		return s.quote()
	case kind == 16 && len(s.said) > 0:
		return s.fragment()
	case kind == 17:
		return s.flood()
	case kind == 18:
		return s.client()
	}
	return s.stranger()
}

// forged is what somebody sends who knows a connection's ends, or nearly so, and guesses the rest.
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

// decorate has a packet come as real ones do: tagged, with options, in a tunnel, merged.
func (s *scene) decorate(e *event) {
	p := e.packet
	if s.chance(5) {
		kind := one(s, uint16(0x8100), 0x8100, 0x88a8)
		p.tags = append(p.tags, rawTag{kind, one(s, uint16(0), 0x6000, 5, 7)})
		if s.chance(4) {
			p.tags = append(p.tags, rawTag{0x8100, one(s, uint16(0), 7, 9)})
		}
		if s.chance(30) {
			p.tags = append(p.tags, rawTag{0x8100, 1})
		}
	}
	if s.chance(10) {
		if p.src.Is4() {
			p.options = 1 + s.IntN(10)
		} else {
			for range 1 + s.IntN(3) {
				p.extensions = append(p.extensions, one(s, uint8(0), 60, 60, 43, 51))
			}
		}
	}
	if !e.leaves && s.chance(10) || s.chance(40) {
		outer := rawPacket{src: one(s, s.remote[0]...), dst: one(s, s.local[0]...), tags: p.tags}
		if s.chance(3) {
			outer.src, outer.dst = one(s, s.remote[1]...), one(s, s.local[1]...)
		}
		p.tags = nil
		withinTunnel(s.Rand, &outer, p.ip(), p.src.Is6())
		e.packet = &outer
		return
	}
	if p.proto == packet.ProtoTCP && p.fragment == nil && len(p.extensions) == 0 &&
		len(p.body) >= 20 && len(p.tags) < 3 && s.chance(6) && p.body[13]&(tcpSYN|tcpRST) == 0 {
		e.merged = one(s, 100, 536, 1200)
		p.body = append(slices.Clone(p.body[:20]), make([]byte, e.merged*(2+s.IntN(6))+
			s.IntN(e.merged))...)
		p.body[12] = 5 << 4
	}
}

// bend makes a frame wrong somewhere.
func (s *scene) bend(f []byte) []byte {
	switch f = slices.Clone(f); s.IntN(4) {
	case 0:
		return f[:18+s.IntN(len(f)-17)]
	case 1:
		return append(f, make([]byte, s.IntN(40))...)
	}
	for range 1 + s.IntN(3) {
		f[12+s.IntN(min(60, len(f)-12))] = one(s, byte(s.Uint32()), 0, 0xff)
	}
	return f
}
