package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
)

// Element is one element of a set, or one entry of a dynamic one. In a set of addresses Service is
// the zero value, in a set of services Prefix is; an endpoint has both. Of a set of names it has
// Name alone.
type Element struct {
	Prefix  netip.Prefix // masked
	Service Service
	Name    string // a name or a wildcard, as dnsname.Pattern.String writes it
}

// Service is a protocol with a range of ports; of a protocol without ports, the whole range. The
// zero value is no service.
type Service struct {
	Proto  uint8
	Lo, Hi uint16
}

// LastPort is the range of a protocol that is given alone.
const LastPort = 0xffff

// AnyPort says whether the service is its protocol alone.
func (s Service) AnyPort() bool { return s.Lo == 0 && s.Hi == LastPort }

// HasPorts says whether the packets of a protocol have ports: TCP, UDP, UDP-Lite, SCTP and DCCP.
func HasPorts(proto uint8) bool {
	switch proto {
	case 6, 17, 136, 132, 33:
		return true
	}
	return false
}

// String returns the element as it stands in a set file: an address or a prefix, a service, or
// both.
func (e Element) String() string {
	switch {
	case e.Name != "":
		return e.Name
	case !e.Prefix.IsValid():
		return e.Service.String()
	case e.Service == Service{}:
		return prefixText(e.Prefix)
	case e.Service.AnyPort():
		return prefixText(e.Prefix) + " " + e.Service.protocol()
	}
	return prefixText(e.Prefix) + " " + e.Service.String()
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// String returns the service as the language has it: "tcp/80", "udp/1000-2000", "gre".
func (s Service) String() string {
	switch {
	case !HasPorts(s.Proto):
		return s.protocol()
	case s.Lo == s.Hi:
		return fmt.Sprintf("%s/%d", s.protocol(), s.Lo)
	}
	return fmt.Sprintf("%s/%d-%d", s.protocol(), s.Lo, s.Hi)
}

// protocol returns the name of the protocol, or its number.
func (s Service) protocol() string {
	for _, n := range field.Proto.Info().Names {
		if n.Lo == uint64(s.Proto) {
			return n.Word
		}
	}
	return fmt.Sprint(s.Proto)
}

// Holds says whether a packet of that protocol and port, 0 where there is none, is of the service.
func (s Service) Holds(proto uint8, port uint16) bool {
	return s.Proto == proto && s.Lo <= port && port <= s.Hi
}

// Joins tells whether a service t that does not begin before s is of its protocol and overlaps or
// touches its ports.
func (s Service) Joins(t Service) bool { return s.Proto == t.Proto && int(t.Lo) <= int(s.Hi)+1 }

// order returns a number that orders services by protocol and ports.
func (s Service) order() uint64 { return uint64(s.Proto)<<32 | uint64(s.Lo)<<16 | uint64(s.Hi) }

// Check says what keeps an element from being an entry of a dynamic set of a type.
func (e Element) Check(t SetType) error {
	got := Addresses
	switch {
	case e.Name != "":
		got = Names
	case e.Service == Service{}:
	case e.Prefix.IsValid():
		got = Endpoints
	default:
		got = Services
	}
	switch {
	case got == Addresses && !e.Prefix.IsValid():
		return errors.New("not a prefix")
	case got != t:
		return fmt.Errorf("%s is %s, and the set is of %s; %s", e, got.One(), t.String(),
			strings.TrimSuffix(EntryHint(t), "."))
	case got == Names:
		return e.checkName()
	case got != Services && e.Prefix.Addr().Is4In6():
		return fmt.Errorf("%s is an IPv4-mapped IPv6 address; write the IPv4 form", e.Prefix)
	case got != Services && e.Prefix != e.Prefix.Masked():
		return fmt.Errorf("%s has host bits set; did you mean %s?", e.Prefix, e.Prefix.Masked())
	case got == Services && !HasPorts(e.Service.Proto), got != Addresses &&
		e.Service.Lo > e.Service.Hi:
		return fmt.Errorf("%s is not a service", e.Service)
	case got == Endpoints && !HasPorts(e.Service.Proto) &&
		(e.Service.Lo != 0 || e.Service.Hi != LastPort):
		return fmt.Errorf("%s: the protocol has no ports", e.Service)
	}
	return nil
}

// checkName says what keeps a name from being an entry.
func (e Element) checkName() error {
	p, err := dnsname.Parse(e.Name)
	switch {
	case err != nil:
		return fmt.Errorf("%s; %s", err.Message, strings.TrimSuffix(err.Hint, "."))
	case p.Below && p.Name.Labels() == dnsname.MaxLabels:
		return fmt.Errorf("%s: no name has more than %d labels", e.Name, dnsname.MaxLabels)
	case p.String() != e.Name:
		return fmt.Errorf("%s is not written as it is stored; did you mean %s?", e.Name, p)
	}
	return nil
}

// Blocks returns the elements that stand for e with ports that are blocks as prefixes are blocks of
// addresses: the fewest that cover its range, at most 30. A prefix, and what is a block already,
// stays as it is.
func (e Element) Blocks() []Element {
	if e.Service.Lo == 0 && e.Service.Hi == LastPort || e.Service == (Service{}) {
		return []Element{e}
	}
	var out []Element
	for lo, hi := uint32(e.Service.Lo), uint32(e.Service.Hi); lo <= hi; {
		n := min(bits.TrailingZeros32(lo|1<<16), bits.Len32(hi-lo+1)-1)
		last := lo + 1<<n - 1
		out = append(out, Element{Prefix: e.Prefix,
			Service: Service{e.Service.Proto, uint16(lo), uint16(last)}})
		lo = last + 1
	}
	return out
}

// Compare orders services by protocol and ports.
func (s Service) Compare(t Service) int { return cmp.Compare(s.order(), t.order()) }

// EntryHint says how an entry of a type is written.
func EntryHint(t SetType) string {
	switch t {
	case Services:
		return "write a service such as tcp/443."
	case Endpoints:
		return "write an address and a service: 192.0.2.10 tcp/443."
	case Names:
		return "write a name such as example.com, or *.example.com for all below it."
	}
	return "write 192.0.2.1, 192.0.2.0/24, 192.0.2.1-192.0.2.9 or 2001:db8::/32."
}
