package codegen

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
)

// address asks whether the source or destination lies in prefixes or in a dynamic set.
func (c *compiler) address(in *scope, q *plan.Question, no string) {
	hi, lo := addressAt(q.Field)
	ip4 := in.family == ir.IPv4
	if q.By != plan.InTable {
		c.prefixes(q.Cond, hi, lo, ip4, no)
		return
	}
	c.Forget(asm.R1, hi)
	if !ip4 {
		c.field(asm.R2, lo, asm.DWord)
		c.Forget(asm.R2, asm.R2)
	}
	if q.Dynamic() {
		c.dynamic(q.Set, ip4)
	} else {
		q.Lookup.Table.Prefixes.Emit(c.Builder, q.Lookup.Table.Name)
	}
	if q.Not {
		c.Emit(asm.JNE.Imm(asm.R0, 0, no))
	} else {
		c.Emit(asm.JEq.Imm(asm.R0, 0, no))
	}
}

// tableLabel is the function of the look-up in a table, for bytecode.
func tableLabel(t *plan.Table) string { return t.Name + "_lookup" }

// emitTableFunctions emits the functions of look-ups in tables, for bytecode.
func (c *compiler) emitTableFunctions() {
	for _, l := range c.plan.Interpreter.Lookups {
		if l.Table == nil {
			continue
		}
		params := []assembler.Param{assembler.Number("high"), assembler.Number("low")}
		if l.IPv4 {
			params = []assembler.Param{assembler.Number("address")}
		}
		c.Global(tableLabel(l.Table), params...)
		l.Table.Prefixes.Emit(c.Builder, l.Table.Name)
		c.Emit(asm.Return())
	}
}

// prefixes compares with a few prefixes.
func (c *compiler) prefixes(q *ir.Cond, hi asm.Register, lo int16, ip4 bool, no string) {
	yes := c.Fresh("yes")
	for i, p := range q.Prefixes {
		other := c.Fresh("other")
		last := i == len(q.Prefixes)-1
		switch {
		case q.Not:
			c.onePrefix(p, hi, lo, ip4, other)
			c.Emit(asm.Ja.Label(no))
		case last:
			c.onePrefix(p, hi, lo, ip4, no)
		default:
			c.onePrefix(p, hi, lo, ip4, other)
			c.Emit(asm.Ja.Label(yes))
		}
		c.Label(other)
	}
	c.Label(yes)
}

// onePrefix goes to no unless the address lies in p.
func (c *compiler) onePrefix(p netip.Prefix, hi asm.Register, lo int16, ip4 bool, no string) {
	if ip4 {
		v := fourBytes(p.Addr().As4())
		if shift := 32 - p.Bits(); shift > 0 {
			v >>= shift
			c.Emit(asm.Mov.Reg32(asm.R1, hi), asm.RSh.Imm32(asm.R1, int32(shift)))
		} else {
			c.Forget(asm.R1, hi)
		}
		c.Emit(asm.JNE.Imm32(asm.R1, word32(v), no))
		return
	}
	a := p.Addr().As16()
	c.half(hi, binary.BigEndian.Uint64(a[:8]), min(p.Bits(), 64), no)
	if p.Bits() > 64 {
		c.field(asm.R3, lo, asm.DWord)
		c.half(asm.R3, binary.BigEndian.Uint64(a[8:]), p.Bits()-64, no)
	}
}

// half goes to no unless the first n bits, 1 to 64, of reg are those of v.
func (c *compiler) half(reg asm.Register, v uint64, n int, no string) {
	if n < 64 {
		v >>= 64 - n
		c.Emit(asm.Mov.Reg(asm.R1, reg), asm.RSh.Imm(asm.R1, int32(64-n)))
	} else {
		c.Forget(asm.R1, reg)
	}
	c.compare(asm.JNE, asm.R1, v, true, no)
}
