package importer

const (
	LimitHint = "`limit` does that in a policy of levee's own"
	CountHint = "a policy has no word for that: `limit` is about rates"
)

// Limit is a condition on how many packets came before. Where a limit of a policy says the same, it
// becomes one (carriesRate). Else the policy judges as the source does while the traffic stays
// below all limits. So what holds up to a limit holds always, and what holds above one never does.
type Limit uint8

const (
	NoLimit Limit = iota
	UpTo          // holds up to a rate or number
	Above         // holds above it
)

// Limited remembers a limit and its reason.
func (p *RuleReader) Limited(l Limit, what, instead string) {
	if l == Above || p.Rule.Limit == NoLimit {
		p.Rule.Limit = l
	}
	for _, u := range p.Rule.Limits {
		if u.What == what {
			return
		}
	}
	p.Rule.Limits = append(p.Rule.Limits, Reason{what, instead})
}

const withoutLimit = "; the rule stands without the limit, for any number of packets"

// carryLimit decides what becomes of a rule with a limit, once its verb and target are known. No
// limit becomes a drop: a rule that drops, or leads to one, is left out with its limit.
func (r *ChainRule) carryLimit() {
	if r.Limit == NoLimit || r.Verb == DoNothing || r.Verb == doLog || r.rated ||
		len(r.Alts) == 0 { // no packet has it
		return
	}
	goesOn := r.Limit == UpTo && (r.Verb == DoAccept || r.Verb == DoReturn ||
		(r.Verb == DoJump || r.Verb == DoGoto) && !drops(r.Target, map[*Chain]bool{}))
	if goesOn && len(r.Unknown) > 0 { // it is left out
		return
	}
	for _, l := range r.Limits {
		if goesOn {
			r.Widen(l.What+withoutLimit,
				l.Instead, r.Alts)
		} else {
			r.Unknown = append(r.Unknown, l)
		}
	}
}

// drops tells whether a rule of the chain, or of one that it leads to, may drop.
func drops(c *Chain, seen map[*Chain]bool) bool {
	if c == nil || seen[c] {
		return false
	}
	seen[c] = true
	for _, r := range c.Rules {
		if r.Verb == DoDrop || drops(r.Target, seen) {
			return true
		}
	}
	return false
}
