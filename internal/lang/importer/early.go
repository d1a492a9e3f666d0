package importer

import (
	"slices"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// Early are the base chains at the hook input with those in front that drop something, of chains in
// the order in which packets meet them. What one accepts goes on to the next, as at the end of the
// chain. tracked tells whether connections are looked up before a chain, and rewritten whether nat
// rewrites destinations behind it.
//
// Left away is a chain of which a copy of all that follows would be needed, as for an accept by
// several fields, and one that asks for what is not known there. Where nat rewrites destinations
// behind one, no chain that it jumps to may return packets: that would need such a copy, too.
func Early(chains, input []*Chain, rewritten, tracked func(*Chain) bool) []*Chain {
	out := slices.Clone(input)
	for i := len(chains) - 1; i >= 0; i-- {
		c := chains[i]
		if !c.mayDrop() || slices.ContainsFunc(Reached(c), func(of *Chain) bool {
			return slices.ContainsFunc(of.Rules, func(r *ChainRule) bool {
				return r.AtInput || r.States != nil && !tracked(c) || r.asksSent() && rewritten(c)
			})
		}) {
			continue
		}
		behind := slices.ContainsFunc(out, func(c *Chain) bool { return len(c.Rules) > 0 })
		if rewritten(c) && c.comesBack() || behind && !c.goesOn() {
			continue
		}
		c.before = rewritten(c)
		out = slices.Insert(out, 0, c)
	}
	return out
}

// asksSent tells whether a rule asks whether nat has sent a packet elsewhere.
func (r *ChainRule) asksSent() bool {
	return slices.Contains(r.States, state.Sent) ||
		slices.ContainsFunc(r.Alts, func(m match.Match) bool { return m.Fields[match.Sent] != nil })
}

// comesBack tells whether packets return from a chain that this one leads to, or leave it by a
// goto.
func (c *Chain) comesBack() bool {
	return slices.ContainsFunc(Reached(c), func(of *Chain) bool {
		return slices.ContainsFunc(of.Rules, func(r *ChainRule) bool {
			return r.Verb == DoGoto || r.Verb == DoReturn && of != c
		})
	})
}

// Rewrites tells whether a chain of nat sends something elsewhere.
func (c *Chain) Rewrites() bool {
	return slices.ContainsFunc(Reached(c), func(of *Chain) bool {
		return slices.ContainsFunc(of.Rules, func(r *ChainRule) bool { return r.nat != nil })
	})
}

// AsksDestinations tells whether a rule of the chain, or of one that it leads to, is about some
// destination addresses or ports, or has a limit for each address: behind nat it sees those that
// nat has given.
func (c *Chain) AsksDestinations() bool {
	return slices.ContainsFunc(Reached(c), func(of *Chain) bool {
		return slices.ContainsFunc(of.Rules, func(r *ChainRule) bool {
			return r.Rate != nil && slices.Contains(r.Rate.By, "dstip") ||
				slices.ContainsFunc(r.Alts, func(m match.Match) bool {
					return m.To.In != nil || len(m.To.Not) > 0 || m.ToDyn != nil ||
						m.Fields[match.Port] != nil
				})
		})
	})
}

// mayDrop tells whether the chain, or one that it leads to, drops something.
func (c *Chain) mayDrop() bool { return c.Drop || drops(c, map[*Chain]bool{}) }

// goesOn makes returns of the rules of a base chain that accept, which are the same where another
// chain follows, and a last rule of a policy that drops. It tells whether what is accepted leaves
// the chain without a copy of what follows.
func (c *Chain) goesOn() bool {
	rules := slices.Clone(c.Rules)
	if c.Drop {
		if slices.ContainsFunc(rules, func(r *ChainRule) bool {
			return r.Verb == DoReturn || r.Verb == DoGoto
		}) {
			return false // to the policy
		}
		rules = append(rules, &ChainRule{Origin: c.Origin, Label: c.Name + " policy", Named: true,
			Implied: true, Alts: []match.Match{{}}, Verb: DoDrop})
	}
	for _, of := range Reached(c) {
		for _, r := range of.Rules {
			leaves := r.Verb == DoAccept || r.Verb == DoReturn && of == c
			if !leaves || len(r.Unknown) > 0 || of == c && r.leavesAlone(c) {
				continue
			}
			if of != c || !c.takeOut(&rules, r) {
				return false
			}
		}
	}
	c.Rules, c.Drop = rules, false
	for _, r := range rules {
		if r.Verb == DoAccept && len(r.Unknown) == 0 {
			r.Verb = DoReturn
		}
	}
	return true
}

// leavesAlone tells whether the packets of a rule can be taken out of what else comes to its chain.
func (r *ChainRule) leavesAlone(c *Chain) bool {
	if r.States != nil || len(r.Alts) != 1 || r.Cookie {
		return false
	}
	m := c.Family.And(&r.Alts[0])
	_, ok := c.Family.ButNot(&m)
	return ok || m.Never || m.Equal(&c.Family)
}

// takeOut takes the packets of a rule that leaves the chain out of the rules behind it, to the end
// of which it moves. It tells whether they can say so. Later fragments, which have no ports to be
// taken out by, share the fate of the first: no policy tells them from it, and without it they are
// no datagram.
func (c *Chain) takeOut(rules *[]*ChainRule, r *ChainRule) bool {
	const most = 8
	if r.States != nil || r.Cookie || r.Limit != NoLimit || len(r.Filled) > 0 {
		return false
	}
	at := slices.Index(*rules, r)
	behind := (*rules)[at+1:]
	less := make([][]match.Match, len(behind))
	for n, d := range behind {
		less[n] = d.Alts
		for i := range r.Alts {
			var out []match.Match
			for _, m := range less[n] {
				parts, ok := m.Minus(&r.Alts[i])
				if !m.Vague() {
					parts = slices.DeleteFunc(parts, func(p match.Match) bool { return p.Vague() })
				}
				if out = append(out, parts...); !ok || len(out) > most {
					return false
				}
			}
			less[n] = out
		}
	}
	for n, d := range behind {
		d.Alts = less[n]
	}
	*rules = append(slices.Delete(slices.Clone(*rules), at, at+1), r)
	return true
}

// earlyText is the remark on such a chain that is not imported.
const earlyText = "what it drops never reaches the chains behind it, and is judged by those " +
	"alone now"

// Early says of a chain that packets meet before the imported ones that it is not imported. Where
// nobody chose the chains, what it drops is counted as left out.
func (o *Output) Early(c *Chain, chosen bool, what, hint string) {
	m := c.Remark(Changed, what+earlyText, hint)
	f := &o.Report.Fates
	if c.Drop && !chosen {
		m.Widens = true
		f.Given, f.LeftOut, f.Widened = f.Given+1, f.LeftOut+1, f.Widened+1
		o.Report.pass(&c.Family)
	}
	for _, of := range Reached(c) {
		for _, r := range of.Rules {
			if !chosen && r.Verb == DoDrop && (of == c || !of.Met) {
				m.Widens = true
				f.Given, f.LeftOut, f.Widened = f.Given+1, f.LeftOut+1, f.Widened+1
			}
			for i := range r.Alts {
				passes := c.Family.And(&r.Alts[i])
				if !chosen && r.Verb == DoDrop && !passes.Never {
					o.Report.pass(&passes)
				}
			}
		}
	}
	if !c.mayDrop() {
		m = c.Remark(LeftOut, what+"it drops nothing", "")
	}
	o.Report.Add(m)
}
