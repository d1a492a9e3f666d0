package assembler

import (
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Older makes the functions of an object that clang made such that verifiers before Linux 6.6 take
// their loops.
func Older(object asm.Instructions) (out asm.Instructions) {
	for len(object) > 0 {
		last := 1
		for last < len(object) && btf.FuncMetadata(&object[last]) == nil {
			last++
		}
		out = append(out, jumpIntoLoops(slices.Clone(object[:last]))...)
		object = object[last:]
	}
	return out
}

// jumpIntoLoops puts a jump to the next instruction in front of each loop that an instruction of
// its own falls into, as clang lays loops out. Verifiers before Linux 6.6 take only jumps for the
// way back ("back-edge from insn", push_insn of kernel/bpf/verifier.c). The kernel removes the jump
// once it has verified the program (opt_remove_nops). Jumps of the function are numbers of slots: a
// load of a 64 bit constant takes two.
func jumpIntoLoops(function asm.Instructions) asm.Instructions {
	for {
		ways := newWays(function)
		head := ways.fallenInto()
		if head < 0 {
			return function
		}
		for i := range function {
			if !leads(&function[i]) {
				continue
			}
			switch to := ways.target(i); {
			case i < head && to >= head:
				function[i].Offset++
			case i >= head && to < head:
				function[i].Offset--
			}
		}
		jump := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja)}
		function = slices.Insert(function, head, jump)
	}
}

// leads reports whether an instruction may go somewhere else within its function.
func leads(in *asm.Instruction) bool {
	class, op := in.OpCode.Class(), in.OpCode.JumpOp()
	return (class == asm.JumpClass || class == asm.Jump32Class) && op != asm.Call && op != asm.Exit
}

// ways are those through a function.
type ways struct {
	function asm.Instructions
	slot     []int // of each instruction
	at       []int // the instruction at each slot
}

func newWays(function asm.Instructions) *ways {
	w := &ways{function: function, slot: make([]int, len(function)),
		at: make([]int, 0, 2*len(function))}
	for i := range function {
		w.slot[i] = len(w.at)
		w.at = append(w.at, i)
		if function[i].OpCode.IsDWordLoad() {
			w.at = append(w.at, i)
		}
	}
	return w
}

// target returns the instruction to which a jump leads.
func (w *ways) target(i int) int { return w.at[w.slot[i]+1+int(w.function[i].Offset)] }

// fallenInto gives the first instruction of a loop that one of the loop falls into without a jump,
// or -1.
func (w *ways) fallenInto() int {
	const open, done = 1, 2 // being walked from, or walked from wholly
	state := make([]byte, len(w.function))
	found := -1
	var walk func(i int)
	walk = func(i int) {
		state[i] = open
		in := &w.function[i]
		op := in.OpCode.JumpOp()
		// of which the first is left out behind an exit and a jump, the second where nothing leads
		next := [2]int{i + 1, -1}
		if leads(in) {
			next[1] = w.target(i)
		}
		if op == asm.Exit || leads(in) && op == asm.Ja {
			next[0] = -1
		}
		for _, to := range next {
			switch {
			case to < 0:
			case state[to] == 0:
				walk(to)
			case state[to] == open && !leads(in):
				found = to
			}
		}
		state[i] = done
	}
	walk(0)
	return found
}
