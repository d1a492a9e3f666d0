package codegen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/filter/codegen"
)

// bytesOfStack are bytes of the stack of the main function, from the lowest.
type bytesOfStack [512]bool

func (b *bytesOfStack) set(off, n int64) {
	for i := off; i < off+n; i++ {
		if at := 512 + i; at >= 0 && at < 512 {
			b[at] = true
		}
	}
}

func (b *bytesOfStack) has(off, n int64) bool {
	for i := off; i < off+n; i++ {
		if at := 512 + i; at < 0 || at >= 512 || !b[at] {
			return false
		}
	}
	return true
}

// place is what is known of a register: that it points into the stack, or that it is a number.
type place struct {
	kind byte // 0: neither
	off  int64
}

const (
	onStack = 1 + iota
	aNumber
)

// written is what is known before an instruction.
type written struct {
	bytes bytesOfStack
	regs  [asm.R10 + 1]place
}

// join keeps what is known on both ways, and reports whether that is less than before.
func (w *written) join(o *written) (changed bool) {
	for i := range w.bytes {
		if w.bytes[i] && !o.bytes[i] {
			w.bytes[i], changed = false, true
		}
	}
	for r := range w.regs {
		if w.regs[r] != o.regs[r] && w.regs[r].kind != 0 {
			w.regs[r], changed = place{}, true
		}
	}
	return changed
}

// decoderFills is how much of struct key the careful decoder writes (begin, bpf/parse.h), whatever
// it thinks of the packet: all but the row, which the program fills itself.
const decoderFills = int64(unsafe.Offsetof(codegen.ParseKey{}.Row))

// unwritten names the reads of the main function, and the memory that it gives to others, of bytes
// of the stack that some way to them does not write. Whatever an earlier packet has left there
// would be judged.
func unwritten(t *testing.T, ins asm.Instructions) (out []string) {
	t.Helper()
	f := flowOf(t, ins)
	symbols, err := ins.SymbolOffsets()
	if err != nil {
		t.Fatal(err)
	}
	start := &written{}
	start.regs[asm.R10] = place{onStack, 0}
	before := map[int]*written{0: start}
	report := map[string]bool{}
	for todo := []int{0}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		w := *before[i]
		in := ins[i]
		w.step(in, ins, symbols, func(off, n int64) {
			report[fmt.Sprintf("instruction %d reads %d bytes at %d: %v", i, n, off, in)] = true
		})
		for _, n := range f.next[i] {
			if at := before[n]; at == nil {
				next := w
				before[n] = &next
			} else if !at.join(&w) {
				continue
			}
			todo = append(todo, n)
		}
	}
	for what := range report {
		out = append(out, what)
	}
	slices.Sort(out)
	return out
}

// step follows one instruction; bad is told what it reads that is not written.
func (w *written) step(in asm.Instruction, ins asm.Instructions, symbols map[string]int,
	bad func(off, n int64)) {
	op := in.OpCode
	class, register := op.Class(), op.Source() == asm.RegSource
	read := func(off, n int64) {
		for ; n > 0; off, n = off+1, n-1 {
			if !w.bytes.has(off, 1) {
				bad(off, n)
				return
			}
		}
	}
	switch {
	case op.JumpOp() == asm.Call:
		w.call(in, ins, symbols, read)
	case class == asm.ALU64Class && op.ALUOp() == asm.Mov && register:
		w.regs[in.Dst] = w.regs[in.Src]
	case (class == asm.ALU64Class || class == asm.ALUClass) && op.ALUOp() == asm.Mov:
		w.regs[in.Dst] = place{aNumber, in.Constant}
	case class == asm.ALU64Class && !register && op.ALUOp() == asm.Add && w.regs[in.Dst].kind != 0:
		w.regs[in.Dst].off += in.Constant
	case class == asm.ALU64Class || class == asm.ALUClass || class == asm.LdClass:
		w.regs[in.Dst] = place{}
	case class == asm.LdXClass:
		if p := w.regs[in.Src]; p.kind == onStack {
			read(p.off+int64(in.Offset), int64(op.Size().Sizeof()))
		}
		w.regs[in.Dst] = place{}
	case class == asm.StXClass || class == asm.StClass:
		if p := w.regs[in.Dst]; p.kind == onStack {
			if op.Mode() != asm.MemMode {
				read(p.off+int64(in.Offset), int64(op.Size().Sizeof()))
			}
			w.bytes.set(p.off+int64(in.Offset), int64(op.Size().Sizeof()))
		}
	}
}

// call follows a call: functions that are given memory read all of it, helpers what their arguments
// say.
func (w *written) call(in asm.Instruction, ins asm.Instructions, symbols map[string]int,
	read func(off, n int64)) {
	switch {
	case strings.HasPrefix(in.Reference(), "parse_"):
		w.bytes.set(w.regs[asm.R1].off, decoderFills)
	case in.IsFunctionCall():
		meta := btf.FuncMetadata(&ins[symbols[in.Reference()]])
		for k, param := range meta.Type.(*btf.FuncProto).Params {
			at := w.regs[asm.R1+asm.Register(k)]
			pointer, ok := param.Type.(*btf.Pointer)
			if at.kind != onStack || !ok {
				continue
			}
			size, err := btf.Sizeof(pointer.Target)
			if err != nil {
				panic(err)
			}
			read(at.off, int64(size))
		}
	case in.IsBuiltinCall():
		switch asm.BuiltinFunc(in.Constant) {
		case asm.FnSkcLookupTcp, asm.FnSkLookupUdp:
			if p := w.regs[asm.R2]; p.kind == onStack {
				read(p.off, w.regs[asm.R3].off)
			}
		case asm.FnXdpLoadBytes, asm.FnSkbLoadBytes:
			if p := w.regs[asm.R3]; p.kind == onStack && w.regs[asm.R4].kind == aNumber {
				w.bytes.set(p.off, w.regs[asm.R4].off)
			}
		}
	}
	for r := range asm.R6 {
		w.regs[r] = place{}
	}
}

// At tc, where a tag, or a merged packet, sends a packet to the careful decoder first of all, the
// word of what is known of tunnels was not written: rules asked what an earlier packet had left
// there, and tagged datagrams passed `inner( ... )` behind one packet of VXLAN.
func TestNothingIsReadFromTheStackThatNoWayHasWritten(t *testing.T) {
	policies := manyPolicies(t)
	policies["evasion"] = resolve(t, "pass udp inner( tcp port 80 )\ndefault drop\n")
	policies["without tunnels"] = resolve(t, "pass udp not inner( tcp port 80 )\ndefault drop\n")
	seen := 0
	for name, p := range policies {
		for _, target := range []codegen.Target{{CPUs: 4}, {CPUs: 4, Frags: true}, {CPUs: 1},
			{CPUs: 4, Hook: codegen.TCX}, {CPUs: 4, Trial: true, Hook: codegen.TCX}} {
			prog, err := codegen.Compile(p, target)
			if err != nil {
				continue
			}
			seen++
			body := slices.Clone(prog.Spec.Programs[codegen.ProgramName].Instructions)
			for _, what := range unwritten(t, body) {
				t.Errorf("%s, %+v: %s", name, target, what)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d programs were looked at", seen)
	}
}
