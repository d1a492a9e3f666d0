package packet

import (
	"errors"
	"fmt"
	"net/netip"
)

// Family is the network layer that a Spec asks for.
type Family uint8

const (
	AnyFamily   Family = iota // that of the addresses, else IPv4
	IPv4                      // `ipv4`
	IPv6                      // `ipv6`
	ARP                       // `arp`: a request from From for To
	OtherFamily               // `ether 0xNNNN`: Spec.EtherType and Len zero bytes
)

func (f Family) String() string {
	return [...]string{"any family", "ipv4", "ipv6", "arp", "ether"}[f]
}

// Spec is the packet of a `test` statement (docs/reference/language.md "Tests in a policy"). The
// zero value of each field, nil for pointers, means the default given there; new(uint16(80)) sets
// one.
type Spec struct {
	Family    Family
	EtherType uint16     // with OtherFamily only
	Proto     *uint8     // protocol, or last next header
	From, To  netip.Addr // both of one family
	FromPort  *uint16
	ToPort    *uint16
	Flags     *uint8 // TCP flags, exactly these
	Type      *uint8 // ICMP or ICMPv6 type
	Code      uint8  // with Type
	Len       *int   // bytes of the IP packet, or of what follows Ethernet and tags
	TTL       *uint8
	DSCP      uint8   // 0 to 63
	VLAN      *uint16 // id of the outermost tag, 0 to 4095
	InnerVLAN *uint16 // id of the second tag; needs VLAN
	EtherFrom *[6]byte
	EtherTo   *[6]byte
	Frag      *uint16 // fragment offset in units of 8 bytes, 0 to 8191; 0 has more-fragments set
	Options   bool    // the shortest options that mean nothing

	IPOptions  []byte      // of IPv4, zero-filled to a multiple of 4, at most 40
	Extensions []Extension // of IPv6, outermost first, in front of a Fragment header
	TCPOptions []byte      // zero-filled to a multiple of 4, at most 40
	Payload    []byte      // behind the headers; Len may cut nothing of it
	// what Len asks for behind Payload counts 0, 1, 2, ... instead of being zero
	Counting bool
	Fields   []FieldValue
	Inner    *Spec // what the packet carries, behind the header of a tunnel: see encapsulate
}

// Extension is an extension header of IPv6. Its length is computed.
type Extension struct {
	Proto uint8 // ProtoHopByHop, ProtoRouting or ProtoDestOpts
	// behind the length byte, zero-filled to a multiple of 8 (with Pad1, RFC 8200 section 4.2)
	Body []byte
}

// FieldValue is a header field that is set by hand, whatever it would be otherwise (layout.go).
// Checksums are computed over what is there then, unless they are set themselves.
type FieldValue struct {
	Word  string
	Value uint64
	// Wrong leaves Value aside: the computed checksum with bits turned over.
	Wrong bool
}

// Set sets what a word of the packet language says together with a number. Words that Spec has no
// member for are those of header fields.
func (s *Spec) Set(word string, v uint64) {
	switch word {
	case "proto":
		s.Proto = new(uint8(v))
	case "ether":
		s.SetEtherType(uint16(v))
	case "from port":
		s.FromPort = new(uint16(v))
	case "port":
		s.ToPort = new(uint16(v))
	case "len":
		s.Len = new(int(v))
	case "ttl":
		s.TTL = new(uint8(v))
	case "dscp":
		s.DSCP = uint8(v)
	case "vlan":
		s.VLAN = new(uint16(v))
	case "inner-vlan":
		s.InnerVLAN = new(uint16(v))
	case "frag":
		s.Frag = new(uint16(v))
	case "ether from":
		s.EtherFrom = MAC(v)
	case "ether to":
		s.EtherTo = MAC(v)
	default:
		s.Fields = append(s.Fields, FieldValue{Word: word, Value: v})
	}
}

// Defaults of docs/reference/language.md "Tests in a policy".
var (
	defaultFrom4   = netip.MustParseAddr("192.0.2.1")
	defaultTo4     = netip.MustParseAddr("198.51.100.1")
	defaultFrom6   = netip.MustParseAddr("2001:db8::1")
	defaultTo6     = netip.MustParseAddr("2001:db8:1::1")
	defaultSrcMAC  = [6]byte{0x02, 0, 0, 0, 0, 0x01}
	defaultDstMAC  = [6]byte{0x02, 0, 0, 0, 0, 0x02}
	errNoSuchField = errors.New("not a field of this packet")
)

const (
	defaultSrcPort = 40000
	defaultDstPort = 9
	defaultTTL     = 64
	maxPayload     = 0xffff
)

// SetEtherType makes s a packet of the family that the number stands for, or of no family that
// Build knows.
func (s *Spec) SetEtherType(v uint16) {
	switch v {
	case EtherIPv4:
		s.Family = IPv4
	case EtherIPv6:
		s.Family = IPv6
	case EtherARP:
		s.Family = ARP
	default:
		s.Family, s.EtherType = OtherFamily, v
	}
}

// MAC returns the Ethernet address of a number, the first octet highest.
func MAC(v uint64) *[6]byte {
	return &[6]byte{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8),
		byte(v)}
}

// Protocol returns the protocol that Build gives the packet: Proto if set, else TCP where flags,
// UDP where a port and ICMP or ICMPv6 where a type is given, else 253 (RFC 3692).
func (s Spec) Protocol() uint8 {
	switch {
	case s.Proto != nil:
		return *s.Proto
	case s.Flags != nil:
		return ProtoTCP
	case s.FromPort != nil || s.ToPort != nil:
		return ProtoUDP
	case s.Type != nil && s.family() == IPv6:
		return ProtoICMP6
	case s.Type != nil:
		return ProtoICMP
	}
	return ProtoTesting
}

// Resolved returns the family that Build gives the packet.
func (s Spec) Resolved() Family { return s.family() }

// family resolves AnyFamily by the addresses, then by a protocol that only IPv6 has.
func (s Spec) family() Family {
	if s.Family != AnyFamily {
		return s.Family
	}
	for _, a := range []netip.Addr{s.From, s.To} {
		if a.Is6() {
			return IPv6
		}
		if a.Is4() {
			return IPv4
		}
	}
	if s.Proto != nil && *s.Proto == ProtoICMP6 {
		return IPv6
	}
	return IPv4
}

// check refuses what no packet can be, before anything is laid out.
func (s Spec) check() error {
	switch {
	case s.DSCP > 63:
		return fmt.Errorf("dscp %d: at most 63", s.DSCP)
	case s.VLAN != nil && *s.VLAN > 4095:
		return fmt.Errorf("vlan %d: at most 4095", *s.VLAN)
	case s.InnerVLAN != nil && *s.InnerVLAN > 4095:
		return fmt.Errorf("inner-vlan %d: at most 4095", *s.InnerVLAN)
	case s.InnerVLAN != nil && s.VLAN == nil:
		return errors.New("inner-vlan without vlan: give the outer tag too")
	case s.Frag != nil && *s.Frag > 8191:
		return fmt.Errorf("frag %d: at most 8191 (units of 8 bytes)", *s.Frag)
	case s.Len != nil && *s.Len < 0:
		return fmt.Errorf("len %d: below 0", *s.Len)
	case len(s.Payload) > maxPayload:
		return fmt.Errorf("payload of %d bytes: at most %d", len(s.Payload), maxPayload)
	}
	switch s.family() {
	case IPv4, IPv6:
		return s.checkIP()
	case ARP:
		return s.checkARP()
	}
	return s.checkOther()
}

func (s Spec) checkIP() error {
	f, proto := s.family(), s.Protocol()
	for _, a := range []netip.Addr{s.From, s.To} {
		if a.IsValid() && a.Is4() != (f == IPv4) {
			return fmt.Errorf("address %s in an %s packet", a, f)
		}
	}
	switch {
	case (s.FromPort != nil || s.ToPort != nil) && !HasPorts(proto):
		return fmt.Errorf("port: %w: protocol %d has no ports", errNoSuchField, proto)
	case s.Flags != nil && proto != ProtoTCP:
		return fmt.Errorf("flags: %w: protocol %d is not TCP", errNoSuchField, proto)
	case s.Type != nil && !(proto == ProtoICMP && f == IPv4 || proto == ProtoICMP6 && f == IPv6):
		return fmt.Errorf("type: %w: it belongs to ICMP in IPv4 and ICMPv6 in IPv6", errNoSuchField)
	case len(s.IPOptions) > 0 && (f != IPv4 || len(s.IPOptions) > 40):
		return errors.New("ip-options: at most 40 bytes, of an ipv4 packet")
	case len(s.TCPOptions) > 0 && (proto != ProtoTCP || len(s.TCPOptions) > 40):
		return errors.New("TCP options: at most 40 bytes together, of a tcp packet")
	case len(s.TCPOptions) > 0 && s.Frag != nil && *s.Frag > 0:
		return errors.New("TCP options: a later fragment has no TCP header")
	case len(s.Extensions) > 0 && f != IPv6:
		return errors.New("extension headers belong to ipv6 packets")
	case f == IPv6 && isExtension(proto) && (s.Frag == nil || *s.Frag == 0):
		return fmt.Errorf("proto %d is an extension header of IPv6, which is never the last: use "+
			"`options` or `hex`", proto)
	}
	return nil
}

func (s Spec) checkARP() error {
	for _, a := range []netip.Addr{s.From, s.To} {
		if a.IsValid() && !a.Is4() {
			return fmt.Errorf("address %s in an arp packet: ARP asks for IPv4 addresses", a)
		}
	}
	return s.checkNoIP("an arp packet")
}

func (s Spec) checkOther() error {
	if s.From.IsValid() || s.To.IsValid() {
		return fmt.Errorf("address: %w: EtherType 0x%04x is built without one", errNoSuchField,
			s.EtherType)
	}
	switch s.EtherType {
	case EtherIPv4, EtherIPv6, EtherARP, EtherCTag, EtherSTag:
		return fmt.Errorf("ether 0x%04x: write ipv4, ipv6, arp or vlan", s.EtherType)
	}
	return s.checkNoIP(fmt.Sprintf("EtherType 0x%04x", s.EtherType))
}

func (s Spec) checkNoIP(what string) error {
	for _, f := range []struct {
		word  string
		given bool
	}{
		{"proto", s.Proto != nil}, {"from port", s.FromPort != nil}, {"to port", s.ToPort != nil},
		{"flags", s.Flags != nil}, {"type", s.Type != nil}, {"ttl", s.TTL != nil},
		{"dscp", s.DSCP != 0}, {"frag", s.Frag != nil}, {"options", s.Options},
		{"ip-options", len(s.IPOptions) > 0},
		{"TCP options", len(s.TCPOptions) > 0}, {"extension headers", len(s.Extensions) > 0},
	} {
		if f.given {
			return fmt.Errorf("%s: %w: %s is not IP", f.word, errNoSuchField, what)
		}
	}
	return nil
}

// isExtension says whether proto is an IPv6 header that the decoder walks through.
func isExtension(proto uint8) bool {
	switch proto {
	case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoAH, ProtoDestOpts, ProtoMobility:
		return true
	}
	return false
}
