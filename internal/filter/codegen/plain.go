package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/lang/action"
)

// A plain program has the fast path alone. What that does not know has the verdict of the default:
// so there is no code of clang's in it, and no loop but those of tables that protect rules need.

// plainPath is in the place of slowPath and malformed.
func (c *compiler) plainPath() {
	c.Label("slow")
	to := "drop"
	if c.Plan.Program.Policy.Default.Action == action.Pass {
		to = "pass"
	}
	last := len(c.Plan.Program.Policy.Slots()) - 1
	c.Emit(asm.Mov.Imm32(asm.R0, int32(last)), asm.Ja.Label(to))
}
