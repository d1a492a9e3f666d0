package env

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
)

// Prefixes compares with a few prefixes.
func (c *Code) Prefixes(q *ir.Cond, hi asm.Register, lo int16, ip4 bool, no string) {
	yes := c.Fresh("yes")
	for i, p := range q.Prefixes {
		other := c.Fresh("other")
		last := i == len(q.Prefixes)-1
		switch {
		case q.Not:
			c.OnePrefix(p, hi, lo, ip4, other)
			c.Emit(asm.Ja.Label(no))
		case last:
			c.OnePrefix(p, hi, lo, ip4, no)
		default:
			c.OnePrefix(p, hi, lo, ip4, other)
			c.Emit(asm.Ja.Label(yes))
		}
		c.Label(other)
	}
	c.Label(yes)
}

// OnePrefix goes to no unless the address lies in p.
func (c *Code) OnePrefix(p netip.Prefix, hi asm.Register, lo int16, ip4 bool, no string) {
	if ip4 {
		v := FourBytes(p.Addr().As4())
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
		c.Field(asm.R3, lo, asm.DWord)
		c.half(asm.R3, binary.BigEndian.Uint64(a[8:]), p.Bits()-64, no)
	}
}

// half goes to no unless the first n bits, 1 to 64, of reg are those of v.
func (c *Code) half(reg asm.Register, v uint64, n int, no string) {
	if n < 64 {
		v >>= 64 - n
		c.Emit(asm.Mov.Reg(asm.R1, reg), asm.RSh.Imm(asm.R1, int32(64-n)))
	} else {
		c.Forget(asm.R1, reg)
	}
	c.compare(asm.JNE, asm.R1, v, true, no)
}
