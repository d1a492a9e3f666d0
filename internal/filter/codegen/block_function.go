package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/plan"
)

func (c *compiler) callFunction(f *plan.Function) {
	c.giveEnv()
	if c.givesContext(f.Rules) {
		c.Context(asm.R2)
	}
	c.Emit(asm.Call.Label(functionLabel(f)))
}

// emitFunction emits straight code and rule trees as a function of the environment. It returns the
// word of the response (plan.Response) of the rule that decided, or 0. It is global: the verifier
// walks it by itself.
func (c *compiler) emitFunction(f *plan.Function) {
	c.InFunction = true
	defer func() { c.InFunction = false }()
	c.BeginFunction(functionLabel(f), c.givesContext(f.Rules))
	c.BeginCounts(f.Rules)
	c.loadRegs(&f.Asks)
	in := &scope{family: f.Family, within: f.Within, holds: f.Asks}
	for _, b := range f.Do {
		c.block(in, b)
	}
	if f.Ends {
		c.End() // nothing jumps behind it
		return
	}
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

func functionLabel(f *plan.Function) string { return fmt.Sprintf("part_%d", f.Number) }
