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
	asked         []asked
	now           func() time.Time
	merges        bool // packets arrive as the kernel merges them
	proofs        bool // clients prove themselves in all ways, and datagrams are merged, too
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
	merged int    // bytes of payload in each of the segments it stands for; 0: it is one
}

// transport is the length of the header of TCP or UDP, which has no options where it is merged.
func (e *event) transport() int {
	if e.packet.proto == packet.ProtoUDP {
		return 8
	}
	return 20
}

// script is a conversation of two hosts, in order. A line that is lost is not said again.
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
	w.ports = [2]int{one(s, 22, 80, 53, 443, 40000+s.IntN(4)),
		one(s, 22, 443, 5353, 50000+s.IntN(4))}
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
	w.base = [2]uint32{one(s, s.Uint32(), 0xfffffff0, 0x7fffff00),
		one(s, s.Uint32(), 0, 0xffff0000)}
	next := w.base
	segment := func(side int, flags uint8, data int) {
		from, to := w.ports[side], w.ports[1-side]
		ack := uint32(0)
		if flags&tcpACK != 0 {
			ack = next[1-side]
		}
		b := rawTCP(from, to, flags, next[side], ack, data)
		copy(b[20:], letters(s, data))
		say(side == 0, b)
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
		e.packet.body, e.merged = e.packet.body[:e.transport()+e.merged], 0
		if e.packet.proto == packet.ProtoUDP {
			binary.BigEndian.PutUint16(e.packet.body[4:], uint16(len(e.packet.body)))
		}
	}
	e.frame = e.packet.frame()
	if s.chance(24) {
		e.frame = s.bend(e.frame[:min(len(e.frame), 1400)])
		e.merged = 0
	}
	return e
}

func (s *scene) plain() event {
	if s.proofs && s.chance(3) {
		return s.proves()
	}
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
	if s.chance(15) {
		p.pppoe = s.chance(2)
		for range s.IntN(4) {
			p.labels = append(p.labels, s.Uint32())
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
	if p.fragment != nil || len(p.extensions) > 0 || len(p.tags) > 2 || p.pppoe ||
		len(p.labels) > 0 || !s.chance(6) {
		return
	}
	data := func(header int) []byte {
		e.merged = one(s, 100, 536, 1200)
		return append(slices.Clone(p.body[:header]), letters(s, e.merged*(2+s.IntN(6))+
			s.IntN(e.merged))...)
	}
	switch {
	case p.proto == packet.ProtoTCP && len(p.body) >= 20 && p.body[13]&(tcpSYN|tcpRST) == 0:
		p.body = data(20)
		p.body[12] = 5 << 4
	case p.proto == packet.ProtoUDP && len(p.body) >= 8 && s.proofs &&
		!slices.Contains([]uint16{53, 27015}, binary.BigEndian.Uint16(p.body[2:])):
		p.body = data(8)
		binary.BigEndian.PutUint16(p.body[4:], uint16(len(p.body)))
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
