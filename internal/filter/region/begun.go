package region

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// begun is what a rule of the other side asks of the packets that it passes, so that a connection
// may begin with one: addresses and ports as a packet of this side has them.
type begun struct {
	src, dst netip.Prefix // invalid: any
	from, to uint64       // ports; 0: any
	words    string       // of the packet before: its length, and who sends it
}

// mostBegun bounds the rules of a policy by which connections begin in examples.
const mostBegun = 16

// beginnings returns what the rules of the other side pass, for packets of a class.
func beginnings(c ir.Class, of []*policy.Policy) (all []begun) {
	for _, p := range of {
		other := p.Whole()
		if !p.Leaves() {
			if other = other.Leaving(); other == nil {
				continue
			}
		}
		n := 0
		for _, r := range other.Rules {
			if b, ok := beginning(c, r); ok && n < mostBegun && !slices.Contains(all, b) {
				all = append(all, b)
				n++
			}
		}
	}
	return all
}

// beginning returns what a rule passes; false if it passes nothing, or only what is known.
func beginning(c ir.Class, r *policy.Rule) (b begun, ok bool) {
	if r.Action != action.Pass && r.Action != action.Protect {
		return b, false
	}
	for i := range r.Match {
		t := &r.Match[i]
		if t.Not {
			continue
		}
		switch f := t.Field; {
		case f == field.Flow:
			return b, false
		case f == field.SrcAddr:
			b.dst = prefixOf(c, t)
		case f == field.DstAddr:
			b.src = prefixOf(c, t)
		case f == field.SrcPort && len(t.Ranges) > 0:
			b.to = t.Ranges[0].Lo
		case f == field.DstPort && len(t.Ranges) > 0:
			b.from = t.Ranges[0].Lo
		case f == field.Len && len(t.Ranges) > 0:
			b.words += fmt.Sprintf(" len %d", max(t.Ranges[0].Lo, min(t.Ranges[0].Hi, 100)))
		case len(t.Senders) > 0:
			b.words += fmt.Sprintf(" %s %q", f.Word(), t.Senders[0])
		case f == field.UID || f == field.GID:
			b.words += fmt.Sprintf(" %s %d", f.Word(), t.Ranges[0].Lo)
		}
	}
	return b, b != begun{}
}

// prefixOf returns a prefix of the class's family among those that a term asks for.
func prefixOf(c ir.Class, t *policy.Term) netip.Prefix {
	all := t.Prefixes
	if t.Set != nil && t.Set.Kind != policy.Dynamic {
		all = t.Set.Prefixes
	}
	for _, p := range all {
		if p.Addr().Is6() == (c.Family == ir.IPv6) {
			return p
		}
	}
	return netip.Prefix{}
}
