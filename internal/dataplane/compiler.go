package dataplane

import (
	"sync"

	"levee/internal/filter/codegen"
	"levee/internal/filter/ir"
	"levee/internal/lang/policy"
)

// Compiler returns a function that compiles a policy for each target that is tried. Steps that do
// not depend on the target are done once.
func Compiler(p *policy.Policy) CompileFunc {
	lowered := sync.OnceValue(func() *ir.Program { return ir.Build(p) })
	return func(t codegen.Target) (*codegen.Program, error) {
		return codegen.CompileIR(lowered(), t)
	}
}

// besideCompiler compiles a policy as a shadow: beside one that says something of what leaves it
// says so, too, be it that all of that passes.
func besideCompiler(p *policy.Policy) CompileFunc {
	both := Compiler(p.WithOut())
	arriving := Compiler(p)
	return func(t codegen.Target) (*codegen.Program, error) {
		if t.Shadow.Leaves {
			return both(t)
		}
		return arriving(t)
	}
}

// Plainly compiles without the careful decoder, for kernels whose verifier refuses that decoder.
func Plainly(compile CompileFunc) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) {
		t.Plain = true
		return compile(t)
	}
}
