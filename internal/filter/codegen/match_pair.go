package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// endpoint asks whether address and port, or address and protocol, are one of the endpoints of a
// list or of a dynamic set.
func (c *compiler) endpoint(in *scope, q *plan.Question, no string) {
	if q.Dynamic() {
		c.dynamicEndpoint(in, q.Cond, no)
		return
	}
	yes := c.Fresh("yes")
	found, missing := yes, no
	if q.Not {
		found, missing = no, yes
	}
	if q.By == plan.InTable {
		c.pairTree(in, q.Lookup, found)
		c.Emit(asm.Ja.Label(missing))
	} else {
		c.comparePairs(in, q.Cond, found, missing)
	}
	c.Label(yes)
}

// comparePairs compares with a few endpoints.
func (c *compiler) comparePairs(in *scope, q *ir.Cond, found, missing string) {
	hi, lo := endpointAddress(q)
	for i, p := range q.Pairs {
		next := c.Fresh("other")
		if i == len(q.Pairs)-1 {
			next = missing
		}
		if p.Prefix.Bits() > 0 {
			c.OnePrefix(p.Prefix, hi, lo, in.family == ir.IPv4, next)
		}
		reg, _ := c.Value(q.Number)
		c.Inside(reg, p.Range, false, next)
		c.Emit(asm.Ja.Label(found))
		if next != missing {
			c.Label(next)
		}
	}
}

// endpointAddress returns the place of the address in a condition on endpoints.
func endpointAddress(q *ir.Cond) (hi asm.Register, lo int16) {
	if q.Field.Info().Address == field.DstAddr {
		return env.RegDst, env.KeyDstLo
	}
	return env.RegSrc, env.KeySrcLo
}

// pairTree goes to found if the tree of a list has the address and number.
func (c *compiler) pairTree(in *scope, l *plan.Lookup, found string) {
	if in.family == ir.IPv6 {
		c.givePair6(in, l.Cond)
		c.walkTree(l.Tree, l.InPlace)
		c.takeBack(in)
	} else {
		back := c.givePair4(in, l.Cond)
		c.walkTree(l.Tree, l.InPlace)
		c.Emit(back...)
	}
	c.Emit(asm.JNE.Imm(asm.R0, 0, found))
}

// givePair6 puts the address and the number of an IPv6 packet where package ruletree looks for
// them, as those of the destination.
func (c *compiler) givePair6(in *scope, q *ir.Cond) {
	hi, lo := endpointAddress(q)
	c.Emit(asm.Mov.Imm(asm.R0, 0))
	c.keepDst(in)
	c.storePacket(ruletree.SrcAt, asm.R0)
	c.storePacket(ruletree.SrcLoAt, asm.R0)
	c.storePacket(ruletree.DstAt, hi)
	c.Field(asm.R1, lo, asm.DWord)
	c.storePacket(ruletree.DstLoAt, asm.R1)
	reg, _ := c.Value(q.Number)
	c.storePacket(ruletree.PortsAt, reg)
}

// givePair4 does the same for IPv4, and gives what brings the registers of the chain back.
func (c *compiler) givePair4(in *scope, q *ir.Cond) (back []asm.Instruction) {
	at := int16(0)
	var kept [asm.R10]bool
	for f := range field.NumFields {
		reg, hot := env.HotRegister(f)
		if !hot || !in.holds[f] || kept[reg] {
			continue
		}
		kept[reg] = true
		at -= 8
		c.Emit(asm.StoreMem(asm.R10, at, reg, asm.DWord))
		back = append(back, asm.LoadMem(reg, asm.R10, at, asm.DWord))
	}
	reg, _ := c.Value(q.Number)
	hi, _ := endpointAddress(q)
	c.Emit(
		asm.Mov.Reg(ruletree.RegAddresses, hi),
		asm.Mov.Reg(ruletree.RegPort1, reg),
		asm.Mov.Imm(ruletree.RegPort0, 0),
	)
	return back
}

// dynamicEndpoint asks a set of endpoints or services that is filled at run time. A service is an
// endpoint of every address: 0.0.0.0/0, whatever the packet's family.
func (c *compiler) dynamicEndpoint(in *scope, q *ir.Cond, no string) {
	c.serviceNumber(q)
	ip4 := true
	if q.Field.Info().Address == field.None {
		c.Emit(asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
	} else {
		hi, lo := endpointAddress(q)
		ip4 = in.family == ir.IPv4
		if ip4 {
			c.Emit(asm.Mov.Reg(asm.R1, hi), asm.LSh.Imm(asm.R1, 32), asm.Mov.Imm(asm.R2, 0))
		} else {
			c.Forget(asm.R1, hi)
			c.Field(asm.R2, lo, asm.DWord)
			c.Forget(asm.R2, asm.R2)
		}
	}
	if c.Plan.Shared() {
		c.Emit(asm.Mov.Imm(asm.R4, int32(c.Plan.Places[q.Set].Key)))
	}
	c.Emit(asm.Call.Label(c.setFunction(q.Set, ip4)))
	if q.Not {
		c.Emit(asm.JNE.Imm(asm.R0, 0, no))
	} else {
		c.Emit(asm.JEq.Imm(asm.R0, 0, no))
	}
}

// serviceNumber leaves protocol<<16 | port in R3. Of a protocol without ports there is no port.
func (c *compiler) serviceNumber(q *ir.Cond) {
	if q.Number != field.Proto && !policy.HasPorts(q.Proto) {
		c.Emit(asm.Mov.Imm(asm.R3, int32(q.Proto)<<16))
		return
	}
	reg, _ := c.Value(q.Number)
	c.Emit(asm.Mov.Reg(asm.R3, reg))
	if q.Number == field.Proto {
		c.Emit(asm.LSh.Imm(asm.R3, 16))
	} else {
		c.Emit(asm.Or.Imm(asm.R3, int32(q.Proto)<<16))
	}
}
