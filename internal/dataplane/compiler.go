package dataplane

import (
	"sync"

	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
	"levee/internal/lang/policy"
)

// Compiler compiles a policy for each hook that is tried. What no hook matters to is done once.
func Compiler(p *policy.Policy) CompileFunc {
	lowered := sync.OnceValue(func() *ir.Program { return ir.Build(p) })
	return func(t codegen.Target) (*codegen.Program, error) {
		return codegen.CompileIR(lowered(), t)
	}
}

// Plainly compiles without the careful decoder, which nothing but the kernel's verifier could
// refuse.
func Plainly(compile CompileFunc) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) {
		t.Plain = true
		return compile(t)
	}
}
