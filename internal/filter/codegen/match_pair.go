package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Up to maxPairs endpoints are compared one by one; more are looked up in a table of package ruletree, whose cost
// hardly depends on their number.
const maxPairs = 6

// tableQuestions is what a look-up in such a table counts for where a function of rules may ask so many questions.
const tableQuestions = 64

// use notes the fields that a condition asks for.
func (ch *chain) use(q *ir.Cond) {
	info := q.Field.Info()
	if info.Compare != field.ByPair {
		ch.uses[q.Field] = true
		return
	}
	if info.Address != field.None {
		ch.uses[info.Address] = true
	}
	if q.Dynamic() && q.Number != field.Proto && q.Proto != 0 && !policy.HasPorts(q.Proto) {
		return // ICMP: no port is asked for
	}
	ch.uses[q.Number] = true
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
		return 200
	}
	return 4 * max(1, min(16, len(q.Ranges)+len(q.Prefixes)+3*len(q.Pairs)))
}

// endpoint asks whether address and port, or address and protocol, are one of the endpoints of a list or of a dynamic set.
func (c *compiler) endpoint(ch *chain, q *ir.Cond, no string) {
	if q.Dynamic() {
		c.dynamicEndpoint(ch, q, no)
		return
	}
	yes := c.fresh("yes")
	found, missing := yes, no
	if q.Not {
		found, missing = no, yes
	}
	if len(q.Pairs) > maxPairs {
		c.pairTable(ch, q, found)
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
	if q.Field.Info().Address == field.DstAddr {
		return regDst, keyDstLo
	}
	return regSrc, keySrcLo
}

// pairTable goes to found if the table of a list has the address and number.
func (c *compiler) pairTable(ch *chain, q *ir.Cond, found string) {
	p, t := c.poolOf(ch.family()), c.tableOf(ch, q)
	if ch.family() == ir.IPv6 {
		c.givePair6(ch, q)
		c.lookUp(p, t)
		c.takeBack(ch)
	} else {
		back := c.givePair4(ch, q)
		c.lookUp(p, t)
		c.emit(back...)
	}
	c.emit(asm.JNE.Imm(asm.R0, 0, found))
}

// tableOf makes the table of a list, or finds it.
func (c *compiler) tableOf(ch *chain, q *ir.Cond) *ruletree.Table {
	if t, ok := c.pairs[q.List]; ok {
		return t
	}
	pool := c.poolOf(ch.family())
	boxes := make([]ruletree.Box, len(q.Pairs))
	for i, p := range q.Pairs {
		ports := ruletree.Span{Lo: uint16(p.Range.Lo), Hi: uint16(p.Range.Hi)}
		boxes[i] = ruletree.Box{Src: pool.any, Dst: p.Prefix, Ports: [2]ruletree.Span{ruletree.Any, ports}, Result: 1}
	}
	t := pool.Add(boxes)
	what := fmt.Sprintf("%d endpoints", len(boxes))
	if q.Set != nil {
		what = "set " + q.Set.Name
	}
	c.table(fmt.Sprintf("%s, %s", what, ch), t.Kind(), t.Bytes(), fmt.Sprintf("more than %d endpoints: the cost does not grow with their number", maxPairs))
	c.pairs[q.List] = t
	return t
}

// givePair6 puts the address and the number of an IPv6 packet where package ruletree looks for them, as those of
// the destination.
func (c *compiler) givePair6(ch *chain, q *ir.Cond) {
	hi, lo := endpointAddress(q)
	c.emit(asm.Mov.Imm(asm.R0, 0))
	c.keepDst(ch)
	c.storePacket(ruletree.SrcAt, asm.R0)
	c.storePacket(ruletree.SrcLoAt, asm.R0)
	c.storePacket(ruletree.DstAt, hi)
	c.field(asm.R1, lo, asm.DWord)
	c.storePacket(ruletree.DstLoAt, asm.R1)
	reg, _ := c.value(q.Number)
	c.storePacket(ruletree.PortsAt, reg)
}

// givePair4 does the same for IPv4, and gives what brings the registers of the chain back.
func (c *compiler) givePair4(ch *chain, q *ir.Cond) (back []asm.Instruction) {
	at := int16(0)
	var kept [asm.R10]bool
	for f := range field.NumFields {
		reg, hot := hotRegister(f)
		if !hot || !ch.uses[f] || kept[reg] {
			continue
		}
		kept[reg] = true
		at -= 8
		c.emit(asm.StoreMem(asm.R10, at, reg, asm.DWord))
		back = append(back, asm.LoadMem(reg, asm.R10, at, asm.DWord))
	}
	reg, _ := c.value(q.Number)
	hi, _ := endpointAddress(q)
	c.emit(
		asm.Mov.Reg(ruletree.RegAddresses, hi),
		asm.Mov.Reg(ruletree.RegPort1, reg),
		asm.Mov.Imm(ruletree.RegPort0, 0),
	)
	return back
}

// dynamicEndpoint asks a set of endpoints or services that is filled at run time. A service is an endpoint of every address: 0.0.0.0/0,
// whatever the packet's family.
func (c *compiler) dynamicEndpoint(ch *chain, q *ir.Cond, no string) {
	c.serviceNumber(q)
	ip4 := true
	if q.Field.Info().Address == field.None {
		c.emit(asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
	} else {
		hi, lo := endpointAddress(q)
		ip4 = ch.family() == ir.IPv4
		if ip4 {
			c.emit(asm.Mov.Reg(asm.R1, hi), asm.LSh.Imm(asm.R1, 32), asm.Mov.Imm(asm.R2, 0))
		} else {
			c.copy(asm.R1, hi)
			c.field(asm.R2, lo, asm.DWord)
			c.copy(asm.R2, asm.R2)
		}
	}
	label := c.endpointFunction(q.Set, ip4)
	if c.shared() {
		c.emit(asm.Mov.Imm(asm.R4, int32(c.setPlaces[q.Set].Key)))
	}
	c.emit(asm.Call.Label(label))
	if q.Not {
		c.emit(asm.JNE.Imm(asm.R0, 0, no))
	} else {
		c.emit(asm.JEq.Imm(asm.R0, 0, no))
	}
}

// serviceNumber leaves protocol<<16 | port in R3. Of a protocol without ports there is no port.
func (c *compiler) serviceNumber(q *ir.Cond) {
	if q.Number != field.Proto && !policy.HasPorts(q.Proto) {
		c.emit(asm.Mov.Imm(asm.R3, int32(q.Proto)<<16))
		return
	}
	reg, _ := c.value(q.Number)
	c.emit(asm.Mov.Reg(asm.R3, reg))
	if q.Number == field.Proto {
		c.emit(asm.LSh.Imm(asm.R3, 16))
	} else {
		c.emit(asm.Or.Imm(asm.R3, int32(q.Proto)<<16))
	}
}
