package codegen_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/packet"
)

// flow holds the instructions of a program and the successors of each within its function.
type flow struct {
	ins     asm.Instructions
	symbols map[string]int
	next    [][]int
	before  [][]int // the same, backwards
	first   []int   // of each function
	falls   []bool
}

func flowOf(t *testing.T, ins asm.Instructions) *flow {
	t.Helper()
	symbols, err := ins.SymbolOffsets()
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{ins: ins, symbols: symbols, next: make([][]int, len(ins)),
		before: make([][]int, len(ins)), falls: make([]bool, len(ins))}
	var places []int // instructions of 64 bit constants are two to a jump by number
	at := make([]int, len(ins))
	for i := range ins {
		at[i] = len(places)
		for range ins[i].Size() / asm.InstructionSize {
			places = append(places, i)
		}
	}
	for i := range ins {
		if btf.FuncMetadata(&ins[i]) != nil || i == 0 {
			f.first = append(f.first, i)
		}
		op := ins[i].OpCode.JumpOp()
		jumps := ins[i].OpCode.Class().IsJump() && op != asm.Call
		to := i + 1
		if jumps && op != asm.Exit {
			var ok bool
			if to, ok = symbols[ins[i].Reference()]; !ok {
				to = places[at[i]+1+int(ins[i].Offset)]
			}
		}
		switch {
		case op == asm.Exit:
		case !jumps:
			f.next[i], f.falls[i] = []int{i + 1}, true
		case op == asm.Ja:
			f.next[i] = []int{to}
		default:
			f.next[i] = []int{i + 1, to}
		}
		for _, to := range f.next[i] {
			f.before[to] = append(f.before[to], i)
		}
	}
	return f
}

// loops calls back for each way back: to the instruction that a loop begins with, from the one that
// closes it.
func (f *flow) loops(back func(from, to int)) {
	const open, done = 1, 2
	state := make([]byte, len(f.ins))
	var walk func(i int)
	walk = func(i int) {
		state[i] = open
		for _, to := range f.next[i] {
			if state[to] == 0 {
				walk(to)
			} else if state[to] == open {
				back(i, to)
			}
		}
		state[i] = done
	}
	for _, i := range f.first {
		if state[i] == 0 {
			walk(i)
		}
	}
}

// body gives the instructions of the loop that the way back from one instruction to another closes.
func (f *flow) body(from, to int) map[int]bool {
	in := map[int]bool{to: true}
	for todo := []int{from}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !in[i] {
			in[i] = true
			todo = append(todo, f.before[i]...)
		}
	}
	return in
}

// olderFaults says what verifiers that levee supports refuse, or would not learn from, in loops,
// results and stacks of a program, and how many loops there are.
func olderFaults(t *testing.T, ins asm.Instructions) (faults []string, loops int) {
	t.Helper()
	f := flowOf(t, ins)
	// The smallest loop that counts a register down at each instruction: rules behind bytecode are
	// in a loop with the interpreter, by its ways back, which nothing counts down.
	counts := map[int]map[int]bool{}
	f.loops(func(from, to int) {
		loops++
		// push_insn of kernel/bpf/verifier.c before Linux 6.6: only jumps may lead back.
		if f.falls[from] {
			faults = append(faults,
				fmt.Sprintf("instruction %d, %v, falls into the loop that it is part of", from,
					ins[from]))
		}
		body := f.body(from, to)
		for i := range body {
			if op := ins[i].OpCode; op.Class().IsALU() && op.ALUOp() == asm.Sub &&
				op.Source() == asm.ImmSource && (counts[i] == nil || len(body) < len(counts[i])) {
				counts[i] = body
			}
		}
	})
	// reg_set_min_max before Linux 6.8 learns nothing from "not equal".
	for at, body := range counts {
		for i := range body {
			op := ins[i].OpCode
			if j := op.JumpOp(); (j == asm.JEq || j == asm.JNE) && op.Source() == asm.ImmSource &&
				ins[i].Dst == ins[at].Dst {
				faults = append(faults,
					fmt.Sprintf("instruction %d, %v, bounds what the loop counts down by equality",
						i, ins[i]))
			}
		}
	}
	for _, i := range f.first {
		if meta := btf.FuncMetadata(&ins[i]); meta != nil && meta.Linkage != btf.GlobalFunc {
			continue
		}
		if exit, ok := f.unset(i); ok {
			faults = append(faults, fmt.Sprintf("the function at instruction %d returns at %d "+
				"without a result", i, exit))
		}
	}
	if n, calls := f.stack(0, map[int]deep{}); n > maxStack {
		faults = append(faults, fmt.Sprintf("%s: %d bytes of stack, of %d", calls, n, maxStack))
	}
	return faults, loops
}

// maxStack is the limit, in bytes, of the stacks of functions that call one another
// (MAX_BPF_STACK). Each takes a multiple of stackUnit (check_max_stack_depth of
// kernel/bpf/verifier.c), from Linux 6.13 on of 16.
const (
	maxStack  = 512
	stackUnit = 32
)

// deep are the calls from a function on that take the most bytes.
type deep struct {
	bytes int
	calls string
}

// stack returns the largest stack, in bytes, of a function with all that it calls, and the calls
// that lead there.
func (f *flow) stack(first int, known map[int]deep) (bytes int, calls string) {
	if d, ok := known[first]; ok {
		return d.bytes, d.calls
	}
	frame, of := 1, map[asm.Register]bool{asm.R10: true}
	for i := first; i < len(f.ins) && (i == first || btf.FuncMetadata(&f.ins[i]) == nil); i++ {
		in := &f.ins[i]
		op, class := in.OpCode, in.OpCode.Class()
		switch {
		case class.IsStore() && of[in.Dst], class == asm.LdXClass && of[in.Src]:
			frame = max(frame, -int(in.Offset))
		case class.IsALU() && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && of[in.Dst]:
			frame = max(frame, -int(in.Constant))
		}
		if !class.IsStore() && in.Dst != asm.R10 { // does it hold the address of the frame?
			of[in.Dst] = class.IsALU() && op.ALUOp() == asm.Mov &&
				op.Source() == asm.RegSource && in.Src == asm.R10
		}
		if to, ok := f.symbols[in.Reference()]; ok && in.IsFunctionReference() {
			if n, below := f.stack(to, known); n > bytes {
				bytes, calls = n, ", "+below
			}
		}
	}
	frame = (frame + stackUnit - 1) / stackUnit * stackUnit
	bytes, calls = bytes+frame, fmt.Sprintf("%s %d%s", f.ins[first].Symbol(), frame, calls)
	known[first] = deep{bytes, calls}
	return bytes, calls
}

// unset finds a way from the beginning of a function to a return on which R0 is no number: nothing
// has set it, or it is the pointer that a helper gave. Clang sets none where a result is always the
// same, and check_return_code of kernel/bpf/verifier.c wants a number of each global function,
// which newer verifiers do not.
func (f *flow) unset(first int) (exit int, found bool) {
	type state struct {
		at     int
		number bool // R0 is one
	}
	seen := make([][2]bool, len(f.ins)) // without a number and with one
	for todo := []state{{at: first}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		known := &seen[s.at][0]
		if s.number {
			known = &seen[s.at][1]
		}
		if *known {
			continue
		}
		*known = true
		ins := &f.ins[s.at]
		op, class := ins.OpCode.JumpOp(), ins.OpCode.Class()
		for k, to := range f.next[s.at] {
			next := state{to, s.number}
			switch {
			case op == asm.Call && class.IsJump():
				next.number = !ins.IsBuiltinCall() || !pointers[asm.BuiltinFunc(ins.Constant)]
			case !class.IsJump():
				next.number = s.number || ins.Dst == asm.R0 && !class.IsStore()
			case ins.Dst == asm.R0 && ins.Constant == 0 && ins.OpCode.Source() == asm.ImmSource:
				next.number = s.number || op == asm.JEq && k == 1 || op == asm.JNE && k == 0
			}
			todo = append(todo, next)
		}
		if op == asm.Exit && !s.number {
			return s.at, true
		}
	}
	return 0, false
}

// pointers lists the helpers that return a pointer or nil.
var pointers = map[asm.BuiltinFunc]bool{asm.FnMapLookupElem: true, asm.FnSkcLookupTcp: true,
	asm.FnSkLookupTcp: true, asm.FnSkLookupUdp: true, asm.FnRingbufReserve: true,
	asm.FnTcpSock: true, asm.FnSkFullsock: true, asm.FnGetListenerSock: true}

// The decoders for devices without Ethernet headers are functions of their own.
func TestOlderVerifiersTakeLoopsWithoutEthernet(t *testing.T) {
	p := resolved(t, "drop from 192.0.2.0/24 tcp port { 22, 80 }\ndefault pass\n")
	for _, target := range []codegen.Target{{}, {Frags: true}, {Hook: codegen.TCX}} {
		target.Link = packet.L3
		prog, err := codegen.Compile(p, target)
		if err != nil {
			t.Fatal(err)
		}
		ins := prog.Spec.Programs[codegen.ProgramName].Instructions
		faults, _ := olderFaults(t, ins)
		for _, fault := range faults {
			t.Errorf("%+v: %s", target, fault)
		}
	}
}

// TestFaultsOfOlderVerifiersAreSeen shows that the test above would say so.
func TestFaultsOfOlderVerifiersAreSeen(t *testing.T) {
	decrement, result := asm.Sub.Imm(asm.R1, 1), asm.Mov.Imm(asm.R0, 0)
	for name, c := range map[string]struct {
		code []any // labels and instructions
		want int
	}{
		"by order": {[]any{
			asm.Mov.Imm(asm.R1, 3),
			"again", decrement, asm.JGT.Imm(asm.R1, 0, "again"), result, asm.Return(),
		}, 0},
		"by equality": {[]any{
			asm.Mov.Imm(asm.R1, 3),
			"again", decrement, asm.JNE.Imm(asm.R1, 0, "again"), result, asm.Return(),
		}, 1},
		"within another, which asks the register for something else": {[]any{
			"outer", asm.Mov.Imm(asm.R2, 3),
			"again", asm.Sub.Imm(asm.R2, 1), asm.JGT.Imm(asm.R2, 0, "again"),
			asm.Mov.Reg(asm.R2, asm.R1), asm.JEq.Imm(asm.R2, 0, "done"), asm.Ja.Label("outer"),
			"done", result, asm.Return(),
		}, 0},
		"fallen into": {[]any{
			asm.Ja.Label("ask"),
			"again", decrement,
			"ask", asm.JLT.Imm(asm.R1, 1, "done"), asm.Ja.Label("again"),
			"done", result, asm.Return(),
		}, 1},
		"a result on one way": {[]any{
			asm.JEq.Imm(asm.R1, 0, "done"), result, "done", asm.Return(),
		}, 1},
		"a pointer": {[]any{asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "done"),
			asm.Mov.Imm(asm.R1, 0), "done", asm.Return()}, 1},
		"a pointer that is nil": {[]any{asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "done"),
			result, "done", asm.Return()}, 0},
		"no result": {[]any{asm.Mov.Imm(asm.R2, 0), asm.Return()}, 1},
		"a whole stack": {[]any{asm.StoreImm(asm.R10, -512, 0, asm.DWord), result,
			asm.Return()}, 0},
		"a stack too large": {[]any{asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, -520),
			result, asm.Return()}, 1},
	} {
		b := assembler.New()
		for _, part := range c.code {
			switch x := part.(type) {
			case string:
				b.Label(x)
			case asm.Instruction:
				b.Emit(x)
			}
		}
		if got, _ := olderFaults(t, b.MustFinish()); len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
	}
}
