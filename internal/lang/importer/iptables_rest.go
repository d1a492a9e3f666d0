package importer

import (
	"fmt"
	"slices"

	"levee/internal/quantity"
)

// remarkOnRest says what else is in the input: chains that were not imported, and what they do to
// packets before or after those that were.
func (t *ipTables) remarkOnRest(bases []*chain) {
	for _, tab := range t.tables {
		if c := tab.byName["OUTPUT"]; tab.name == "filter" && c != nil && t.out.side != nil {
			markMet(c, 0)
		}
		for _, c := range tab.chains {
			if c.met || slices.Contains(bases, c) || len(c.rules) == 0 && !c.drop {
				continue
			}
			if tab.name == "filter" && c.name == "OUTPUT" && len(t.opts.Chains) == 0 {
				t.out.aboutSide(c)
				continue
			}
			t.out.rep.add(t.restRemark(tab, c))
		}
	}
	for _, c := range bases {
		if c.name == "FORWARD" {
			t.out.rep.add(c.remark(Changed,
				"levee judges packets before they are routed: the rules of FORWARD also judge "+
					"those to this machine itself",
				"pass these by a rule at the top: pass to ADDRESSES"))
		}
	}
	remarkOnFragments(t.out, bases)
}

// What is said of a chain for packets that are routed through, when another one is imported.
const (
	forwardWhy = "levee judges packets before they are routed, so that those which this machine " +
		"forwards are judged by the imported rules, and dropped where these drop"
	forwardHint = "where it forwards (containers, virtual machines, a router), pass these by a " +
		"rule at the top: pass to NETWORKS"
)

// remarkOnFragments says that netfilter may see packets whole that levee sees in fragments.
func remarkOnFragments(o *output, bases []*chain) {
	if !o.keeps && usesTransport(bases) {
		o.rep.add(Remark{File: bases[0].file, Kind: Changed,
			Text: "netfilter reassembles IPv4 fragments before INPUT, and everywhere once " +
				"connections are tracked; levee judges each fragment, and one that is not the " +
				"first has no ports, flags or ICMP type",
			Instead: "where large UDP or IPsec packets are expected, look at `levee check`'s " +
				"warnings and pass fragments"})
	}
}

// usesTransport tells whether a rule of the chains asks for what only the first fragment has.
func usesTransport(bases []*chain) bool {
	seen := map[*chain]bool{}
	var visit func(c *chain) bool
	visit = func(c *chain) bool {
		if seen[c] {
			return false
		}
		seen[c] = true
		for _, r := range c.rules {
			for i := range r.alts {
				if r.alts[i].hasTransport() {
					return true
				}
			}
			if r.target != nil && visit(r.target) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(bases, visit)
}

// leavesHint says how a policy judges what leaves.
const leavesHint = "write rules for what leaves by the interface as `out RULE`"

// restRemark is about one chain that is not imported.
func (t *ipTables) restRemark(tab *ipTable, c *chain) Remark {
	what := fmt.Sprintf("chain %s of table %s (%s) is not imported: ", c.name, tab.name,
		quantity.Plural(len(c.rules), "rule"))
	k, why, hint := LeftOut, "", ""
	switch {
	case tab.name == "nat" && c.name == "PREROUTING":
		k, why, hint = Changed, "it rewrites destinations before the other tables look at "+
			"packets, and levee sees them as they arrive",
			"write rules with the addresses and ports before the rewriting"
	case tab.name == "nat":
		why = "levee does not rewrite packets"
	case c.name == "OUTPUT", c.name == "POSTROUTING":
		why, hint = "it is about what leaves", leavesHint
	case c.name == "FORWARD" && len(c.rules) > 0 && t.onlyInput():
		k, why, hint = Changed, forwardWhy, forwardHint
	case !c.base:
		why = "no imported rule jumps to it"
	case c.name == "PREROUTING":
		k, why, hint = Changed, "what it drops never reaches the chains behind it, and is judged "+
			"by those alone now", fmt.Sprintf("--chain %s/PREROUTING --chain INPUT imports both, "+
			"one behind the other", tab.name)
	default:
		why, hint = "another chain was asked for", "--chain "+tab.name+"/"+c.name+" imports it"
	}
	return c.remark(k, what+why, hint)
}
