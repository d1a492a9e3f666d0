package codegen

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/logging"
	"levee/internal/filter/plan"
)

// log emits what a log does where it stands.
func (c *compiler) log(_ *scope, r *ir.Rule, e ir.Effect) {
	i := slices.IndexFunc(c.Plan.Logs, func(l plan.Log) bool { return l.Slot == r.Slot })
	on := c.Fresh("logged")
	if e.Value > 1 {
		c.Emit(
			asm.FnGetPrandomU32.Call(),
			asm.Mod.Imm32(asm.R0, int32(e.Value)),
			asm.JNE.Imm(asm.R0, 0, on),
		)
	}
	c.Context(asm.R1)
	c.Field(asm.R2, env.KeyBytes, asm.Word)
	c.Emit(asm.Call.Label(logging.Label(i)))
	c.Label(on)
}
