package difftest

import (
	"encoding/binary"
	"slices"
	"time"

	"levee/internal/packet"
)

// given is a SYN with the number of its answer.
type given struct {
	syn    []byte
	number uint32
	at     time.Time
}

// Between these times a number may hold or not.
const (
	numberHolds = 64 * time.Second
	numberEnds  = 128 * time.Second
)

// mostGiven is the number of answers that are remembered.
const mostGiven = 16

// answered notes an answer, if there is one, and tells the oracle of it, which cannot make the
// number itself. Of one to a query it says what is wrong.
func (r *comparison) answered(syn, answer []byte) string {
	if answer == nil {
		return ""
	}
	p, _ := r.transport(answer)
	r.oracle.Answered(answer)
	if p.Transport != packet.TCPTransport {
		if wrong := r.replied(syn, answer); wrong != "" {
			return wrong
		}
		r.gave(&p, answer)
		return ""
	}
	number := binary.BigEndian.Uint32(answer[p.TransportOffset+8:])
	r.given = append(r.given, given{slices.Clone(syn), number, r.clock.at})
	if len(r.given) > mostGiven {
		r.given = r.given[1:]
	}
	return ""
}

// handshake makes of frame i, now and then, a SYN, or what a client sends that has been answered,
// where the policy answers.
func (r *comparison) handshake(frames [][]byte, i int) {
	if !r.cookie {
		return
	}
	rand := r.clock.rand
	if r.proven && len(r.given) > 0 && rand.IntN(3) == 0 {
		r.from(frames, i, r.given[rand.IntN(len(r.given))].syn)
		return
	}
	if n := len(r.given); n > 0 && rand.IntN(3) == 0 {
		g := r.given[rand.IntN(n)]
		frames[i] = slices.Clone(g.syn)
		p, _ := r.transport(g.syn)
		if age := r.clock.at.Sub(g.at); rand.IntN(2) == 0 &&
			(age <= numberHolds || age >= numberEnds) {
			at := frames[i][p.TransportOffset:]
			at[13] = packet.RST
			binary.BigEndian.PutUint32(at[4:], g.number+uint32(rand.IntN(5)/4))
		}
		return
	}
	if p, ok := r.transport(frames[i]); ok && p.Transport == packet.TCPTransport &&
		rand.IntN(2) == 0 {
		frames[i] = slices.Clone(frames[i])
		frames[i][p.TransportOffset+13] = []uint8{packet.SYN, packet.SYN, packet.RST,
			packet.SYN | packet.ECE}[rand.IntN(4)]
	}
}

// from makes the source of frame i that of another, where both are of one family.
func (r *comparison) from(frames [][]byte, i int, other []byte) {
	var p, q packet.Packet
	r.c.Link.Decode(frames[i], &p)
	r.c.Link.Decode(other, &q)
	at, n := 12, 4
	if p.Family == packet.IPv6 {
		at, n = 8, 16
	}
	if p.Malformed == packet.WellFormed && p.IsIP() && p.Family == q.Family {
		frames[i] = slices.Clone(frames[i])
		copy(frames[i][p.NetworkOffset+at:][:n], other[q.NetworkOffset+at:])
	}
}
