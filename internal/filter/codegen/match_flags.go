package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
)

// flags asks for TCP flags by mask and value.
func (c *compiler) flags(q *ir.Cond, no string) {
	at, n := c.fieldAt(q.Field)
	c.field(asm.R1, at, sizeOf(n))
	if q.Mask != 0xff {
		c.Emit(asm.And.Imm(asm.R1, int32(q.Mask)))
	}
	if q.Not {
		c.Emit(asm.JEq.Imm(asm.R1, int32(q.Value), no))
	} else {
		c.Emit(asm.JNE.Imm(asm.R1, int32(q.Value), no))
	}
}
