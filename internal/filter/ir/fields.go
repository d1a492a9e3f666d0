package ir

import (
	"math"
	"slices"

	"levee/internal/lang/field"
)

// What the table of fields says, by field and class, so that nothing is worked out for each rule. A
// field that is in no row has nothing, and nothing may be done with questions for it.
var (
	compares [256]field.Compare
	lawsOf   [256]field.Laws
	aspectOf [256]aspects // what of a class decides what is asked there

	presentIn [field.NumFields][NumClasses]bool
	// domains are the values that numeric fields can have in each class; nil where the class lacks
	// the field.
	domains [field.NumFields][NumClasses][]field.Range
)

func init() {
	for f := range aspectOf {
		aspectOf[f] = byPorts | byTransport | byFragment
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		compares[f], lawsOf[f] = f.Info().Compare, f.Laws()
		for _, c := range Classes() {
			presentIn[f][c.Index()] = c.has(f.Info().Header)
			domains[f][c.Index()] = domain(f, c)
		}
		aspectOf[f] = findAspects(f)
	}
}

// has reports whether the packets of a class have a header; of tags no class tells.
func (c Class) has(h field.Header) bool {
	p := h.Presence()
	switch {
	case c.Family == NonIP:
		return p.NotIP
	case c.Family == IPv4 && !p.IPv4 || c.Family == IPv6 && !p.IPv6:
		return false
	}
	if c.Transport == Other {
		return p.Protos == nil || p.Others
	}
	return p.Protos == nil || slices.Contains(p.Protos, uint8(protoOf(c)))
}

// domain is one of domains. A field with one value costs nothing.
func domain(f field.Field, c Class) []field.Range {
	info := f.Info()
	if info.Compare != field.ByRange || !c.has(info.Header) {
		return nil
	}
	values := info.Values.Other
	switch c.Family {
	case IPv4:
		values = info.Values.IPv4
	case IPv6:
		values = info.Values.IPv6
	}
	if info.ByClass {
		return field.Intersect(values, byClass(f, c))
	}
	return values
}

// byClass returns the values of a field by which classes are told apart.
func byClass(f field.Field, c Class) []field.Range {
	switch {
	case f == field.Fragment && c.Fragment:
		return one(1)
	case f == field.Fragment:
		return one(0)
	case f != field.Proto: // nobody has said which: any, or its rules would go
		return span(0, math.MaxUint64)
	case c.Transport != Other:
		return one(protoOf(c))
	case c.Fragment: // a later fragment, whatever its protocol
		return span(0, 255)
	}
	rest := span(0, 255)
	for t := TCP; t < NumTransports; t++ {
		rest = field.Subtract(rest, one(protoOf(Class{c.Family, t, false})))
	}
	return rest
}

// findAspects compares what a field is in all classes of a family.
func findAspects(f field.Field) (a aspects) {
	switch compares[f] {
	case field.Unknown:
		return byPorts | byTransport | byFragment
	case field.ByPair: // lists are sorted out by protocol
		return byTransport
	}
	if f == field.Stream { // of fragments nobody knows
		a = byFragment
	}
	same := func(c, d Class) bool {
		i, k := c.Index(), d.Index()
		return presentIn[f][i] == presentIn[f][k] && sameRanges(domains[f][i], domains[f][k])
	}
	for _, c := range Classes()[1:] {
		whole := Class{c.Family, c.Transport, false}
		switch {
		case same(c, whole):
		case c.Transport == Other: // later fragments, of all protocols
			a |= byTransport
		default:
			a |= byFragment
		}
		for t := range NumTransports {
			switch d := (Class{c.Family, t, false}); {
			case same(whole, d):
			case hasPorts(whole) == hasPorts(d):
				a |= byTransport
			default:
				a |= byPorts
			}
		}
	}
	return a
}

// isEndpoint says whether a field is an address together with a protocol and a port.
func isEndpoint(f field.Field) bool {
	return compares[f] == field.ByPair && f.Info().Address != field.None
}

// Domain returns the values that a numeric field can have in a class, sorted and disjoint; nil
// where the class lacks the field.
func (c Class) Domain(f field.Field) []field.Range {
	if f >= field.NumFields {
		return nil
	}
	return domains[f][c.Index()]
}
