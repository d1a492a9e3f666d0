package craft

import (
	"net/netip"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// inside chooses values for which terms hold. As it counts up it walks the alternatives of each
// term, so that packets made with different numbers differ.
type inside int

func (c inside) Index(n int) int { return int(c) % n }

// Number walks the lower ends of the ranges, then their upper ends.
func (c inside) Number(ranges []field.Range) uint64 {
	r := ranges[c.Index(len(ranges))]
	if int(c)/len(ranges)%2 == 1 {
		return r.Hi
	}
	return r.Lo
}

// Prefix returns the first prefix of the family from an alternative on. Large sets are not copied.
func (c inside) Prefix(all []netip.Prefix, f packet.Family) (netip.Prefix, bool) {
	for i := range all {
		p := all[(i+c.Index(len(all)))%len(all)]
		if p.Addr().Is4() == (f == packet.IPv4) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// Address is not the first of a prefix where there is another.
func (c inside) Address(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Addr().Next()
}

func (c inside) Flags(value, _ uint8) uint8 { return value }

func (c inside) Entries(s *policy.Set) []policy.Element { return Entries(s) }

// What dynamic sets hold for packets that reach each slot.
var (
	entry4       = netip.MustParsePrefix("203.0.113.77/32")
	entry6       = netip.MustParsePrefix("2001:db8:77::77/128")
	entryService = policy.Service{Proto: packet.ProtoTCP, Lo: 7777, Hi: 7777}
)

const entryName = "*.entry.example"

// Entries returns what a dynamic set has to hold when a packet of ForSlots is judged: an entry of
// each family, as far as the set has room, or a name.
func Entries(s *policy.Set) []policy.Element {
	var all []policy.Element
	switch s.Type {
	case policy.Addresses:
		all = []policy.Element{{Prefix: entry4}, {Prefix: entry6}}
	case policy.Services:
		all = []policy.Element{{Service: entryService}}
	case policy.Endpoints:
		all = []policy.Element{
			{Prefix: entry4, Service: entryService}, {Prefix: entry6, Service: entryService},
		}
	case policy.Names:
		all = []policy.Element{{Name: entryName}}
	}
	return all[:min(len(all), s.Max)]
}
