package importer

import "slices"

// nearest is what a policy can say instead of a rule that passes something unknown, as statements
// without labels: the rule without what is unknown, or the stateless form of a rule about
// connections. It is never written as a rule unless the user asked for it. For a rule that drops
// there is nothing near: without its limit or state it would drop what was meant to pass. Nor is
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
		// flags and a protocol may come
		if m.never || !c.compatible(&r.alts[i]) || m.terms() > maxTerms-2 {
			continue
		}
		switch {
		case m.equal(c) && m.equal(&all) &&
			!slices.Contains(r.states, "ESTABLISHED"): // of all packets: no help
		case len(r.states) == 0, slices.Contains(r.states, "NEW"):
			out = append(out, "pass"+m.text())
		default:
			out = append(out, established(r.states, m)...)
		}
		if len(out) > 16 {
			return out[:16]
		}
	}
	return out
}

// established are the packets that firewalls without states have always taken for those of a
// connection that was let through: TCP with ACK or RST, answers to DNS and NTP, answers to pings
// and the errors of ICMP. Whoever forges these bits passes.
func established(states []string, m match) (out []string) {
	add := func(x match) {
		if x = x.and(&match{}); !x.never {
			out = append(out, "pass"+x.text())
		}
	}
	tcp := m.with(fProto, just(6))
	if slices.Contains(states, "ESTABLISHED") {
		add(tcp.withFlags(flagMatch{0x10, 0x10}))
		add(tcp.withFlags(flagMatch{0x04, 0x04}))
		add(m.with(fProto, just(17)).with(fFromPort,
			spans{{Lo: 53, Hi: 53}, {Lo: 123, Hi: 123}}).with(fPort, between(1024, 65535)))
		add(m.with(fICMP, between(0, 0xff)))
		add(m.with(fICMP6, between(129<<8, 129<<8|0xff)))
	}
	if slices.Contains(states, "RELATED") {
		add(m.with(fICMP, spans{{Lo: 3 << 8, Hi: 3<<8 | 0xff}, {Lo: 11 << 8, Hi: 12<<8 | 0xff}}))
		add(m.with(fICMP6, between(1<<8, 4<<8|0xff)))
	}
	return out
}
