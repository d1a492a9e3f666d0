package oracle

import (
	"encoding/binary"
	"time"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// streams holds the clients' sides of TCP connections.
type streams map[connectionKey]*clientStream

// clientStream is one of which the handshake was seen, or its answer. Unlike the program it keeps
// the bytes.
type clientStream struct {
	first  uint32 // the number of the first byte
	proof  uint32 // what the client has to acknowledge
	proven bool
	at     time.Time                  // when the answer left
	known  map[*policy.Pattern][]byte // what each search has seen
}

// streamShakes is the longest time that a client may take to acknowledge.
const streamShakes = 30 * time.Second

// newStreams returns nil where no rule searches streams.
func newStreams(p *policy.Policy) streams {
	if !p.Asks(field.Stream) {
		return nil
	}
	return streams{}
}

// ForgetStreams has no stream be known any more.
func (e *Evaluator) ForgetStreams() { clear(e.streams) }

func isTCP(pkt *packet.Packet) bool { return pkt.Transport == packet.TCPTransport }

// leave notes where the stream of a client begins, as the answer to its SYN says.
func (s streams) leave(pkt *packet.Packet, frame []byte, now time.Time) {
	const asked = packet.SYN | packet.ACK | packet.RST
	if !isTCP(pkt) || pkt.Fragment || pkt.Flags&asked != packet.SYN|packet.ACK {
		return
	}
	tcp := frame[pkt.TransportOffset:]
	next := clientStream{first: binary.BigEndian.Uint32(tcp[8:]),
		proof: binary.BigEndian.Uint32(tcp[4:]) + 1, at: now}
	key := connectionKey{packet.ProtoTCP, pkt.Src, pkt.Dst, pkt.SrcPort, pkt.DstPort}
	was := s[key]
	if was != nil && was.first == next.first && was.proof == next.proof {
		was.at = now
		return
	}
	next.known = map[*policy.Pattern][]byte{}
	s[key] = &next
}

// known tells of a segment whether the stream up to its end is known to contain, or not to contain,
// what a term asks for. It is of no stream if it has no data.
func (s streams) known(t *term, pkt *packet.Packet, frame []byte, now time.Time) (contains, known,
	has bool) {
	if !isTCP(pkt) {
		return false, false, false
	}
	if pkt.Fragment {
		return false, false, true
	}
	has = pkt.TCPPayload > 0
	is := s[connectionKey{packet.ProtoTCP, pkt.Dst, pkt.Src, pkt.DstPort, pkt.SrcPort}]
	if is == nil {
		return false, false, has
	}
	tcp := frame[pkt.TransportOffset:]
	if !is.proven {
		if pkt.Flags&(packet.SYN|packet.RST|packet.ACK) != packet.ACK ||
			binary.BigEndian.Uint32(tcp[8:]) != is.proof || now.Sub(is.at) > streamShakes {
			return false, false, has
		}
		is.proven = true
	}
	const data = packet.SYN | packet.RST | packet.URG | packet.ACK
	if !has || pkt.Flags&data != packet.ACK {
		return false, false, has
	}
	want, there := t.of.Pattern, is.known[t.of.Pattern]
	if t.finds(there) {
		return true, true, true
	}
	if len(there) >= want.Within {
		return false, true, true
	}
	// Numbers come around: of two the one that is less than half of them ahead is behind.
	old := int(int32(uint32(len(there)) - (binary.BigEndian.Uint32(tcp[4:]) - is.first)))
	switch {
	case old < 0:
		return false, false, true
	case old < pkt.TCPPayload:
		body := tcp[int(tcp[12]>>4)*4:][:pkt.TCPPayload]
		all := append(there, body[old:]...)
		there = all[:min(len(all), want.Within)]
		is.known[want] = there
	}
	return t.finds(there), true, true
}

// holds says whether a term on the stream of a segment does.
func (s streams) holds(t *term, pkt *packet.Packet, frame []byte, now time.Time) bool {
	contains, known, has := s.known(t, pkt, frame, now)
	if !known {
		return has && t.of.Unknown
	}
	return contains != t.not
}

// gotStream returns the part of a term's stream that a segment has.
func (s streams) gotStream(t *policy.Term, pkt *packet.Packet, frame []byte, now time.Time) string {
	of := &term{asked: &asked{of: t, find: finders(t.Pattern)}}
	contains, known, has := s.known(of, pkt, frame, now)
	switch {
	case !has:
		return "the segment has no data"
	case !known:
		return "its stream is unknown"
	case contains:
		return "its stream contains it"
	}
	return "its stream does not contain it so far"
}
