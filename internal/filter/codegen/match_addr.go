package codegen

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/lang/field"
)

// Up to maxPrefixes prefixes are compared one by one in the rule; longer lists go to package
// prefix, which chooses a structure by size.
const maxPrefixes = 4

// address asks whether the source or destination lies in prefixes or in a dynamic set.
func (c *compiler) address(ch *chain, q *ir.Cond, no string) {
	hi, lo := regSrc, keySrcLo
	if q.Field == field.DstAddr {
		hi, lo = regDst, keyDstLo
	}
	ip4 := ch.family() == ir.IPv4
	if !q.Dynamic() && len(q.Prefixes) <= maxPrefixes {
		c.prefixes(q, hi, lo, ip4, no)
		return
	}
	c.copy(asm.R1, hi)
	if !ip4 {
		c.field(asm.R2, lo, asm.DWord)
		c.copy(asm.R2, asm.R2)
	}
	if q.Dynamic() {
		c.dynamic(q.Set, ip4)
	} else {
		c.static(q, ip4)
	}
	if q.Not {
		c.emit(asm.JNE.Imm(asm.R0, 0, no))
	} else {
		c.emit(asm.JEq.Imm(asm.R0, 0, no))
	}
}

// static looks the address in R1 (and R2) up in a table of prefixes; R0 is the answer.
func (c *compiler) static(q *ir.Cond, ip4 bool) {
	t := c.staticTable(q, ip4)
	t.Emit(c.Builder, t.name)
}

// staticTable is the table of a static set, made where it is asked for first.
func (c *compiler) staticTable(q *ir.Cond, ip4 bool) static {
	t, ok := c.statics[q.List]
	if !ok {
		t = c.newStatic(q, ip4)
		c.statics[q.List] = t
	}
	return t
}

// tableFunction makes a function of the look-up in a static set and gives its label.
func (c *compiler) tableFunction(q *ir.Cond, ip4 bool) string {
	t := c.staticTable(q, ip4)
	label := t.name + "_lookup"
	params := []assembler.Param{assembler.Number("high"), assembler.Number("low")}
	if ip4 {
		params = []assembler.Param{assembler.Number("address")}
	}
	code := c.Aside()
	code.Global(label, params...)
	t.Emit(code, t.name)
	code.Emit(asm.Return())
	c.tableLookups = append(c.tableLookups, code)
	return label
}

// static is a prefix table with its name.
type static struct {
	*prefix.Static
	name string
}

func (c *compiler) newStatic(q *ir.Cond, ip4 bool) static {
	family, build := "IPv6", prefix.NewStatic6
	if ip4 {
		family, build = "IPv4", prefix.NewStatic4
	}
	t := static{build(q.Prefixes), fmt.Sprintf("prefixes_%d", len(c.statics))}
	what := fmt.Sprintf("%d prefixes", len(q.Prefixes))
	if q.Set != nil {
		what = "set " + q.Set.Name
	}
	c.constant(t.name, t.Bytes())
	c.table(what+", "+family, t.Kind(), len(t.Bytes()), t.Why())
	return t
}

// prefixes compares with a few prefixes.
func (c *compiler) prefixes(q *ir.Cond, hi asm.Register, lo int16, ip4 bool, no string) {
	yes := c.fresh("yes")
	for i, p := range q.Prefixes {
		other := c.fresh("other")
		last := i == len(q.Prefixes)-1
		switch {
		case q.Not:
			c.onePrefix(p, hi, lo, ip4, other)
			c.emit(asm.Ja.Label(no))
		case last:
			c.onePrefix(p, hi, lo, ip4, no)
		default:
			c.onePrefix(p, hi, lo, ip4, other)
			c.emit(asm.Ja.Label(yes))
		}
		c.label(other)
	}
	c.label(yes)
}

// onePrefix goes to no unless the address lies in p.
func (c *compiler) onePrefix(p netip.Prefix, hi asm.Register, lo int16, ip4 bool, no string) {
	if ip4 {
		v := fourBytes(p.Addr().As4())
		if shift := 32 - p.Bits(); shift > 0 {
			v >>= shift
			c.emit(asm.Mov.Reg32(asm.R1, hi), asm.RSh.Imm32(asm.R1, int32(shift)))
		} else {
			c.copy(asm.R1, hi)
		}
		c.emit(asm.JNE.Imm32(asm.R1, word32(v), no))
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
		c.emit(asm.Mov.Reg(asm.R1, reg), asm.RSh.Imm(asm.R1, int32(64-n)))
	} else {
		c.copy(asm.R1, reg)
	}
	c.compare(asm.JNE, asm.R1, v, true, no)
}
