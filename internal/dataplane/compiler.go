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

// Plainly compiles without the careful decoder, which nothing but the kernel's verifier could
// refuse.
func Plainly(compile CompileFunc) CompileFunc {
	return func(t codegen.Target) (*codegen.Program, error) {
		t.Plain = true
		return compile(t)
	}
}
