package packet

import (
	"errors"
	"fmt"
)

// Link is the link layer of a device: the first header of its packets. The zero value is Ethernet.
type Link uint8

const (
	Ethernet Link = iota // an Ethernet header
	L3                   // the IP header: WireGuard, tun, GRE, PPP and the like
)

// ErrNotL3 is the error of Carry for a frame that no device without Ethernet headers can have.
var ErrNotL3 = errors.New("neither IPv4 nor IPv6 without tags, which is all that comes without " +
	"an " +
	"Ethernet header")

func (l Link) String() string { return [...]string{"ethernet", "l3"}[l] }

// ParseLink reads the argument of --link.
func ParseLink(s string) (Link, error) {
	for l := Ethernet; l <= L3; l++ {
		if s == l.String() {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown link layer %q: it is %s or %s", s, Ethernet, L3)
}

// Header returns how many bytes stand before the IP header of an untagged packet.
func (l Link) Header() int {
	if l == L3 {
		return 0
	}
	return etherHeader
}

// Carry returns an Ethernet frame as a device of this link layer has it: for L3, without its
// Ethernet header. The error is ErrNotL3.
func (l Link) Carry(frame []byte) ([]byte, error) {
	if l == Ethernet {
		return frame, nil
	}
	if len(frame) < etherHeader {
		return nil, ErrNotL3
	}
	switch uint16(frame[12])<<8 | uint16(frame[13]) {
	case EtherIPv4, EtherIPv6:
		return frame[etherHeader:], nil
	}
	return nil, ErrNotL3
}

// Decode reads a frame of a device of this link layer: see the function Decode.
func (l Link) Decode(frame []byte, p *Packet) {
	*p = Packet{Link: l}
	if l == L3 {
		p.Malformed = p.ip(frame)
	} else {
		p.Malformed = p.ethernet(frame)
	}
}

// ip reads a packet without a header in front of IP, of which the version says what it is.
func (p *Packet) ip(b []byte) Malformed {
	p.Len = len(b)
	if len(b) < 20 { // no IP header is shorter
		return TruncatedIP
	}
	switch b[0] >> 4 {
	case 4:
		p.EtherType = EtherIPv4
		return p.ipv4(b)
	case 6:
		p.EtherType = EtherIPv6
		return p.ipv6(b)
	}
	return IPVersion
}
