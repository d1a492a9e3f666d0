package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
)

// A plain program has the fast path alone. What that does not know has the verdict of the default:
// so there is no code of clang's in it, and no loop but those of tables that protect rules need.

// meets says whether packets of a class may come to its rules.
func (t Target) meets(class ir.Class) bool {
	return !t.Plain || !class.Fragment && class.Transport != ir.UDPLite && class.Transport != ir.SCTP &&
		class.Transport != ir.DCCP
}

// plainPath is in the place of slowPath and malformed.
func (c *compiler) plainPath() {
	c.label("slow")
	to := "drop"
	if c.prog.Policy.Default.Action == action.Pass {
		to = "pass"
	}
	last := len(c.prog.Policy.Slots()) - 1
	c.emit(asm.Mov.Imm32(asm.R0, int32(last*SlotBytes)), asm.Ja.Label(to))
	if c.separate {
		for _, ch := range c.chains {
			c.enterFromKey(ch)
		}
	}
}
