package iptables

import (
	"fmt"
	"slices"

	"levee/internal/lang/importer"
	"levee/internal/quantity"
)

// remarkOnRest says what else is in the input: chains that were not imported, and what they do to
// packets before or after those that were.
func (t *ipTables) remarkOnRest(bases []*importer.Chain) {
	for _, tab := range t.tables {
		if c := tab.byName["OUTPUT"]; tab.name == "filter" && c != nil && t.out.Side != nil {
			c.MarkMet()
		}
		for _, c := range tab.chains {
			if c.Met || slices.Contains(bases, c) || len(c.Rules) == 0 && !c.Drop {
				continue
			}
			if tab.name == "filter" && c.Name == "OUTPUT" && len(t.opts.Chains) == 0 {
				t.out.AboutSide(c)
				continue
			}
			t.addRest(tab, c)
		}
	}
	for _, c := range bases {
		if c.Name == "FORWARD" {
			t.out.Report.Add(c.Remark(importer.Changed,
				"levee judges packets before they are routed: the rules of FORWARD also judge "+
					"those to this machine itself",
				"pass these by a rule at the top: pass to ADDRESSES"))
		}
	}
	importer.RemarkOnFragments(t.out, bases)
}

// addRest is about one chain that is not imported.
func (t *ipTables) addRest(tab *ipTable, c *importer.Chain) {
	what := fmt.Sprintf("chain %s of table %s (%s) is not imported: ", c.Name, tab.name,
		quantity.Plural(len(c.Rules), "rule"))
	k, why, hint := importer.LeftOut, "", ""
	switch {
	case tab.name == "nat" && c.Name == "PREROUTING":
		t.out.Translates(c, what)
		return
	case tab.name == "nat":
		why = "levee does not rewrite packets"
	case c.Name == "OUTPUT", c.Name == "POSTROUTING":
		why, hint = "it is about what leaves", importer.LeavesHint
	case c.Name == "FORWARD" && len(c.Rules) > 0 && t.onlyInput():
		k, why, hint = importer.Changed, importer.ForwardWhy, importer.ForwardHint
	case c.Name == "FORWARD" && len(t.opts.Chains) == 0: // a policy alone
		why = importer.ForwardDrops
	case !c.Base:
		why = "no imported rule jumps to it"
	case c.Name == "PREROUTING", len(t.opts.Chains) == 0 && c.Name == "INPUT" &&
		tab.name != "security":
		t.out.Early(c, len(t.opts.Chains) > 0, what, fmt.Sprintf("--chain %s/%s --chain INPUT "+
			"imports both, one behind the other", tab.name, c.Name))
		return
	default:
		why, hint = "another chain was asked for", "--chain "+tab.name+"/"+c.Name+" imports it"
	}
	t.out.Report.Add(c.Remark(k, what+why, hint))
}
