package codegen

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// A packet finds the rules of bytecode that it meets by the two trees of the plan (plan.Cuts).
// Since these do not come in the order of the policy, each list ends early where a rule that stands
// before has decided; see opDecide and the compare of entries in interpreter.go.

// walk makes the records of bytecode.
func (c *compiler) walk(b *plan.Bytecode) {
	before := c.bytecode.records.n
	t := &cutter{bytecode: c.bytecode, bodies: make([]uint32, len(b.Rules)), rules: b.Rules}
	for _, a := range b.Axes {
		t.cuts = append(t.cuts, c.cut(a, b.Family == ir.IPv4))
	}
	for i := range b.Rules {
		t.bodies[i] = c.body(b, i)
	}
	start := t.tree(&b.Counting, b.Counting.Root, 0)
	start = t.tree(&b.Deciding, b.Deciding.Root, start)
	c.bytecode.starts = append(c.bytecode.starts, start)
	bytes := plan.RecordBytes*(c.bytecode.records.n-before) + 8*len(b.Rules)
	c.bytecode.bytes = append(c.bytecode.bytes, bytes)
}

// cut returns the record that compares an axis, without bound and targets.
func (c *compiler) cut(a plan.Axis, ip4 bool) record {
	at, n := c.FieldAt(a.Field)
	mask := maskOf(n)
	if ip4 && a.Field.Info().Compare == field.ByPrefix {
		mask = maskOf(4)
	}
	if a.Low {
		at += 8
	}
	return record{wordOf(opCut, at, n, false), mask}
}

// cutter makes the records of the trees of bytecode.
type cutter struct {
	*bytecode
	cuts   []record // what reads each axis
	bodies []uint32 // of each rule, its first record
	rules  []ir.Rule
}

// tree makes the records of a node and all below, behind which the packet goes to then.
func (t *cutter) tree(cuts *plan.Cuts, root int, then uint32) (start uint32) {
	if root < 0 {
		return then
	}
	n := &cuts.Nodes[root]
	if n.Axis < 0 {
		return t.list(cuts.Order[n.First:n.First+n.Len], then)
	}
	below := t.tree(cuts, int(n.Below), then)
	above := t.tree(cuts, int(n.Above), then)
	r := t.cuts[n.Axis]
	r[2], r[3] = n.Bound, uint64(above)<<32|uint64(below)
	return t.tree(cuts, int(n.Both), t.add(r))
}

// list makes the list of some rules.
func (t *cutter) list(rules []int32, then uint32) uint32 {
	entries := t.number[:0]
	for _, i := range rules {
		entries = append(entries, uint64(t.rules[i].Slot)<<32|uint64(t.bodies[i]))
	}
	t.number = append(entries, endOfList)
	return t.add(record{uint64(opList), uint64(t.lists.add(t.number)), uint64(then)})
}
