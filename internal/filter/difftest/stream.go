package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"levee/internal/packet"
)

// sender is a client over TCP, with all that it ever sends.
type sender struct {
	client, server netip.AddrPort
	first, proof   uint32 // of its bytes, and what it acknowledges
	bytes          []byte
	sent           int // up to where
}

// mostSenders is the number of clients that talk at once: few enough that each says something.
const mostSenders = 3

// stream has answers to SYNs leave before frame i comes in, and makes of it a segment of a client,
// where the policy searches streams. Segments come whole and byte by byte, twice, in part again,
// too early, with wrong numbers, or with something in their headers.
func (r *comparison) stream(frames [][]byte, i int) error {
	if !r.streams || r.clock.rand.IntN(8) == 0 {
		return nil
	}
	rand := r.clock.rand
	if n := len(r.senders); n == 0 || n < mostSenders && rand.IntN(3) == 0 {
		t := newSender(rand)
		r.senders = append(r.senders, t)
		if rand.IntN(16) > 0 {
			if _, err := r.leave(r.segment(t.server, t.client, t.proof-1, t.first,
				packet.SYN|packet.ACK, nil)); err != nil {
				return err
			}
		}
	}
	at := rand.IntN(len(r.senders))
	t := r.senders[at]
	if rand.IntN(32) == 0 { // and another in its place, perhaps from the same port
		r.senders = append(r.senders[:at], r.senders[at+1:]...)
		return nil
	}
	if rand.IntN(24) == 0 {
		_, err := r.leave(r.segment(t.server, t.client, t.proof-1+uint32(rand.IntN(2)),
			t.first+uint32(rand.IntN(4)/3), packet.SYN|packet.ACK, nil))
		return err
	}
	from, n := t.sent, rand.IntN(80)
	switch rand.IntN(16) {
	case 0:
		n = 0
	case 1:
		from = rand.IntN(t.sent + 1)
	case 2:
		from += rand.IntN(20)
	case 3, 4:
		n = 1
	case 5:
		n = rand.IntN(1400)
	}
	from = min(from, len(t.bytes))
	end := min(from+n, len(t.bytes))
	flags, ack := uint8(packet.ACK), t.proof
	switch rand.IntN(40) {
	case 0:
		flags |= uint8(1) << rand.IntN(8)
	case 1:
		flags = 0
	case 2:
		ack++
	}
	seq := t.first + uint32(from)
	if rand.IntN(48) == 0 {
		seq += rand.Uint32()
	}
	if from <= t.sent {
		t.sent = max(t.sent, end)
	}
	frames[i] = r.segment(t.client, t.server, seq, ack, flags, t.bytes[from:end])
	return nil
}

func newSender(r *rand.Rand) *sender {
	t := &sender{client: endpoint(r), first: r.Uint32(), proof: r.Uint32()}
	server := endpoint(r).Addr()
	if server.Is4() != t.client.Addr().Is4() {
		server = other(server)
	}
	t.server = netip.AddrPortFrom(server, uint16(80+r.IntN(2)))
	t.bytes = make([]byte, 200+r.IntN(9000))
	for i := range t.bytes {
		t.bytes[i] = "aaabbcdA"[r.IntN(8)]
	}
	if r.IntN(4) == 0 {
		t.first = -uint32(r.IntN(300)) // numbers come around
	}
	return t
}

// segment returns a frame as it arrives.
func (r *comparison) segment(from, to netip.AddrPort, seq, ack uint32, flags uint8,
	data []byte) []byte {
	proto, src, dst := uint8(packet.ProtoTCP), from.Port(), to.Port()
	spec := packet.Spec{Proto: &proto, From: from.Addr(), To: to.Addr(), FromPort: &src,
		ToPort: &dst, Payload: data, Family: packet.IPv4}
	if from.Addr().Is6() {
		spec.Family = packet.IPv6
	}
	f, err := packet.Build(spec)
	if err != nil {
		panic(err)
	}
	var p packet.Packet
	packet.Decode(f, &p)
	tcp := f[p.TransportOffset:]
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[13] = flags
	return arriving(r.c.Link, f)
}
