package difftest

import (
	"encoding/binary"
	"math/rand/v2"

	"levee/internal/packet"
)

// talk has frames leave before frame i comes in, where the policy asks for connections: answers to
// frames of the block, and what frames of the block may answer. It makes of frame i, now and then,
// one that belongs to what has been said.
func (r *comparison) talk(frames [][]byte, i int) error {
	if !r.flow {
		return nil
	}
	rand := r.clock.rand
	if rand.IntN(3) == 0 { // again about a frame from before
		frames[i] = append([]byte(nil), frames[max(0, i-rand.IntN(8))]...)
	}
	r.vary(rand, frames[i])
	if rand.IntN(2) == 0 {
		return nil
	}
	out := append([]byte(nil), frames[max(0, i-rand.IntN(4))]...)
	if !r.reverse(out) {
		return nil
	}
	r.vary(rand, out)
	if told, err := r.leave(out); !told || err != nil {
		return err
	}
	if r.left = append(r.left, out); len(r.left) > mostLeft {
		r.left = r.left[1:]
	}
	return nil
}

// number returns a sequence number, mostly one of few, so that some fit together.
func number(rand *rand.Rand) uint32 {
	const about = 1000
	switch rand.IntN(8) {
	case 0:
		return rand.Uint32()
	case 1: // up to two blocks of bpf/flow.h before or behind
		return about + rand.Uint32N(50_000) - 25_000
	}
	return about + rand.Uint32N(3)
}

// segments are the flags that segments have.
var segments = []uint8{packet.SYN, packet.SYN | packet.ACK, packet.ACK, packet.ACK,
	packet.ACK | packet.PSH, packet.FIN | packet.ACK, packet.RST, packet.RST | packet.ACK,
	packet.FIN, packet.SYN | packet.RST, 0}

// vary gives a TCP segment other flags and numbers, and an ICMP message the type of an echo.
func (r *comparison) vary(rand *rand.Rand, f []byte) {
	p, ok := r.transport(f)
	if !ok {
		return
	}
	at := f[p.TransportOffset:]
	switch {
	case p.Transport == packet.TCPTransport:
		at[13] = segments[rand.IntN(len(segments))]
		binary.BigEndian.PutUint32(at[4:], number(rand))
		binary.BigEndian.PutUint32(at[8:], number(rand))
	case p.Transport == packet.ICMPTransport && rand.IntN(2) == 0:
		at[0], at[1] = []byte{0, 8}[rand.IntN(2)], 0
		binary.BigEndian.PutUint32(at[4:], rand.Uint32N(2)<<16)
	case p.Transport == packet.ICMP6Transport && rand.IntN(2) == 0:
		at[0], at[1] = []byte{129, 128}[rand.IntN(2)], 0
		binary.BigEndian.PutUint32(at[4:], rand.Uint32N(2)<<16)
	}
}

// transport decodes a frame and reports whether it has a transport header whose fields are known.
func (r *comparison) transport(f []byte) (p packet.Packet, ok bool) {
	r.c.Link.Decode(f, &p)
	return p, p.Malformed == packet.WellFormed && p.Transport != packet.NoTransport
}

// reverse makes of a frame one that goes the other way.
func (r *comparison) reverse(f []byte) bool {
	p, ok := r.transport(f)
	if !ok {
		return false
	}
	swap := func(at, n int) {
		for i := range n {
			f[at+i], f[at+n+i] = f[at+n+i], f[at+i]
		}
	}
	if p.Family == packet.IPv4 {
		swap(p.NetworkOffset+12, 4)
	} else {
		swap(p.NetworkOffset+8, 16)
	}
	if p.HasPorts() {
		swap(p.TransportOffset, 2)
	}
	return true
}
