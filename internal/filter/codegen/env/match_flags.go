package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
)

// Flags asks for TCP flags by mask and value.
func (c *Code) Flags(q *ir.Cond, no string) {
	at, n := c.FieldAt(q.Field)
	c.Field(asm.R1, at, SizeOf(n))
	if q.Mask != 0xff {
		c.Emit(asm.And.Imm(asm.R1, int32(q.Mask)))
	}
	if q.Not {
		c.Emit(asm.JEq.Imm(asm.R1, int32(q.Value), no))
	} else {
		c.Emit(asm.JNE.Imm(asm.R1, int32(q.Value), no))
	}
}
