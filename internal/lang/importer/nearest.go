package importer

// nearest is what a policy can say instead of a rule that passes something unknown, as statements
// without labels: the rule without what is unknown. It is never written as a rule. For a rule that
// drops there is nothing near: without its condition it would drop what was meant to pass. Nor is
// there for a rule that asks for nothing else and stands where all packets of base chain base come:
// that would be to pass everything. In a chain that only some packets are sent to, or come back
// from, it is about these.
func (fl *flattener) nearest(r *chainRule, c *match, base int) (out []string) {
	all := fl.bases[base].family
	if r.verb != doAccept {
		return nil
	}
	for i := range r.alts {
		m := c.and(&r.alts[i])
		if m.never || !c.compatible(&r.alts[i]) || m.terms() > maxTerms {
			continue
		}
		if m.equal(c) && m.equal(&all) { // of all packets: no help
			continue
		}
		if out = append(out, "pass"+m.text()); len(out) == 16 {
			break
		}
	}
	return out
}
