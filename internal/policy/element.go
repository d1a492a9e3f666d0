package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/syntax"
)

// Element is one element of a set, or one entry of a dynamic one. In a set of addresses Service is the zero value,
// in a set of services Prefix is; an endpoint has both.
type Element struct {
	Prefix  netip.Prefix // masked
	Service Service
}

// Service is a protocol with a range of ports; of a protocol without ports, the whole range. The zero value is no service.
type Service struct {
	Proto  uint8
	Lo, Hi uint16
}

// anyPort is the range of a protocol that is given alone.
const anyPort = 0xffff

// HasPorts says whether the packets of a protocol have ports: TCP, UDP, UDP-Lite, SCTP and DCCP.
func HasPorts(proto uint8) bool {
	for _, p := range portProtos {
		if p == proto {
			return true
		}
	}
	return false
}

// String is the element as it stands in a set file: an address or a prefix, a service, or both.
func (e Element) String() string {
	switch {
	case !e.Prefix.IsValid():
		return e.Service.String()
	case e.Service == Service{}:
		return prefixText(e.Prefix)
	}
	return prefixText(e.Prefix) + " " + e.Service.String()
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// String is the service as the language has it: "tcp/80", "udp/1000-2000", "gre". All ports are the protocol alone.
func (s Service) String() string {
	name := fmt.Sprint(s.Proto)
	for n, v := range protocols {
		if v == s.Proto {
			name = n
		}
	}
	switch {
	case s.Lo == 0 && s.Hi == anyPort:
		return name
	case s.Lo == s.Hi:
		return fmt.Sprintf("%s/%d", name, s.Lo)
	}
	return fmt.Sprintf("%s/%d-%d", name, s.Lo, s.Hi)
}

// Holds says whether a packet of that protocol and port, 0 where there is none, is of the service.
func (s Service) Holds(proto uint8, port uint16) bool {
	return s.Proto == proto && s.Lo <= port && port <= s.Hi
}

// parseEndpoint reads "192.0.2.0/24 tcp/443" and appends its elements, one for each prefix that a range takes, to dst.
func parseEndpoint(dst []Element, text string) ([]Element, problem) {
	where, what, _ := strings.Cut(text, " ")
	prefixes, p := parseAddresses(nil, where)
	if p.found() {
		return dst, p
	}
	service, p := parseProtocolOrService(what)
	if p.found() {
		return dst, p
	}
	for _, pfx := range prefixes {
		dst = append(dst, Element{pfx, service})
	}
	return dst, problem{}
}

// parseProtocolOrService reads "tcp/443", or a protocol by its name, which is any port where there are any.
func parseProtocolOrService(text string) (Service, problem) {
	if strings.Contains(text, "/") {
		return parseService(text)
	}
	if n, ok := protocols[text]; ok {
		return Service{n, 0, anyPort}, problem{}
	}
	hint := "write a service such as tcp/443, or a protocol such as gre."
	if r, p := portNumber.element(text); !p.found() {
		hint = fmt.Sprintf("write the protocol before the port: tcp/%s.", text)
		if r.Lo == r.Hi && r.Hi < 256 {
			hint += " A protocol is given by its name."
		}
	} else if v, known := wellKnown[strings.ToLower(text)]; known {
		hint = fmt.Sprintf("write the number: tcp/%d.", v)
	} else if m := syntax.Nearest(text, sorted(protocolNames())); m != "" {
		hint = didYouMean(m)
	}
	return Service{}, problemf(hint, "%q is not a service", short(text))
}

func protocolNames() (names []string) {
	for n := range protocols {
		names = append(names, n)
	}
	return names
}

// mergeEndpoints sorts endpoints by protocol, ports and prefix and joins those that one can stand for. Some that others cover
// together may be left.
func mergeEndpoints(all []Element) []Element {
	all = mergePorts(all)
	slices.SortFunc(all, func(a, b Element) int {
		return cmp.Or(compareServices(a.Service, b.Service), comparePrefixes(a.Prefix, b.Prefix))
	})
	out := all[:0:0]
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Service == all[0].Service {
			n++
		}
		prefixes := make([]netip.Prefix, n)
		for i := range prefixes {
			prefixes[i] = all[i].Prefix
		}
		for _, p := range mergePrefixes(prefixes) {
			out = append(out, Element{p, all[0].Service})
		}
		all = all[n:]
	}
	return out
}

// mergePorts joins the ports of one prefix and protocol.
func mergePorts(all []Element) []Element {
	slices.SortFunc(all, func(a, b Element) int {
		return cmp.Or(comparePrefixes(a.Prefix, b.Prefix), compareServices(a.Service, b.Service))
	})
	var out []Element
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Prefix == all[0].Prefix {
			n++
		}
		services := make([]Service, n)
		for i := range services {
			services[i] = all[i].Service
		}
		for _, s := range mergeServices(services) {
			out = append(out, Element{all[0].Prefix, s})
		}
		all = all[n:]
	}
	return out
}

func compareServices(a, b Service) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.Hi, b.Hi))
}
