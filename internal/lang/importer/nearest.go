package importer

import (
	"levee/internal/lang/importer/match"
)

// nearest returns what a policy can say instead of a rule that passes something unknown, as
// statements without labels: the rule without what is unknown. It is never written as a rule. For a
// rule that drops there is nothing near: without its condition it would drop what was meant to
// pass. Nor is there for a rule that asks for nothing else and stands where all packets of base
// chain base come: that would be to pass everything. In a chain that only some packets are sent to,
// or come back from, it is about these.
func (fl *flattener) nearest(r *ChainRule, c *match.Match, base int) (out []string) {
	all := fl.bases[base].Family
	if r.Verb != DoAccept {
		return nil
	}
	for i := range r.Alts {
		m := c.And(&r.Alts[i])
		if m.Never || !c.Compatible(&r.Alts[i]) || m.Terms() > match.MaxTerms {
			continue
		}
		if m.Equal(c) && m.Equal(&all) { // of all packets: no help
			continue
		}
		if out = append(out, "pass"+m.Text()); len(out) == 16 {
			break
		}
	}
	return out
}
