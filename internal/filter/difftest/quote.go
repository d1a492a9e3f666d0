package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"levee/internal/packet"
)

// mostLeft is the number of the frames that left which are remembered.
const mostLeft = 16

// mostQuoted is the number of bytes that an error quotes (RFC 4443 section 2.4 (c)).
const mostQuoted = 1232

// quote makes of frame i, now and then, an ICMP error about a packet that has left, where the
// policy asks for connections: also a cut one, one with other headers, and one that never left.
func (r *comparison) quote(frames [][]byte, i int) {
	rand := r.clock.rand
	if !r.flow || len(r.left) == 0 || rand.IntN(4) > 0 {
		return
	}
	about := r.left[rand.IntN(len(r.left))]
	if rand.IntN(8) == 0 {
		about = frames[max(0, i-rand.IntN(8))]
	}
	var p packet.Packet
	r.c.Link.Decode(about, &p)
	if p.Malformed != packet.WellFormed || !p.IsIP() || p.Carried {
		return
	}
	quoted := slices.Clone(about[p.NetworkOffset : p.NetworkOffset+min(p.Len, mostQuoted)])
	before, six := about[:p.NetworkOffset], p.Family == packet.IPv6
	if six {
		frames[i] = slices.Concat(before, icmpError6(rand, quoted))
	} else {
		frames[i] = slices.Concat(before, icmpError4(rand, quoted))
	}
}

// icmpError4 returns the IP packet of an error about another.
func icmpError4(rand *rand.Rand, quoted []byte) []byte {
	from, to := [4]byte(quoted[16:20]), [4]byte(quoted[12:16])
	header := int(quoted[0]&15) * 4
	switch rand.IntN(12) {
	case 0: // options
		n := 1 + rand.IntN(min(3, 16-header/4))
		if header+4*n <= 60 {
			quoted = slices.Insert(quoted, 20, make([]byte, 4*n)...)
			quoted[0] += byte(n)
			header += 4 * n
		}
	case 1: // a fragment, the first or another
		binary.BigEndian.PutUint16(quoted[6:], uint16(rand.IntN(2)<<13|rand.IntN(2)*rand.IntN(9)))
	default:
		quoted = bend(rand, quoted, header)
	}
	head := make([]byte, 20, 24)
	head[0], head[8], head[9] = 0x45, 64, packet.ProtoICMP
	if rand.IntN(8) == 0 {
		head = append(head, 1, 1, 1, 0)
		head[0]++
	}
	if rand.IntN(8) == 0 {
		to[3]++
	}
	copy(head[12:], from[:])
	copy(head[16:], to[:])
	types := []byte{3, 3, 11, 12, 3, 11, 4, 5, 0, 8, 13}
	icmp := []byte{types[rand.IntN(len(types))], byte(rand.IntN(5)), 0, 0, 0, 0, 0, 0}
	out := slices.Concat(head, icmp, quoted)
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	if rand.IntN(12) == 0 { // padding
		out = append(out, make([]byte, rand.IntN(40))...)
	}
	return out
}

// icmpError6 returns the same for IPv6.
func icmpError6(rand *rand.Rand, quoted []byte) []byte {
	from, to := [16]byte(quoted[24:40]), [16]byte(quoted[8:24])
	if rand.IntN(6) == 0 { // extension headers, also more than are walked
		for range rand.IntN(10) {
			ext := make([]byte, 8+8*rand.IntN(2))
			ext[0] = quoted[6]
			quoted[6] = []byte{0, 43, 44, 51, 60, 135}[rand.IntN(6)]
			switch {
			case quoted[6] == packet.ProtoFragment:
				ext = ext[:8]
				ext[3] = byte(rand.IntN(2))
				if rand.IntN(4) == 0 {
					ext[2+rand.IntN(2)] = byte(rand.Uint32())
				}
			case quoted[6] == packet.ProtoAH:
				ext[1] = byte(len(ext)/4 - 2)
			default:
				ext[1] = byte(len(ext)/8 - 1)
			}
			if rand.IntN(30) == 0 {
				ext[1] = byte(rand.Uint32())
			}
			quoted = slices.Insert(quoted, 40, ext...)
		}
	}
	quoted = bend(rand, quoted, 40)
	head := make([]byte, 40, 48)
	head[0], head[6], head[7] = 0x60, packet.ProtoICMP6, 64
	if rand.IntN(8) == 0 {
		head[6] = 60
		head = append(head, packet.ProtoICMP6, 0, 1, 4, 0, 0, 0, 0)
	}
	if rand.IntN(8) == 0 {
		to[15]++
	}
	copy(head[8:], from[:])
	copy(head[24:], to[:])
	types := []byte{1, 2, 3, 4, 1, 2, 3, 0, 5, 128, 129, 100}
	icmp := []byte{types[rand.IntN(len(types))], byte(rand.IntN(5)), 0, 0, 0, 0, 0, 0}
	out := slices.Concat(head, icmp, quoted)
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	if rand.IntN(12) == 0 {
		out = append(out, make([]byte, rand.IntN(40))...)
	}
	return out
}

// bend cuts a quoted packet whose IP header has so many bytes, mostly behind the first 8 of its
// transport, or turns one of its bits over, or leaves it.
func bend(rand *rand.Rand, quoted []byte, header int) []byte {
	switch rand.IntN(6) {
	case 0:
		return quoted[:min(len(quoted), header+rand.IntN(14))]
	case 1:
		return quoted[:rand.IntN(len(quoted)+1)]
	case 2:
		return quoted[:min(len(quoted), header+8)]
	case 3:
		quoted[rand.IntN(min(len(quoted), header+8))] ^= 1 << rand.IntN(8)
	}
	return quoted
}
