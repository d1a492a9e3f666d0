package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/filter/names"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
)

// ReadsMessages reports whether rules ask what DNS messages have.
func (p *Plan) ReadsMessages() bool { return p.readsMessages }

// AsksMessages reports whether some of rules do.
func AsksMessages(rules []ir.Rule) bool {
	for i := range rules {
		for j := range rules[i].Conds {
			if AsksMessage(&rules[i].Conds[j]) {
				return true
			}
		}
	}
	return false
}

// nameTables builds the tables of all name sets that rules ask.
func (p *planner) nameTables() {
	asked := make([]bool, len(p.Program.Policy.NameLists))
	for _, rules := range p.Program.Lists {
		p.readsMessages = p.readsMessages || AsksMessages(rules)
		for i := range rules {
			for j := range rules[i].Conds {
				if l := rules[i].Conds[j].Names; l != nil {
					asked[l.Number] = true
				}
			}
		}
	}
	p.NameTables = make([]*Table, len(asked))
	for i, l := range p.Program.Policy.NameLists {
		switch {
		case asked[i] && l.Dynamic(): // whose entries may have any number of labels
			p.askedNames = append(p.askedNames, l.Set)
			p.Deepest = dnsname.MaxLabels
		case asked[i]:
			t := names.NewTable(l.Patterns, p.Target.Names)
			what := count(len(l.Patterns), "name")
			if l.Set != nil {
				what = "set " + l.Set.Name
			}
			p.NameTables[i] = &Table{
				Name: fmt.Sprintf("names_%d", i), For: what, Kind: "buckets of hashed names",
				Why:   "a cache line for each of " + count(len(t.Depths), "number") + " of labels",
				Bytes: len(t.Bytes()), Names: t,
			}
			p.Deepest = max(p.Deepest, t.Deepest())
		}
	}
	for i := range p.Limits {
		for _, k := range p.Limits[i].Keys {
			if k.Fields[0] != field.DNSName {
				continue
			}
			p.keysByName = true
			if k.Labels == 0 {
				p.Deepest = dnsname.MaxLabels
			}
			p.Deepest = max(p.Deepest, k.Labels)
		}
	}
}

// sizeMessages returns the functions and instructions of reading messages and searching names,
// without those in rules.
func (p *planner) sizeMessages() (functions, size int) {
	if !p.readsMessages {
		return 0, 0
	}
	functions, size = 1, names.MaxInstructions
	more := func(is bool) {
		if is {
			functions, size = functions+1, size+names.MaxSearchInstructions
		}
	}
	for _, t := range p.NameTables {
		more(t != nil)
	}
	more(p.keysByName)
	return functions, size
}
