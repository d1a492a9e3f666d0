package codegen

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
)

// describe lists the structures of the plan for `levee check --explain-compile`, in the order in
// which packets come to them.
func (c *compiler) describe() {
	seen := map[any]bool{}
	first := func(x any) bool {
		was := seen[x]
		seen[x] = true
		return !was
	}
	add := func(what, kind string, bytes int, why string) {
		c.tables = append(c.tables, Table{For: what, Kind: kind, Bytes: bytes, Why: why})
	}
	look := func(l *plan.Lookup) {
		switch {
		case l.Table != nil && first(l.Table):
			add(l.Table.For, l.Table.Kind, l.Table.Bytes, l.Table.Why)
		case l.Tree != nil && first(l.Tree):
			add(l.Tree.For, l.Tree.Kind(), l.Tree.Bytes(), l.Tree.Why)
		}
	}
	x := &c.Plan.Interpreter
	bytecode := func(b *plan.Bytecode) {
		for i := range b.Rules {
			for j := range b.Rules[i].Conds {
				n, arm, ok := x.Lookup(c.Plan, &b.Rules[i].Conds[j], b.Family == ir.IPv4)
				switch {
				case ok && x.Lookups[n].Arms:
					look(x.Arms[arm].Lookup)
				case ok && x.Lookups[n].Table != nil:
					look(&plan.Lookup{Table: x.Lookups[n].Table})
				}
			}
		}
		add(fmt.Sprintf("%d rules, %s", len(b.Rules), b.Class), "records in trees",
			c.bytecode.bytes[b.Number], b.Why)
	}
	var block func(b plan.Block)
	block = func(b plan.Block) {
		switch b := b.(type) {
		case *plan.Lookup:
			look(b)
		case *plan.RuleTree:
			if first(b.Tree) {
				add(b.Tree.For, b.Tree.Kind(), b.Tree.Bytes(), b.Tree.Why)
			}
		case *plan.Bytecode:
			if first(b) {
				bytecode(b)
			}
			return
		case *plan.Function:
			if !first(b) {
				return
			}
		}
		for _, in := range b.Blocks() {
			block(in)
		}
	}
	for _, ch := range c.Plan.Chains {
		block(ch)
	}
	for _, s := range c.Plan.Searches {
		add(s.Table.For, s.Table.Kind, s.Table.Bytes, s.Table.Why)
	}
}
