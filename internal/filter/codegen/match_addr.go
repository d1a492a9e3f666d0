package codegen

import (
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
		c.Prefixes(q.Cond, hi, lo, ip4, no)
		return
	}
	c.Forget(asm.R1, hi)
	if !ip4 {
		c.Field(asm.R2, lo, asm.DWord)
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

// tableLabel returns the function of the look-up in a table, for bytecode.
func tableLabel(t *plan.Table) string { return t.Name + "_lookup" }

// emitTableFunctions emits the functions of look-ups in tables, for bytecode.
func (c *compiler) emitTableFunctions() {
	for _, l := range c.Plan.Interpreter.Lookups {
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
