package oracle

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"levee/internal/packet"
)

// ICMP errors by type: RFC 792, RFC 4443 section 2.1.
var (
	errors4 = []uint8{3, 11, 12}
	errors6 = []uint8{1, 2, 3, 4}
)

// quoted returns the packet that an ICMP error quotes, from its IP header on, nil if pkt is no
// error.
func quoted(pkt *packet.Packet, frame []byte) []byte {
	is := pkt.Transport == packet.ICMPTransport && slices.Contains(errors4, pkt.Type) ||
		pkt.Transport == packet.ICMP6Transport && slices.Contains(errors6, pkt.Type)
	if !is {
		return nil
	}
	const header = 8
	return frame[pkt.TransportOffset+header : pkt.NetworkOffset+pkt.Len]
}

// quotesKnown says whether a quoted packet has left on a connection that is known. The destination
// of the error has to be the source of that packet.
func (e *Evaluator) quotesKnown(pkt *packet.Packet, quote []byte) bool {
	var k connectionKey
	var ok bool
	if pkt.Family == packet.IPv4 {
		k, quote, ok = quotedIPv4(quote)
	} else {
		k, quote, ok = quotedIPv6(quote)
	}
	if !ok || k.local != pkt.Dst || len(quote) < 8 { // RFC 792: 64 bits of the data
		return false
	}
	word := func(at int) uint16 { return binary.BigEndian.Uint16(quote[at:]) }
	switch k.proto {
	case packet.ProtoTCP, packet.ProtoUDP:
		k.localPort, k.remotePort = word(0), word(2)
	case packet.ProtoICMP:
		if pkt.Family != packet.IPv4 || word(0) != 8<<8 {
			return false
		}
		k.localPort = word(4)
	case packet.ProtoICMP6:
		if pkt.Family != packet.IPv6 || word(0) != 128<<8 {
			return false
		}
		k.localPort = word(4)
	default:
		return false
	}
	c := e.connection(k)
	return c != nil && c.state != stranger
}

// quotedIPv4 reads the header of a quoted packet, of which lengths mean nothing: it has been cut.
func quotedIPv4(b []byte) (k connectionKey, behind []byte, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 || len(b) < int(b[0]&15)*4 {
		return k, nil, false
	}
	if binary.BigEndian.Uint16(b[6:])<<3 != 0 { // a later fragment
		return k, nil, false
	}
	k.proto = b[9]
	k.local, k.remote = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return k, b[int(b[0]&15)*4:], true
}

func quotedIPv6(b []byte) (k connectionKey, behind []byte, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return k, nil, false
	}
	k.local, k.remote = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, b := b[6], b[40:]
	for range 8 { // as many as of a packet that is not quoted
		size := 0
		switch next {
		case 0, 43, 60, 135: // options, routing, mobility
			if len(b) >= 8 {
				size = 8 * (int(b[1]) + 1)
			}
		case 44: // fragment
			if len(b) >= 8 && binary.BigEndian.Uint16(b[2:])>>3 == 0 {
				size = 8
			}
		case 51: // authentication
			if len(b) >= 8 {
				size = 4 * (int(b[1]) + 2)
			}
		default:
			k.proto = next
			return k, b, true
		}
		if size == 0 || size > len(b) {
			return k, nil, false
		}
		next, b = b[0], b[size:]
	}
	k.proto = next
	return k, b, true
}
