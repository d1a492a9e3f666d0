package env

import (
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// Number asks whether a numeric field lies in one of the ranges.
func (c *Code) Number(q *plan.Question, no string) {
	reg, wide := c.Value(q.Field)
	yes := c.Fresh("yes")
	switch {
	case q.By == plan.InOrder:
		for i, r := range q.Ranges {
			if i == len(q.Ranges)-1 {
				c.Inside(reg, r, wide, no)
				break
			}
			other := c.Fresh("other")
			c.Inside(reg, r, wide, other)
			c.Emit(asm.Ja.Label(yes))
			c.Label(other)
		}
	case q.By == plan.Halving:
		c.halve(reg, q.Ranges, wide, yes, no)
	case q.Lookup.Table.Bits != nil:
		c.bitmap(reg, q, yes, no)
	default:
		c.ethernet(reg, q.Lookup.Table, no)
	}
	c.Label(yes)
}

// Value gives a scratch register that holds a field; wide says that it has more than 32 bits.
func (c *Code) Value(f field.Field) (reg asm.Register, wide bool) {
	if reg, hot := HotRegister(f); hot {
		c.Forget(asm.R1, reg)
		return asm.R1, false
	}
	at, n := c.FieldAt(f)
	c.Field(asm.R1, at, SizeOf(n))
	if wide = n > 4; wide {
		c.Forget(asm.R1, asm.R1)
	}
	return asm.R1, wide
}

// Inside goes to no unless reg lies in r.
func (c *Code) Inside(reg asm.Register, r field.Range, wide bool, no string) {
	if r.Lo == r.Hi {
		c.compare(asm.JNE, reg, r.Lo, wide, no)
		return
	}
	if r.Lo > 0 {
		c.compare(asm.JLT, reg, r.Lo, wide, no)
	}
	if wide || r.Hi < math.MaxUint32 {
		c.compare(asm.JGT, reg, r.Hi, wide, no)
	}
}

// compare jumps if reg op v holds; unsigned.
func (c *Code) compare(op asm.JumpOp, reg asm.Register, v uint64, wide bool, to string) {
	switch {
	case !wide:
		c.Emit(op.Imm32(reg, word32(uint32(v)), to))
	case v <= math.MaxInt32:
		c.Emit(op.Imm(reg, int32(v), to))
	default:
		c.Emit(asm.LoadImm(asm.R2, int64(v), asm.DWord), op.Reg(reg, asm.R2, to))
	}
}

// halve finds reg among sorted ranges by halving.
func (c *Code) halve(reg asm.Register, rs []field.Range, wide bool, yes, no string) {
	if len(rs) == 0 {
		c.Emit(asm.Ja.Label(no))
		return
	}
	mid := len(rs) / 2
	below := c.Fresh("below")
	c.compare(asm.JLT, reg, rs[mid].Lo, wide, below)
	c.compare(asm.JLE, reg, rs[mid].Hi, wide, yes)
	c.halve(reg, rs[mid+1:], wide, yes, no)
	c.Label(below)
	c.halve(reg, rs[:mid], wide, yes, no)
}

// bitmap looks a number up in a table of bits. Only lengths go beyond 16 bits, and with so few
// ranges there that these are found by compares.
func (c *Code) bitmap(reg asm.Register, q *plan.Question, yes, no string) {
	if rs := q.Ranges; rs[len(rs)-1].Hi > math.MaxUint16 {
		small := c.Fresh("small")
		c.compare(asm.JLE, reg, math.MaxUint16, false, small)
		first := slices.IndexFunc(rs, func(r field.Range) bool { return r.Hi > math.MaxUint16 })
		c.halve(reg, rs[first:], false, yes, no)
		c.Label(small)
	}
	c.Emit(
		asm.And.Imm(reg, 0xffff), // the verifier's bound
		asm.Mov.Reg(asm.R2, reg),
		asm.RSh.Imm(reg, 3),
		asm.And.Imm(asm.R2, 7),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(q.Lookup.Table.Name),
		asm.Add.Reg(asm.R3, reg),
		asm.LoadMem(asm.R3, asm.R3, 0, asm.Byte),
		asm.RSh.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, 1),
		asm.JEq.Imm(asm.R3, 0, no),
	)
}

// ethernet looks an Ethernet address up in a table of prefixes, as the upper 48 bits of an IPv6
// address.
func (c *Code) ethernet(reg asm.Register, t *plan.Table, no string) {
	if reg != asm.R1 {
		c.Emit(asm.Mov.Reg(asm.R1, reg))
	}
	c.Emit(asm.LSh.Imm(asm.R1, 16), asm.Mov.Imm(asm.R2, 0))
	t.Prefixes.Emit(c.Builder, t.Name)
	c.Emit(asm.JEq.Imm(asm.R0, 0, no))
}
