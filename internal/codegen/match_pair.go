package codegen

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/classify"
	"levee/internal/ir"
	"levee/internal/policy"
)

// Up to maxPairs endpoints are compared one by one; more are looked up in a table of package classify, whose cost
// hardly depends on their number.
const maxPairs = 6

// tableQuestions is what a look-up in such a table counts for where a function of rules may ask so many questions.
const tableQuestions = 64

// pairKey finds the tables of a list of endpoints: equal questions share the list (package ir).
type pairKey struct {
	first *ir.Pair
	n     int
}

// pairTable is a table with its name.
type pairTable struct {
	*classify.Table
	name string
}

func samePairs(a, b []ir.Pair) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// use notes the fields that a condition asks for.
func (ch *chain) use(q *ir.Cond) {
	switch q.Field {
	case policy.SrcEndpoint:
		ch.uses[policy.SrcAddr], ch.uses[q.Number] = true, true
	case policy.DstEndpoint:
		ch.uses[policy.DstAddr], ch.uses[q.Number] = true, true
	default:
		ch.uses[q.Field] = true
	}
}

// questions is what a rule asks, for the bound of a function.
func questions(r *ir.Rule) (n int) {
	for i := range r.Conds {
		switch pairs := len(r.Conds[i].Pairs); {
		case pairs > maxPairs:
			n += tableQuestions
		case pairs > 0:
			n += 2 * pairs
		default:
			n++
		}
	}
	return n
}

// length estimates the instructions of a condition.
func length(q *ir.Cond) int {
	if len(q.Pairs) > maxPairs {
		return 300
	}
	return 4 * max(1, min(16, len(q.Ranges)+len(q.Prefixes)+3*len(q.Pairs)))
}

// endpoint asks whether address and port, or address and protocol, are one of the endpoints of a list.
func (c *compiler) endpoint(ch *chain, q *ir.Cond, no string) {
	yes := c.fresh("yes")
	found, missing := yes, no
	if q.Not {
		found, missing = no, yes
	}
	if len(q.Pairs) > maxPairs {
		c.pairTables(ch, q, found)
		c.emit(asm.Ja.Label(missing))
	} else {
		c.comparePairs(ch, q, found, missing)
	}
	c.label(yes)
}

// comparePairs compares with a few endpoints.
func (c *compiler) comparePairs(ch *chain, q *ir.Cond, found, missing string) {
	hi, lo := endpointAddress(q)
	for i, p := range q.Pairs {
		next := c.fresh("other")
		if i == len(q.Pairs)-1 {
			next = missing
		}
		if p.Prefix.Bits() > 0 {
			c.onePrefix(p.Prefix, hi, lo, ch.family() == ir.IPv4, next)
		}
		reg, _ := c.value(q.Number)
		c.inside(reg, p.Range, false, next)
		c.emit(asm.Ja.Label(found))
		if next != missing {
			c.label(next)
		}
	}
}

// endpointAddress says where the address lies that a condition on endpoints asks for.
func endpointAddress(q *ir.Cond) (hi asm.Register, lo int16) {
	if q.Field == policy.DstEndpoint {
		return regDst, keyDstLo
	}
	return regSrc, keySrcLo
}

// pairTables goes to found if one of the tables of a list has the address and number.
func (c *compiler) pairTables(ch *chain, q *ir.Cond, found string) {
	c.storePair(ch, q)
	for _, t := range c.tablesOf(ch, q) {
		c.emit(t.Emit(t.name, c.fresh("endpoints"))...)
		c.emit(asm.JNE.Imm(asm.R0, 0, found))
	}
}

// tablesOf makes the tables of a list, or finds them. There is one, but for lists made to have more.
func (c *compiler) tablesOf(ch *chain, q *ir.Cond) []pairTable {
	key := pairKey{&q.Pairs[0], len(q.Pairs)}
	if tables, ok := c.pairs[key]; ok {
		return tables
	}
	width, any := 32, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if ch.family() == ir.IPv6 {
		width, any = 128, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	left := make([]classify.Box, len(q.Pairs))
	for i, p := range q.Pairs {
		ports := classify.Span{Lo: uint16(p.Range.Lo), Hi: uint16(p.Range.Hi)}
		left[i] = classify.Box{Src: any, Dst: p.Prefix, Ports: [2]classify.Span{classify.Any, ports}, Result: 1}
	}
	var tables []pairTable
	for len(left) > 0 {
		t := pairTable{classify.New(width, left), fmt.Sprintf("endpoints_%d", c.pairNames)}
		c.pairNames++
		c.constant(t.name, t.Memory())
		what := fmt.Sprintf("%d endpoints", len(left))
		if q.Set != nil {
			what = "set " + q.Set.Name
		}
		c.table(fmt.Sprintf("%s, %s", what, ch), t.Kind(), t.Bytes(), fmt.Sprintf("more than %d endpoints: the cost does not grow with their number", maxPairs))
		tables = append(tables, t)
		left = t.Rest()
	}
	c.pairs[key] = tables
	return tables
}

// storePair puts the address and the number of the packet where package classify looks for them, as those of the destination.
func (c *compiler) storePair(ch *chain, q *ir.Cond) {
	hi, lo := endpointAddress(q)
	c.emit(
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.R10, classify.SrcAt, asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, classify.SrcLoAt, asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, classify.Port0At, asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, classify.DstLoAt, asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, classify.DstAt, hi, asm.DWord),
	)
	if ch.family() == ir.IPv6 {
		c.field(asm.R1, lo, asm.DWord)
		c.emit(asm.StoreMem(asm.R10, classify.DstLoAt, asm.R1, asm.DWord))
	}
	reg, _ := c.value(q.Number)
	c.emit(asm.StoreMem(asm.R10, classify.Port1At, reg, asm.DWord))
}
