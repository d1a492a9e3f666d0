package ruletree

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
)

// The fields on which a tree cuts. An IPv6 address has two, its upper and its lower half, an IPv4
// address one.
const (
	src = iota
	dst
	port0
	port1
	srcLo
	dstLo
	numFields

	numFields4 = srcLo
)

// interval is inclusive.
type interval struct{ lo, hi uint64 }

func (i interval) contains(j interval) bool { return i.lo <= j.lo && j.hi <= i.hi }

// ruleSet holds the boxes of a table as the builder sees them: rules, which have numbers in the
// order of their results. It is without pointers: there may be millions, and the garbage collector
// need not look at them. All that is asked of a rule lies together, as the rules of a region are
// anywhere.
type ruleSet struct {
	width   int // of addresses, 32 or 128
	fields  int // of a rule
	bounds  []uint64
	results []uint32
}

func newRuleSet(width, n int) *ruleSet {
	s := &ruleSet{width: width, fields: numFields4}
	if width == 128 {
		s.fields = numFields
	}
	s.bounds = make([]uint64, 0, n*s.stride())
	s.results = make([]uint32, 0, n)
	return s
}

// stride returns how many words the bounds of a rule are.
func (s *ruleSet) stride() int { return 2 * s.fields }

func (s *ruleSet) len() int { return len(s.results) }

// of gives the bounds of a rule: the lowest and the highest value of its first field, of its
// second, and so on.
func (s *ruleSet) of(rule int32) []uint64 {
	return s.bounds[int(rule)*s.stride():][:s.stride()]
}

// field gives the bounds of a rule in a field.
func (s *ruleSet) field(rule int32, f int) interval {
	at := int(rule)*s.stride() + 2*f
	return interval{s.bounds[at], s.bounds[at+1]}
}

// result returns what a match answers; the lower wins.
func (s *ruleSet) result(rule int32) uint64 { return uint64(s.results[rule]) }

func (s *ruleSet) add(b *Box) {
	for _, i := range [numFields4]interval{
		upper(b.Src), upper(b.Dst),
		{uint64(b.Ports[0].Lo), uint64(b.Ports[0].Hi)},
		{uint64(b.Ports[1].Lo), uint64(b.Ports[1].Hi)},
	} {
		s.bounds = append(s.bounds, i.lo, i.hi)
	}
	if s.fields == numFields {
		from, to := lower(b.Src), lower(b.Dst)
		s.bounds = append(s.bounds, from.lo, from.hi, to.lo, to.hi)
	}
	s.results = append(s.results, b.Result)
}

// upper returns the range of a prefix in the address, or in its upper half.
func upper(p netip.Prefix) interval {
	if p.Addr().Is4() {
		a := p.Addr().As4()
		lo := uint64(binary.BigEndian.Uint32(a[:]))
		return interval{lo, lo | (1<<(32-p.Bits()) - 1)}
	}
	a := p.Addr().As16()
	lo := binary.BigEndian.Uint64(a[:8])
	if p.Bits() >= 64 {
		return interval{lo, lo}
	}
	return interval{lo, lo | (math.MaxUint64 >> p.Bits())}
}

// lower returns the range of a prefix in the lower half of an IPv6 address.
func lower(p netip.Prefix) interval {
	a := p.Addr().As16()
	lo := binary.BigEndian.Uint64(a[8:])
	return interval{lo, lo | uint64(math.MaxUint64)>>max(p.Bits()-64, 0)}
}

// wide reports whether cutting on an address would copy the rule into many branches: the prefix
// leaves so many bits of an IPv4 address open, or twice as many of an IPv6 address.
func (s *ruleSet) wide(rule int32, field, from int) bool {
	i := s.field(rule, field)
	open := bits.Len64(i.hi - i.lo)
	if s.width == 32 {
		return open >= from
	}
	return open >= 2*from
}

// covers reports whether the rule matches every packet that can come to the region.
func (s *ruleSet) covers(rule int32, g *region) bool {
	b := s.of(rule)
	for f := range s.fields {
		if b[2*f] > g.hull[f].lo || g.hull[f].hi > b[2*f+1] {
			return false
		}
	}
	return true
}

// distinct gives the rules without those that are equal to an earlier one, which can never match.
func (s *ruleSet) distinct() []int32 {
	list := make([]int32, 0, s.len())
	seen := newIndex(s.len())
	for rule := range int32(s.len()) {
		bounds := s.of(rule)
		hash := hashOf(bounds)
		_, at, ok := seen.find(hash,
			func(n uint32) bool { return slices.Equal(s.of(int32(n)), bounds) })
		if !ok {
			seen.put(at, hash, uint32(rule))
			list = append(list, rule)
		}
	}
	return list
}
