package nft

import (
	"slices"

	"levee/internal/lang/importer"
)

// leaves tells whether the chain judges what the machine sends.
func (c *nftChain) leaves() bool {
	return c.Base && c.kind == "filter" && c.hook == "output" && !c.table.dormant &&
		c.table.family != "bridge" && c.table.family != "arp"
}

// leaving returns the filter chains at the hook output, read once more as rules for what leaves.
func (n *nftables) leaving(side *importer.Output) ([]*importer.Chain, error) {
	out := *n
	out.out, out.leaves, out.chains = side, true, nil
	out.opts.Chains = []string{"output"}
	tables := map[*nftTable]*nftTable{}
	var picked []*nftChain
	for _, c := range n.chains {
		if c.Base && len(c.raw) > 0 && (c.hook == "forward" && c.kind == "filter" ||
			c.hook == "postrouting" && c.kind == "nat") {
			side.Forwards(c.kind == "nat")
		}
		t := tables[c.table]
		if t == nil {
			fresh := *c.table
			fresh.chains = map[string]*nftChain{}
			t, tables[c.table] = &fresh, &fresh
		}
		fresh := *c
		fresh.Rules, fresh.Met, fresh.table = nil, false, t
		for name, known := range c.table.chains {
			if known == c {
				t.chains[name] = &fresh
			}
		}
		out.chains = append(out.chains, &fresh)
		if c.leaves() {
			picked = append(picked, &fresh)
		}
	}
	if len(picked) == 0 {
		return nil, nil
	}
	out.parseRules()
	slices.SortStableFunc(picked, func(a, b *nftChain) int { return a.prio - b.prio })
	var bases []*importer.Chain
	for _, c := range picked {
		bases = append(bases, &c.Chain)
	}
	return bases, nil
}
