package kind

import "levee/internal/packet"

// OfPacket is the kind of a packet: the last one in the table that has it.
func OfPacket(p *packet.Packet) Kind {
	for k := Num; k > 0; k-- {
		if has := Rows[k-1].Has; has != nil && has(p) {
			return k - 1
		}
	}
	return Other
}

// Is says whether a packet is of a kind.
func (k Kind) Is(p *packet.Packet) bool {
	return k == Packets || k == Bits || k < Num && k == OfPacket(p)
}

// tellFlags are the TCP flags that tell where in a connection a packet is.
const tellFlags = packet.SYN | packet.ACK | packet.RST | packet.FIN

func hasSYN(p *packet.Packet) bool {
	return p.Transport == packet.TCPTransport && p.Flags&tellFlags == packet.SYN
}

func hasUDP(p *packet.Packet) bool { return p.Proto == packet.ProtoUDP }

func hasReflection(p *packet.Packet) bool { return hasUDP(p) && reflectors[p.SrcPort] }

func hasICMP(p *packet.Packet) bool {
	return p.Transport == packet.ICMPTransport || p.Transport == packet.ICMP6Transport
}

func hasNoIP(p *packet.Packet) bool { return !p.IsIP() }

func hasFragment(p *packet.Packet) bool { return p.Fragment }

// hasConnection says whether the flags of a packet are those of a connection that is there.
func hasConnection(p *packet.Packet) bool {
	if p.Fragment || p.Transport != packet.TCPTransport {
		return false
	}
	f := p.Flags & tellFlags
	return f == packet.SYN|packet.ACK || f&packet.SYN == 0 && f != 0 && f != packet.FIN
}

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
