package literal

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Endpoint reads "192.0.2.0/24 tcp/443" and appends its elements, one for each prefix that a
// range takes, to dst.
func Endpoint(dst []policy.Element, text string) ([]policy.Element, diag.Problem) {
	where, what, _ := strings.Cut(text, " ")
	var few [4]netip.Prefix
	prefixes, p := Addresses(few[:0], where)
	if p.Found() {
		return dst, p
	}
	service, p := parseProtocolOrService(what)
	if p.Found() {
		return dst, p
	}
	for _, pfx := range prefixes {
		dst = append(dst, policy.Element{Prefix: pfx, Service: service})
	}
	return dst, diag.Problem{}
}

// parseProtocolOrService reads "tcp/443", or a protocol by its name, which is any port where there
// are any.
func parseProtocolOrService(text string) (policy.Service, diag.Problem) {
	if strings.Contains(text, "/") {
		return Service(text)
	}
	if n, ok := Protocol(text); ok {
		return policy.Service{Proto: n, Hi: policy.LastPort}, diag.Problem{}
	}
	hint := "write a service such as tcp/443, or a protocol such as gre."
	if r, p := portNumber.Element(text); !p.Found() {
		hint = fmt.Sprintf("write the protocol before the port: tcp/%s.", text)
		if r.Lo == r.Hi && r.Hi < 256 {
			hint += " A protocol is given by its name."
		}
	} else if v, known := WellKnown[strings.ToLower(text)]; known {
		hint = fmt.Sprintf("write the number: tcp/%d.", v)
	} else if m := diag.Nearest(text, slices.Sorted(slices.Values(namesOf(field.Proto)))); m != "" {
		hint = diag.DidYouMean(m)
	}
	return policy.Service{}, diag.Problemf(hint, "%q is not a service", diag.Clip(text))
}

// mergeEndpoints sorts endpoints by protocol, ports and prefix and joins those that one can stand
// for, in place. Some that others cover together may be left.
func mergeEndpoints(all []policy.Element) []policy.Element {
	all = mergePorts(all)
	slices.SortFunc(all, func(a, b policy.Element) int {
		if c := a.Service.Compare(b.Service); c != 0 {
			return c
		}
		return comparePrefixes(a.Prefix, b.Prefix)
	})
	out, first := all[:0], 0 // of the same service
	for _, e := range all {
		if n := len(out); n > 0 && out[n-1].Service != e.Service {
			first = n
		}
		// sorted: then it holds it
		if n := len(out); n > first && out[n-1].Prefix.Overlaps(e.Prefix) {
			continue
		}
		for len(out) > first {
			parent, ok := joined(out[len(out)-1].Prefix, e.Prefix)
			if !ok {
				break
			}
			e.Prefix, out = parent, out[:len(out)-1]
		}
		out = append(out, e)
	}
	return out
}

// mergePorts joins the ports of one prefix and protocol, in place.
func mergePorts(all []policy.Element) []policy.Element {
	slices.SortFunc(all, func(a, b policy.Element) int {
		if c := comparePrefixes(a.Prefix, b.Prefix); c != 0 {
			return c
		}
		return a.Service.Compare(b.Service)
	})
	out := all[:0]
	for _, e := range all {
		if n := len(out); n > 0 && out[n-1].Prefix == e.Prefix &&
			out[n-1].Service.Joins(e.Service) {
			out[n-1].Service.Hi = max(out[n-1].Service.Hi, e.Service.Hi)
			continue
		}
		out = append(out, e)
	}
	return out
}
