package detect

import (
	"levee/internal/packet"
)

// Kind is a kind of flood.
type Kind uint8

const (
	SYN        Kind = iota // connections that nobody completes
	UDP                    // of flows not seen before
	Reflection             // UDP from ports of services that answer with more than they are asked
	ICMP
	Fragments
	TCP     // packets of connections that nobody began
	Other   // any other protocol, and TCP with flags that no connection has
	Packets // all; only with a fixed threshold
	Bits    // a second; only with a fixed threshold
	numKinds
)

func (k Kind) String() string {
	return [...]string{"syn", "udp", "reflection", "icmp", "fragments", "tcp", "other", "packets",
		"bits"}[k]
}

// floors are rates, in packets a second, below which nothing is a flood that was learned: a
// machine that can serve anybody takes them.
var floors = [numKinds]float64{SYN: 5000, UDP: 10_000, Reflection: 3000, ICMP: 3000,
	Fragments: 3000, TCP: 10_000, Other: 10_000}

// raw are the counters behind the kinds.
type raw [numRaw]float64

const (
	rawSYN   = iota // SYN without ACK
	rawTCP          // TCP of connections: all other usual flags
	rawFresh        // of these, of flows that were not seen before
	rawUDP
	rawReflection
	rawICMP
	rawFragments
	rawOther
	rawAllUDP // these count all packets alike, whether their flow was seen before or not
	rawAllICMP
	rawAllFragments
	rawAllOther
	rawPackets
	rawBits
	rawSamples
	numRaw
)

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

// tally counts a packet that stands for some.
func (r *raw) tally(p *packet.Packet, weight float64, bytes int, fresh bool) {
	r[rawPackets] += weight
	r[rawBits] += weight * 8 * float64(bytes)
	novel := weight
	r[rawSamples]++
	if !fresh {
		novel *= repeated
	}
	switch {
	case !p.IsIP():
	case p.Fragment:
		r[rawFragments] += novel
		r[rawAllFragments] += weight
	case p.Transport == packet.TCPTransport:
		const all = packet.SYN | packet.ACK | packet.RST | packet.FIN
		switch f := p.Flags & all; {
		case f == packet.SYN:
			r[rawSYN] += weight
		case f&packet.SYN != 0 && f != packet.SYN|packet.ACK, f == 0, f == packet.FIN:
			r[rawOther] += novel
			r[rawAllOther] += weight
		default:
			r[rawTCP] += weight
			if fresh {
				r[rawFresh] += weight
			}
		}
	case p.Proto == packet.ProtoUDP && reflectors[p.SrcPort]:
		r[rawReflection] += weight
	case p.Proto == packet.ProtoUDP:
		r[rawUDP] += novel
		r[rawAllUDP] += weight
	case p.Transport == packet.ICMPTransport, p.Transport == packet.ICMP6Transport:
		r[rawICMP] += novel
		r[rawAllICMP] += weight
	default:
		r[rawOther] += novel
		r[rawAllOther] += weight
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
func (r *raw) kinds(u ratios) (out [numKinds]float64) {
	out[SYN] = max(0, r[rawSYN]-u.Syn*r[rawTCP])
	out[TCP] = max(0, r[rawFresh]-u.Fresh*r[rawSYN])
	out[UDP], out[Reflection], out[ICMP] = r[rawUDP], r[rawReflection], r[rawICMP]
	out[Fragments], out[Other] = r[rawFragments], r[rawOther]
	out[Packets], out[Bits] = r[rawPackets], r[rawBits]
	return out
}

// all are the rates of all kinds, of which each packet counts as one.
func (r *raw) all(u ratios) (out [numKinds]float64) {
	out = r.kinds(u)
	for k := range out {
		if at := alike[k]; at > 0 {
			out[k] = r[at]
		}
	}
	return out
}

// counted are the counters of the kinds, alike those of all packets where repeated ones count less.
var (
	counted = [numKinds]int{rawSYN, rawUDP, rawReflection, rawICMP, rawFragments, rawFresh,
		rawOther, rawPackets, rawBits}
	alike = [numKinds]int{UDP: rawAllUDP, ICMP: rawAllICMP, Fragments: rawAllFragments,
		Other: rawAllOther}
)

// of is the counter of a kind; whole, of all its packets.
func (k Kind) of(r *raw, whole bool) float64 {
	if whole && alike[k] > 0 {
		return r[alike[k]]
	}
	return r[counted[k]]
}

// usually is what is usual of a kind; whole, of all its packets.
func (k Kind) usually(r *rates, whole bool) float64 {
	if whole && alike[k] > 0 {
		return float64(r[rateAll+alike[k]-rawAllUDP])
	}
	return float64(r[k])
}

// Is says whether a packet is of a kind.
func (k Kind) Is(p *packet.Packet) bool {
	if k == Packets || k == Bits {
		return true
	}
	var r raw
	r.tally(p, 1, 0, true)
	return k.of(&r, true) > 0
}
