package importer

// limit is a condition on how many packets came before. Where a limit of a policy says the same, it
// becomes one (carriesRate). Else the policy judges as the source does while the traffic stays
// below all limits. So what holds up to a limit holds always, and what holds above one never does.
type limit uint8

const (
	noLimit limit = iota
	upTo          // holds up to a rate or number
	above         // holds above it
)

// limited remembers a limit and its reason.
func (p *ruleReader) limited(l limit, what, instead string) {
	if l == above || p.r.limit == noLimit {
		p.r.limit = l
	}
	for _, u := range p.r.limits {
		if u.what == what {
			return
		}
	}
	p.r.limits = append(p.r.limits, reason{what, instead})
}

const withoutLimit = "; the rule stands without the limit, for any number of packets"

// carryLimit decides what becomes of a rule with a limit, once its verb and target are known. No
// limit becomes a drop: a rule that drops, or leads to one, is left out with its limit.
func (r *chainRule) carryLimit() {
	if r.limit == noLimit || r.verb == doNothing || r.verb == doLog || r.rated ||
		len(r.alts) == 0 { // no packet has it
		return
	}
	goesOn := r.limit == upTo && (r.verb == doAccept || r.verb == doReturn ||
		(r.verb == doJump || r.verb == doGoto) && !drops(r.target, map[*chain]bool{}))
	if goesOn && len(r.unknown) > 0 { // it is left out
		return
	}
	for _, l := range r.limits {
		if goesOn {
			r.widen(l.what+withoutLimit,
				l.instead, r.alts)
		} else {
			r.unknown = append(r.unknown, l)
		}
	}
}

// drops tells whether a rule of the chain, or of one that it leads to, may drop.
func drops(c *chain, seen map[*chain]bool) bool {
	if c == nil || seen[c] {
		return false
	}
	seen[c] = true
	for _, r := range c.rules {
		if r.verb == doDrop || drops(r.target, seen) {
			return true
		}
	}
	return false
}
