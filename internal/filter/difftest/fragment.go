package difftest

import (
	"encoding/binary"
	"slices"

	"levee/internal/packet"
)

// fragment makes of frame i, now and then, a fragment of one of a few datagrams, where the policy
// follows them: first and later ones, in any order, again, with holes and with overlaps.
func (r *comparison) fragment(frames [][]byte, i int) {
	if !r.track {
		return
	}
	rand := r.clock.rand
	if r.whole == nil || rand.IntN(40) == 0 {
		var p packet.Packet
		r.c.Link.Decode(frames[i], &p)
		if p.Malformed == packet.WellFormed && p.IsIP() && !p.Fragment {
			r.whole = slices.Clone(frames[i])
		}
	}
	if r.whole == nil || rand.IntN(4) == 0 {
		return
	}
	const unit = 24 // bytes, at least a transport header
	at, parts := rand.IntN(4), 1+rand.IntN(5)/4
	if rand.IntN(20) == 0 {
		at = rand.IntN(40) * 2 // more parts than there is room for
	}
	from, to := at*unit, (at+parts)*unit
	if rand.IntN(12) == 0 {
		from += 8 * (rand.IntN(5) - 2)
		from = max(from, 0)
	}
	more := rand.IntN(4) > 0 || from == 0
	if !more && rand.IntN(4) == 0 {
		to -= rand.IntN(8)
	}
	if rand.IntN(100) == 0 {
		from, to = 8, 8
	}
	frames[i] = r.cut(r.whole, rand.Uint32N(3), from, to, more)
}

// cut gives the fragment of a datagram that has the transport's bytes between two offsets. Those
// that the whole does not have are zero.
func (r *comparison) cut(whole []byte, id uint32, from, to int, more bool) []byte {
	var p packet.Packet
	r.c.Link.Decode(whole, &p)
	data := make([]byte, to)
	copy(data, whole[p.TransportOffset:])
	data = data[from:]
	field := uint16(from)
	if p.Family == packet.IPv4 {
		out := slices.Concat(whole[:p.TransportOffset], data)
		ip := out[p.NetworkOffset:]
		if field >>= 3; more {
			field |= 0x2000
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], uint16(id))
		binary.BigEndian.PutUint16(ip[6:], field)
		return out
	}
	const header = 40
	if more {
		field |= 1
	}
	out := slices.Clone(whole[:p.NetworkOffset+header])
	out = append(out, p.Proto, 0)
	out = binary.BigEndian.AppendUint16(out, field)
	out = binary.BigEndian.AppendUint32(out, id)
	out = append(out, data...)
	ip := out[p.NetworkOffset:]
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-header))
	ip[6] = packet.ProtoFragment
	return out
}
