package signature

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/field"
)

// lengths are the prefix lengths that rules are made of, by family.
var lengths = [2][]int{{32, 28, 26, 24, 22, 20, 16, 12, 8}, {128, 64, 56, 48, 40, 32}}

// prefixes makes terms of addresses: the prefixes that many packets share, and lists of single
// addresses where a few are most of the group.
func (g *group) prefixes(ph *field.Phrase) {
	for family, bits := range lengths {
		var addrs []netip.Addr
		for _, at := range g.inFlood {
			a := addressOf(&g.flood.packets[at], ph.Field)
			if a.IsValid() && a.Is6() == (family == 1) {
				addrs = append(addrs, a)
			}
		}
		if len(addrs) == 0 || float64(len(addrs)) < fewest*float64(len(g.inFlood)) {
			continue
		}
		g.shared(ph, addrs, bits)
	}
}

func (g *group) shared(ph *field.Phrase, addrs []netip.Addr, lengths []int) {
	var kept []counted[netip.Prefix]
	walking := slides(ordered(addrs))
	for i, bits := range lengths {
		all := make([]netip.Prefix, len(addrs))
		for i, a := range addrs {
			all[i], _ = a.Prefix(bits)
		}
		most := frequent(all, fewest)
		slices.SortFunc(most, func(a, b counted[netip.Prefix]) int {
			return cmp.Or(b.n-a.n, a.value.Addr().Compare(b.value.Addr()))
		})
		if i == 0 {
			g.addresses(ph, addrs)
			if walking {
				return
			}
		}
		for _, c := range most[:min(3, len(most))] {
			p := c.value
			longer := slices.ContainsFunc(kept, func(k counted[netip.Prefix]) bool {
				return p.Overlaps(k.value) && float64(k.n) >= 0.98*float64(c.n)
			})
			if longer {
				continue
			}
			kept = append(kept, c)
			text := p.String()
			if p.IsSingleIP() {
				text = p.Addr().String()
			}
			g.add(ph.Field, false, 1, 1/float64(uint64(1)<<min(p.Bits(), 40)), "%s %s", ph.Word,
				text)
		}
	}
}

// ordered are numbers in the order of addresses.
func ordered(addrs []netip.Addr) (out []uint64) {
	for _, a := range addrs {
		b := a.As16()
		at := 8 // of IPv4 the last four bytes say all
		if a.Is6() {
			at = 0
		}
		out = append(out, binary.BigEndian.Uint64(b[at:]))
	}
	return out
}

// addresses makes the list of the fewest addresses that most of the group has.
func (g *group) addresses(ph *field.Phrase, addrs []netip.Addr) {
	var texts []string
	for _, a := range nearlyAll(addrs, 2, listed, core, func(a, b netip.Addr) int {
		return strings.Compare(a.String(), b.String())
	}) {
		texts = append(texts, a.String())
	}
	if n := len(texts); n > 0 {
		g.add(ph.Field, false, n, 1.0/65536, "%s { %s }", ph.Word, strings.Join(texts, ", "))
	}
}
