package literal

import (
	"net/netip"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Elements are those of a list or a file, of one type.
type Elements struct {
	Prefixes  []netip.Prefix
	Ports     []field.Range
	Services  []policy.Service
	Endpoints []policy.Element
	Names     []dnsname.Pattern
	spans     []span // ranges of addresses that are not prefixes yet: see spread
	apart     bool   // ranges become prefixes at once: each is an entry of its own
}

// Reset empties the lists; their memory is used again.
func (l *Elements) Reset() {
	l.Prefixes, l.Ports, l.Services, l.Endpoints = l.Prefixes[:0], l.Ports[:0], l.Services[:0],
		l.Endpoints[:0]
	l.spans, l.Names = l.spans[:0], l.Names[:0]
}

// Size returns how many elements there are; a range of addresses counts as one until Merge.
func (l *Elements) Size() int {
	return len(l.Prefixes) + len(l.Ports) + len(l.Services) + len(l.Endpoints) + len(l.spans) +
		len(l.Names)
}

// Merge sorts the elements and joins those that one can stand for, in place. It returns how many
// are left; of more than MaxElements it makes none.
func (l *Elements) Merge() int {
	if len(l.spans) > 0 {
		return l.spread()
	}
	l.Prefixes = MergePrefixes(l.Prefixes)
	l.Ports = field.Join(l.Ports)
	l.Services = mergeServices(l.Services)
	l.Endpoints = mergeEndpoints(l.Endpoints)
	l.Names = dnsname.Merge(l.Names)
	return l.Size()
}

// Parse reads one element of a type; a range of addresses is kept as one, or becomes several where
// ranges are apart.
func (l *Elements) Parse(t policy.SetType, text string) (p diag.Problem) {
	if !l.apart && (t == policy.Addresses || t == policy.Endpoints) {
		parse := parseSpan
		if t == policy.Endpoints {
			parse = parseEndpointSpan
		}
		if s, ok, p := parse(text); ok {
			if !p.Found() {
				l.spans = append(l.spans, s)
			}
			return p
		}
	}
	switch t {
	case policy.Addresses:
		l.Prefixes, p = Addresses(l.Prefixes, text)
	case policy.Ports:
		var rg field.Range
		rg, p = portNumber.Element(text)
		l.Ports = append(l.Ports, rg)
	case policy.Services:
		var s policy.Service
		s, p = Service(text)
		l.Services = append(l.Services, s)
	case policy.Endpoints:
		l.Endpoints, p = Endpoint(l.Endpoints, text)
	case policy.Names:
		var n dnsname.Pattern
		if n, p = Name(text); !p.Found() {
			l.Names = append(l.Names, n)
		}
	}
	return p
}

// LooksLike tells by its look what an element is meant to be.
func LooksLike(text string) policy.SetType {
	const digit, minus, slash, dot, other = 1, 2, 4, 8, 16
	if ast.IsQuoted(text) {
		return policy.Names
	}
	seen := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			seen |= digit
		case c == '-':
			seen |= minus
		case c == '/':
			seen |= slash
		case c == '.' || c == ':':
			seen |= dot
		case c == ' ':
			return policy.Endpoints
		default:
			seen |= other
		}
	}
	switch {
	case seen&slash != 0 && seen&dot == 0:
		if head, rest, _ := strings.Cut(text, "/"); !AllDigits(head) || !AllDigits(rest) {
			return policy.Services
		}
	case seen&^(digit|minus) == 0:
		return policy.Ports
	}
	return policy.Addresses
}
