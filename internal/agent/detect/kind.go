package detect

import (
	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// raw are the counters behind the kinds.
type raw [kind.NumCounters]float64

// repeated is what a packet of a flow counts that was seen before: a backup, a tunnel and a test of
// a line are few flows with many packets.
const repeated = 0.1

// reflectors are UDP ports of services that answer with more than they are asked (US-CERT TA14-017A
// and later reports): chargen, QOTD, DNS, TFTP, portmapper, NTP, NetBIOS, SNMP, CLDAP, mDNS, SSDP,
// WS-Discovery, memcached and others.
var reflectors = func() (out [1 << 16]bool) {
	for _, p := range []int{17, 19, 53, 69, 111, 123, 137, 161, 177, 389, 427, 500, 520, 623, 1194,
		1434, 1604, 1701, 1900, 3283, 3389, 3478, 3702, 5060, 5093, 5351, 5353, 5683, 6881, 7547,
		10001, 10074, 11211, 17185, 20800, 27015, 30718, 32414, 33848, 37810} {
		out[p] = true
	}
	return out
}()

// tally counts a packet that stands for some. It is fresh if its flow was not seen of late, and the
// same if the packet before, of its protocol, was of that flow.
func (r *raw) tally(p *packet.Packet, weight float64, bytes int, fresh, same bool) {
	r[kind.CountPackets] += weight
	r[kind.CountBits] += weight * 8 * float64(bytes)
	novel := weight
	r[kind.CountSamples]++
	if !fresh {
		novel *= repeated
	}
	again := 0.0
	if same {
		again = weight
	}
	switch {
	case !p.IsIP():
	case p.Fragment:
		r[kind.CountSameFragments] += again
		r[kind.CountFragments] += novel
		r[kind.CountAllFragments] += weight
	case p.Transport == packet.TCPTransport:
		const all = packet.SYN | packet.ACK | packet.RST | packet.FIN
		switch f := p.Flags & all; {
		case f == packet.SYN:
			r[kind.CountSYN] += weight
		case f&packet.SYN != 0 && f != packet.SYN|packet.ACK, f == 0, f == packet.FIN:
			r[kind.CountSameOther] += again
			r[kind.CountOther] += novel
			r[kind.CountAllOther] += weight
		default:
			r[kind.CountTCP] += weight
			if fresh {
				r[kind.CountFresh] += weight
			}
		}
	case p.Proto == packet.ProtoUDP && reflectors[p.SrcPort]:
		r[kind.CountReflection] += weight
	case p.Proto == packet.ProtoUDP:
		r[kind.CountSameUDP] += again
		r[kind.CountUDP] += novel
		r[kind.CountAllUDP] += weight
	case p.Transport == packet.ICMPTransport, p.Transport == packet.ICMP6Transport:
		r[kind.CountSameICMP] += again
		r[kind.CountICMP] += novel
		r[kind.CountAllICMP] += weight
	default:
		r[kind.CountSameOther] += again
		r[kind.CountOther] += novel
		r[kind.CountAllOther] += weight
	}
}

func (r *raw) add(o *raw, times float64) {
	for i := range r {
		r[i] += times * o[i]
	}
}

// ratios are what is usual between packets of connections.
type ratios struct {
	Syn   float64 // SYNs for each other packet of TCP
	Fresh float64 // packets of flows not seen before, for each SYN
}

// kinds are the rates of all kinds.
func (r *raw) kinds(u ratios) (out [kind.Num]float64) {
	for k := range out {
		out[k] = r[kind.Rows[k].Counter]
	}
	return u.relate(r, out)
}

// all are the rates of all kinds, of which each packet counts as one.
func (r *raw) all(u ratios) (out [kind.Num]float64) {
	for k := range out {
		out[k] = r[kind.Rows[k].All]
	}
	return u.relate(r, out)
}

// relate subtracts, in the kinds of TCP, what the packets of connections usually add.
func (u ratios) relate(r *raw, out [kind.Num]float64) [kind.Num]float64 {
	out[kind.SYN] = max(0, r[kind.CountSYN]-u.Syn*r[kind.CountTCP])
	out[kind.TCP] = max(0, r[kind.CountFresh]-u.Fresh*r[kind.CountSYN])
	return out
}

// of is the counter of a kind; whole, of all its packets.
func (r *raw) of(k kind.Kind, whole bool) float64 {
	if whole {
		return r[k.Row().All]
	}
	return r[k.Row().Counter]
}

// usually is what is usual of a kind; whole, of all its packets.
func (r *rates) usually(k kind.Kind, whole bool) float64 {
	if row := k.Row(); whole && row.All != row.Counter {
		return float64(r[rateAll+int(row.All-kind.CountAllUDP)])
	}
	return float64(r[k])
}

// Is says whether a packet is of a kind.
func Is(k kind.Kind, p *packet.Packet) bool {
	if k == kind.Packets || k == kind.Bits {
		return true
	}
	var r raw
	r.tally(p, 1, 0, true, false)
	return r.of(k, true) > 0
}
