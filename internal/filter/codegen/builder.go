package codegen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// builder collects instructions. Labels are unique names; a label names the next instruction.
type builder struct {
	ins     asm.Instructions
	pending []string          // labels that wait for the next instruction
	alias   map[string]string // labels that share an instruction with another
	labels  int
}

func newBuilder() *builder { return &builder{alias: map[string]string{}} }

// emit appends instructions.
func (b *builder) emit(ins ...asm.Instruction) {
	for _, in := range ins {
		if len(b.pending) > 0 {
			if in.Symbol() == "" {
				in = in.WithSymbol(b.pending[0])
			} else {
				b.alias[b.pending[0]] = in.Symbol()
			}
			for _, l := range b.pending[1:] {
				b.alias[l] = b.pending[0]
			}
			b.pending = b.pending[:0]
		}
		b.ins = append(b.ins, in)
	}
}

// label names the next instruction.
func (b *builder) label(name string) { b.pending = append(b.pending, name) }

// fresh makes a label name.
func (b *builder) fresh(what string) string {
	b.labels++
	return fmt.Sprintf("%s_%d", what, b.labels)
}

// referenced reports whether some instruction so far jumps to a label.
func (b *builder) referenced(label string) bool {
	return slices.ContainsFunc(b.ins, func(in asm.Instruction) bool { return in.Reference() == label })
}

// finish resolves labels that share an instruction.
func (b *builder) finish() asm.Instructions {
	for i := range b.ins {
		for {
			to, ok := b.alias[b.ins[i].Reference()]
			if !ok {
				break
			}
			b.ins[i] = b.ins[i].WithReference(to)
		}
	}
	return b.ins
}

// copy gives a register's value without what the verifier knows of it. A compare teaches the verifier
// about the register, about all copies of it and about the stack slot it was loaded from; after
// a rule that did not match it would walk all later rules once for each thing it has learned. The
// operation that changes nothing cuts the tie.
func (b *builder) copy(to, from asm.Register) {
	if to != from {
		b.emit(asm.Mov.Reg(to, from))
	}
	b.emit(asm.Or.Imm(to, 0))
}
