package packet

import (
	"encoding/binary"
	"hash/crc32"
)

// Layout says where the parts of a frame begin that Build made, in bytes from its start; 0 is a
// part that it lacks.
type Layout struct {
	Tag, Inner int // the tags, from their TPID
	ARP        int
	IP         int
	Frag       int   // Fragment header of IPv6
	L4         int   // transport header; a later fragment has none
	Payload    int   // what follows the headers
	Six        bool  // IP is IPv6
	Proto      uint8 // of L4
}

// layer is a header with fields.
type layer uint8

const (
	inEther layer = iota
	inTag
	inInner
	inARP
	inIPv4
	inIPv6
	inFrag
	inTCP
	inUDP
	inSCTP
	inDCCP
	inPorts
	inICMP
	inTCPOption
)

// base returns where the layer begins, 0 where the frame has none; Ethernet is handled by the
// caller.
func (l *Layout) base(at layer) int {
	if l.L4 > 0 {
		switch {
		case at == inTCP && l.Proto == ProtoTCP,
			at == inUDP && (l.Proto == ProtoUDP || l.Proto == ProtoUDPLite),
			at == inSCTP && l.Proto == ProtoSCTP,
			at == inDCCP && l.Proto == ProtoDCCP,
			at == inPorts && HasPorts(l.Proto),
			at == inICMP && l.Proto == ProtoICMP && !l.Six,
			at == inICMP && l.Proto == ProtoICMP6 && l.Six:
			return l.L4
		}
	}
	switch at {
	case inTag:
		return l.Tag
	case inInner:
		return l.Inner
	case inARP:
		return l.ARP
	case inIPv4:
		if !l.Six {
			return l.IP
		}
	case inIPv6:
		if l.Six {
			return l.IP
		}
	case inFrag:
		return l.Frag
	}
	return 0
}

// location is the place of a field in one layer that has it.
type location struct {
	in   layer
	bit  int // from the start of the layer; of a TCP option, behind its kind and length
	bits int
	kind uint8 // of a TCP option
}

// fields are the fields of headers by the words of the packet language. Bit offsets are those of
// the RFCs' figures: IEEE 802.1Q, RFC 826, 791, 8200, 9293, 768, 3828, 792, 4443, 9260, 4340, 7323.
var fields = map[string][]location{
	"ether to":   {{in: inEther, bit: 0, bits: 48}},
	"ether from": {{in: inEther, bit: 48, bits: 48}},
	"tpid":       {{in: inTag, bit: 0, bits: 16}},
	"pcp":        {{in: inTag, bit: 16, bits: 3}},
	"dei":        {{in: inTag, bit: 19, bits: 1}},
	"vlan":       {{in: inTag, bit: 20, bits: 12}},
	"inner-tpid": {{in: inInner, bit: 0, bits: 16}},
	"inner-pcp":  {{in: inInner, bit: 16, bits: 3}},
	"inner-dei":  {{in: inInner, bit: 19, bits: 1}},
	"inner-vlan": {{in: inInner, bit: 20, bits: 12}},

	"op":         {{in: inARP, bit: 48, bits: 16}},
	"sender-mac": {{in: inARP, bit: 64, bits: 48}},
	"target-mac": {{in: inARP, bit: 144, bits: 48}},

	"version":     {{in: inIPv4, bit: 0, bits: 4}, {in: inIPv6, bit: 0, bits: 4}},
	"ihl":         {{in: inIPv4, bit: 4, bits: 4}},
	"dscp":        {{in: inIPv4, bit: 8, bits: 6}, {in: inIPv6, bit: 4, bits: 6}},
	"ecn":         {{in: inIPv4, bit: 14, bits: 2}, {in: inIPv6, bit: 10, bits: 2}},
	"flow-label":  {{in: inIPv6, bit: 12, bits: 20}},
	"ip-len":      {{in: inIPv4, bit: 16, bits: 16}, {in: inIPv6, bit: 32, bits: 16}},
	"id":          {{in: inIPv4, bit: 32, bits: 16}, {in: inFrag, bit: 32, bits: 32}},
	"reserved":    {{in: inIPv4, bit: 48, bits: 1}},
	"df":          {{in: inIPv4, bit: 49, bits: 1}},
	"mf":          {{in: inIPv4, bit: 50, bits: 1}, {in: inFrag, bit: 31, bits: 1}},
	"frag-offset": {{in: inIPv4, bit: 51, bits: 13}, {in: inFrag, bit: 16, bits: 13}},
	"ttl":         {{in: inIPv4, bit: 64, bits: 8}, {in: inIPv6, bit: 56, bits: 8}},
	"ip-proto":    {{in: inIPv4, bit: 72, bits: 8}, {in: inIPv6, bit: 48, bits: 8}},
	"ip-checksum": {{in: inIPv4, bit: 80, bits: 16}},
	"from": {{in: inIPv4, bit: 96, bits: 32}, {in: inIPv6, bit: 64, bits: 128},
		{in: inARP, bit: 112, bits: 32}},
	"to": {{in: inIPv4, bit: 128, bits: 32}, {in: inIPv6, bit: 192, bits: 128},
		{in: inARP, bit: 192, bits: 32}},

	"from port":      {{in: inPorts, bit: 0, bits: 16}},
	"port":           {{in: inPorts, bit: 16, bits: 16}},
	"udp-len":        {{in: inUDP, bit: 32, bits: 16}},
	"seq":            {{in: inTCP, bit: 32, bits: 32}},
	"ack-number":     {{in: inTCP, bit: 64, bits: 32}},
	"data-offset":    {{in: inTCP, bit: 96, bits: 4}},
	"tcp-flags":      {{in: inTCP, bit: 104, bits: 8}},
	"window":         {{in: inTCP, bit: 112, bits: 16}},
	"urgent":         {{in: inTCP, bit: 144, bits: 16}},
	"mss":            {{in: inTCPOption, kind: 2, bits: 16}},
	"window-scale":   {{in: inTCPOption, kind: 3, bits: 8}},
	"timestamp":      {{in: inTCPOption, kind: 8, bits: 32}},
	"timestamp-echo": {{in: inTCPOption, kind: 8, bit: 32, bits: 32}},
	"code":           {{in: inICMP, bit: 8, bits: 8}},
	"icmp-id":        {{in: inICMP, bit: 32, bits: 16}},
	"icmp-seq":       {{in: inICMP, bit: 48, bits: 16}},
	"icmp-rest":      {{in: inICMP, bit: 32, bits: 32}},
	"checksum": {{in: inTCP, bit: 128, bits: 16}, {in: inUDP, bit: 48, bits: 16},
		{in: inICMP, bit: 16, bits: 16},
		{in: inDCCP, bit: 48, bits: 16}, {in: inSCTP, bit: 64, bits: 32}},
}

// FieldBits returns the width of a field in bits, the widest where headers differ; 0 for a word
// that is none.
func FieldBits(word string) int {
	n := 0
	for _, p := range fields[word] {
		n = max(n, p.bits)
	}
	return n
}

// Locate says where a field lies in a frame of this layout: its first bit, counted from the frame's
// first, and its width. A frame that has no such field gives false.
func (l *Layout) Locate(frame []byte, word string) (bit, bits int, ok bool) {
	for _, p := range fields[word] {
		switch base := l.base(p.in); {
		case p.in == inEther:
			return p.bit, p.bits, true
		case p.in == inTCPOption:
			if at := l.tcpOption(frame, p.kind); at > 0 {
				return at*8 + p.bit, p.bits, true
			}
		case base > 0:
			return base*8 + p.bit, p.bits, true
		}
	}
	return 0, 0, false
}

// tcpOption returns where the value of an option begins, 0 where there is none (RFC 9293 section
// 3.1).
func (l *Layout) tcpOption(frame []byte, kind uint8) int {
	if l.base(inTCP) == 0 {
		return 0
	}
	for i := l.L4 + 20; i < l.Payload; {
		switch {
		case frame[i] == 0:
			return 0
		case frame[i] == 1:
			i++
		case i+1 >= l.Payload || frame[i+1] < 2 || i+int(frame[i+1]) > l.Payload:
			return 0
		case frame[i] == kind:
			return i + 2
		default:
			i += int(frame[i+1])
		}
	}
	return 0
}

// Put writes the low bits of value into a field that Locate found; bits is at most 64.
func Put(frame []byte, bit, bits int, value uint64) {
	for end := bit + bits; bits > 0; {
		last := (end - 1) / 8 // the byte that takes the lowest bits left
		low := 7 - (end-1)%8  // bits of it behind the field
		n := min(8-low, bits)
		mask := byte(1<<n-1) << low
		frame[last] = frame[last]&^mask | byte(value<<low)&mask
		value >>= n
		end -= n
		bits -= n
	}
}

// Seal fills in the checksums of IP and of the transport, each unless it is to be kept.
func (l *Layout) Seal(frame []byte, keepIP, keepL4 bool) {
	if l.IP > 0 && !l.Six && !keepIP {
		h := frame[l.IP : l.IP+l.header4()]
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], ^sum(h, 0))
	}
	if l.L4 > 0 && !keepL4 {
		l.sealL4(frame)
	}
}

// header4 returns the length of the IPv4 header that was built, whatever its ihl says.
func (l *Layout) header4() int {
	if l.L4 > 0 {
		return l.L4 - l.IP
	}
	return l.Payload - l.IP
}

func (l *Layout) sealL4(frame []byte) {
	bit, bits, ok := l.Locate(frame, "checksum")
	if !ok {
		return
	}
	b, at := frame[l.L4:], bit/8-l.L4
	clear(b[at : at+bits/8])
	if l.Proto == ProtoSCTP { // CRC32c in the order of RFC 9260 appendix A
		binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		return
	}
	c := ^sum(b, l.pseudo(frame))
	if l.Proto == ProtoUDP || l.Proto == ProtoUDPLite {
		c = nonzero(c)
	}
	binary.BigEndian.PutUint16(b[at:], c)
}

// pseudo returns the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1), 0 for
// ICMP.
func (l *Layout) pseudo(frame []byte) uint32 {
	if l.Proto == ProtoICMP {
		return 0
	}
	addresses := frame[l.IP+12 : l.IP+20]
	if l.Six {
		addresses = frame[l.IP+8 : l.IP+40]
	}
	return partial(addresses, 0) + uint32(l.Proto) + uint32(len(frame)-l.L4)
}
