package difftest

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// told is a value that a client was given.
type told struct {
	client netip.AddrPort
	server netip.AddrPort
	value  []byte
	prove  *policy.Prove
	at     time.Time
}

// mostTold is the number of remembered values, and of values given within toldFor: a line holds
// eight, which flows may share.
const (
	mostTold = 8
	toldFor  = 10 * time.Second
)

// echo has replies leave before frame i comes in, and makes of it what their clients send back, or
// what others try, where the policy has proofs by echo.
func (r *comparison) echo(frames [][]byte, i int) error {
	if !r.echoes || r.clock.rand.IntN(4) == 0 {
		return nil
	}
	rand := r.clock.rand
	s := r.c.Policy.Proves[rand.IntN(len(r.c.Policy.Proves))]
	if n := len(r.told); rand.IntN(2) == 0 &&
		(n < mostTold || r.clock.at.Sub(r.told[0].at) > toldFor) {
		t := told{endpoint(rand), endpoint(rand),
			randomBytes(rand, s.Bytes), s, r.clock.at}
		t.server = netip.AddrPortFrom(t.server.Addr(), portOf(rand, s))
		if t.client.Addr().Is4() != t.server.Addr().Is4() {
			t.server = netip.AddrPortFrom(other(t.server.Addr()), t.server.Port())
		}
		if n := len(r.told); n > 0 && rand.IntN(4) == 0 { // another value, or the same again
			was := r.told[rand.IntN(n)]
			t.client, t.server, t.prove = was.client, was.server, was.prove
			if t.value = randomBytes(rand, t.prove.Bytes); rand.IntN(2) == 0 {
				t.value = was.value
			}
		}
		reply := randomBytes(rand, t.prove.At+t.prove.Bytes+rand.IntN(4))
		for _, b := range t.prove.Reply {
			if b.Not && rand.IntN(4) > 0 {
				continue // random bytes are others, mostly
			}
			for len(reply) < b.At+len(b.Value) {
				reply = append(reply, byte(rand.Uint32()))
			}
			for j, v := range b.Value {
				if at := b.At + j; rand.IntN(64) > 0 {
					reply[at] = reply[at]&^b.Mask[j] | v
				}
			}
		}
		if copy(reply[t.prove.At:], t.value); rand.IntN(32) == 0 {
			reply = reply[:rand.IntN(len(reply))]
		}
		ok, err := r.leave(r.frame(uncommon(rand, datagram(t.server, t.client, reply))))
		if !ok || err != nil {
			return err
		}
		if r.told = append(r.told, t); len(r.told) > mostTold {
			r.told = r.told[1:]
		}
	}
	if len(r.told) == 0 {
		return nil
	}
	t := r.told[rand.IntN(len(r.told))]
	at := t.prove.In[rand.IntN(len(t.prove.In))]
	payload := randomBytes(rand, at+len(t.value)+rand.IntN(4))
	copy(payload[at:], t.value)
	switch rand.IntN(8) {
	case 0:
		payload[at+rand.IntN(len(t.value))]++
	case 1:
		payload = payload[:at+len(t.value)-1]
	case 2:
		t.client = netip.AddrPortFrom(t.client.Addr(), t.client.Port()+1)
	case 3: // nothing that proves
		payload = payload[:rand.IntN(at+1)]
	}
	frames[i] = r.frame(uncommon(rand, datagram(t.client, t.server, payload)))
	return nil
}

// uncommon changes few packets, so that programs have to decode them with care.
func uncommon(rand *rand.Rand, s packet.Spec) packet.Spec {
	switch rand.IntN(16) {
	case 0:
		s.VLAN = new(uint16(7))
	case 1:
		s.Options = true
	case 2:
		s.Frag = new(uint16(0))
	}
	return s
}

func datagram(from, to netip.AddrPort, payload []byte) packet.Spec {
	proto, src, dst := uint8(packet.ProtoUDP), from.Port(), to.Port()
	s := packet.Spec{Family: packet.IPv4, Proto: &proto, From: from.Addr(), To: to.Addr(),
		FromPort: &src, ToPort: &dst, Payload: payload}
	if from.Addr().Is6() {
		s.Family = packet.IPv6
	}
	return s
}

// frame returns a packet as it arrives.
func (r *comparison) frame(s packet.Spec) []byte {
	f, err := packet.Build(s)
	if err != nil {
		panic(err)
	}
	return arriving(r.c.Link, f)
}

// endpoint is one of few.
func endpoint(r *rand.Rand) netip.AddrPort {
	a := netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + r.IntN(2))})
	if r.IntN(2) == 0 {
		a = other(a)
	}
	return netip.AddrPortFrom(a, 4000+uint16(r.IntN(2)))
}

// other returns an address of the other family.
func other(a netip.Addr) netip.Addr {
	b := a.As16()
	if a.Is4() {
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0xd, 3: 0xb8, 15: b[15]})
	}
	return netip.AddrFrom4([4]byte{203, 0, 113, b[15]})
}

// portOf is one of the ports that a proof is about.
func portOf(r *rand.Rand, s *policy.Prove) uint16 {
	p := s.Ports[r.IntN(len(s.Ports))]
	return uint16(p.Lo + r.Uint64N(min(3, p.Hi-p.Lo+1)))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
