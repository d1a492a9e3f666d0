package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// builder is the assembler under short names.
type builder struct{ *assembler.Builder }

func (b builder) emit(ins ...asm.Instruction) { b.Emit(ins...) }
func (b builder) label(name string)           { b.Label(name) }
func (b builder) fresh(what string) string    { return b.Fresh(what) }
func (b builder) copy(to, from asm.Register)  { b.Forget(to, from) }
