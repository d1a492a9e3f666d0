package dataplane

import (
	"encoding/binary"
	"time"

	"levee/internal/packet"
)

// asked is the number that a cookie for A2S gave a query.
type asked struct {
	query  rawPacket
	number uint32
	at     time.Time
}

// proves is something by which clients prove themselves, come again, or are searched.
func (s *scene) proves() event {
	switch s.IntN(4) {
	case 0:
		return s.echo()
	case 1:
		return s.query()
	case 2:
		return s.comesAgain()
	}
	return s.asks()
}

// datagram is one between a client and a port of this side. Few clients have few ports.
func (s *scene) datagram(leaves bool, port int, data []byte) event {
	local, remote := s.local[0][0], s.remote[0][s.IntN(2)]
	if s.chance(3) {
		local, remote = s.local[1][0], s.remote[1][s.IntN(2)]
	}
	p := rawPacket{src: remote, dst: local, proto: packet.ProtoUDP}
	from, to := 7000+s.IntN(2), port
	if leaves {
		p.src, p.dst, from, to = local, remote, port, from
	}
	p.body = rawUDP(from, to, data)
	return event{leaves: leaves, packet: &p}
}

// echo is a reply with a value of few, or what a client sends back, or others guess.
func (s *scene) echo() event {
	value := []byte{'v', 'a', 'l', byte(s.IntN(3))}
	if s.chance(2) {
		kind := one(s, byte('A'), 'A', 'A', 'B')
		data := append([]byte{kind}, value...)
		return s.datagram(true, 443, append(data, make([]byte, s.IntN(9))...))
	}
	before := make([]byte, one(s, 1, 1, 5, 5, 3))
	data := append(append(before, value...), make([]byte, s.IntN(9))...)
	return s.datagram(false, one(s, 443, 443, 443, 53), data[:len(data)-s.IntN(2)])
}

// query is one of the DNS, or what is nearly that.
func (s *scene) query() event {
	b := []byte{1, byte(s.IntN(256)), one(s, byte(1), 1, 1, 0, 0x81, 0x20), 0, 0, one(s, byte(1), 1,
		1, 0, 2), 0, 0, 0, 0, 0, 0}
	b = append(b, "\x03www\x07example\x03com\x00"...)
	b = append(b, 0, one(s, byte(1), 28, 255), 0, 1)
	if s.chance(3) { // EDNS
		b[11] = 1
		b = append(b, 0, 0, 41, 4, 0xd0, 0, 0, one(s, byte(0), 0x80), 0, 0, 0)
	}
	if s.chance(8) {
		b = b[:s.IntN(len(b))]
	}
	return s.datagram(false, 53, b)
}

// comesAgain is a client of a greylist. Some send each packet a little later.
func (s *scene) comesAgain() event {
	return s.datagram(false, 123, make([]byte, 4*s.IntN(3)))
}

// asks is a client of A2S: it asks, and says the number that it was given.
func (s *scene) asks() event {
	if n := len(s.asked); n > 0 && s.chance(2) {
		a := s.asked[s.IntN(n)]
		p := a.query
		number := a.number
		if s.chance(4) {
			number += one(s, 1, ^uint32(0), s.Uint32())
		}
		data := rawA2S(one(s, byte(0x54), 0x55, 0x56), number)
		p.body = rawUDP(int(binary.BigEndian.Uint16(p.body)), 27015, data)
		if s.chance(6) {
			p.body[1] ^= 1 // of another port
		}
		return event{packet: &p}
	}
	data := rawA2S(one(s, byte(0x54), 0x55, 0x56, 0x57), one(s, ^uint32(0), ^uint32(0), s.Uint32()))
	if s.chance(4) {
		data = data[:s.IntN(len(data))]
	}
	return s.datagram(false, 27015, data)
}

// rawA2S is a query of a type, with a number.
func rawA2S(kind byte, number uint32) []byte {
	b := []byte{0xff, 0xff, 0xff, 0xff, kind}
	if kind == 0x54 {
		b = append(b, "Source Engine Query\x00"...)
	}
	return binary.LittleEndian.AppendUint32(b, number)
}

// unsureNumber reports whether a datagram says a number of which the program may say that it has
// ended, by its age.
func (s *scene) unsureNumber(p *packet.Packet, frame []byte) bool {
	data := frame[p.TransportOffset+8:][:p.UDPPayload]
	for _, a := range s.asked {
		age := s.now().Sub(a.at)
		for at := 5; at+4 <= len(data); at += 20 {
			if binary.LittleEndian.Uint32(data[at:]) == a.number && age > 63*time.Second &&
				age < 130*time.Second {
				return true
			}
		}
	}
	return false
}
