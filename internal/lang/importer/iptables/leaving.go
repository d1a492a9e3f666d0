package iptables

import (
	"levee/internal/lang/importer"
)

// leaving returns the chains OUTPUT of the table filter, read once more as rules for what leaves.
func (t *ipTables) leaving(side *importer.Output) ([]*importer.Chain, error) {
	out := &ipTables{opts: t.opts, out: side, sets: t.sets,
		recent: map[string][]*importer.ChainRule{},
		leaves: true, vlans: t.vlans}
	out.opts.Chains = []string{"filter/OUTPUT"}
	for _, tab := range t.tables {
		if tab.forwards() {
			side.Forwards(tab.name == "nat")
		}
		if tab.name == "filter" && tab.byName["OUTPUT"] != nil {
			out.tables = append(out.tables, tab.again())
		}
	}
	var bases []*importer.Chain
	for _, tab := range out.tables {
		bases = append(bases, tab.byName["OUTPUT"])
	}
	return bases, out.parseRules()
}

// forwards tells whether the table is about packets that the machine forwards.
func (t *ipTable) forwards() bool {
	name := map[string]string{"filter": "FORWARD", "nat": "POSTROUTING"}[t.name]
	return t.byName[name] != nil && len(t.byName[name].Rules) > 0
}

// again returns the table before its rules were understood.
func (t *ipTable) again() *ipTable {
	out := *t
	out.chains, out.byName, out.lines = nil, map[string]*importer.Chain{}, nil
	of := map[*importer.Chain]*importer.Chain{}
	for name, c := range t.byName {
		fresh := *c
		fresh.Rules, fresh.Met = nil, false
		of[c], out.byName[name] = &fresh, &fresh
	}
	for _, c := range t.chains {
		out.chains = append(out.chains, of[c])
	}
	for _, l := range t.lines {
		l.chain = of[l.chain]
		out.lines = append(out.lines, l)
	}
	return &out
}
