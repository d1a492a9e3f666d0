// Package assembler writes eBPF functions: instructions in order, labels, and the types that the
// kernel wants of functions. Everybody who writes instructions by hand writes them here, so that
// a label means the same everywhere.
//
// In go instructions and labels; out comes a program that a loader takes. The package knows no
// policies, no packets and no tables, and opens and loads nothing.
//
// A label names the next instruction. Any number of labels may name the same one. A label is
// there once in a program: Fresh makes names that nobody else has, and functions that are called
// keep the names that their callers know. Jumps, calls and addresses of functions refer to
// labels; loads of maps refer to maps, whose names are apart.
package assembler

import (
	"fmt"
	"math"
	"strconv"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Builder collects the instructions of a program or of a part of one. The zero value is not
// ready: use New.
type Builder struct {
	// Clock is a map with the jiffies that programs go by, for tests; "" for those of the kernel.
	Clock string

	ins     asm.Instructions
	at      map[string]int // label to the instruction that it names
	waiting []string       // labels that were placed since the last instruction
	begins  *btf.Func      // the function that begins with the next instruction
	program *program

	// labels that the first so many instructions refer to
	referred map[string]bool
	looked   int
}

// program is shared by all parts of one program.
type program struct {
	labels int
	err    error // the first mistake
}

// New begins a program.
func New() *Builder {
	return &Builder{at: map[string]int{}, referred: map[string]bool{}, program: &program{}}
}

// Aside begins a part of the same program that is made now and comes later: see Append.
func (b *Builder) Aside() *Builder {
	return &Builder{Clock: b.Clock, at: map[string]int{}, referred: map[string]bool{},
		program: b.program}
}

// Append adds a part that was made aside. The part must not be used any more.
func (b *Builder) Append(part *Builder) {
	first := len(b.ins)
	if len(part.ins) > 0 {
		b.Emit(part.ins...)
	}
	for label, at := range part.at {
		b.place(label, first+at)
	}
	b.waiting = append(b.waiting, part.waiting...)
}

// Emit adds instructions. They carry references, but no labels of their own.
func (b *Builder) Emit(ins ...asm.Instruction) {
	if len(ins) == 0 {
		return
	}
	first := len(b.ins)
	b.ins = append(b.ins, ins...)
	b.waiting = b.waiting[:0]
	if b.begins != nil {
		name := b.begins.Name
		b.ins[first] = btf.WithFuncMetadata(b.ins[first].WithSymbol(name), b.begins)
		b.begins = nil
	}
}

// Jiffies leaves the time in R0. R1 to R5 are free.
func (b *Builder) Jiffies() {
	if b.Clock == "" {
		b.Emit(asm.FnJiffies64.Call())
		return
	}
	b.Emit(
		asm.LoadMapValue(asm.R0, 0, 0).WithReference(b.Clock),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
	)
}

// CompareAndSwap stores a value of 64 bits at an address if R0 is what is there, in one step, and
// leaves in R0 what was there.
func (b *Builder) CompareAndSwap(address, value asm.Register) {
	in := asm.CmpXchg.Mem(address, value, asm.DWord, 0)
	// What the library writes of an atomic instruction is its Constant, which it does not set
	// (cilium/ebpf v0.22.0, Instruction.Marshal).
	in.Constant = int64(asm.CmpXchg >> 8)
	b.Emit(in)
}

// Label names the next instruction.
func (b *Builder) Label(name string) {
	b.place(name, len(b.ins))
	b.waiting = append(b.waiting, name)
}

func (b *Builder) place(label string, at int) {
	if _, ok := b.at[label]; ok {
		b.fail("label %s is there twice", label)
	}
	b.at[label] = at
}

// Fresh makes the name of a label that the program does not have yet. Names given to Label have
// no dot.
func (b *Builder) Fresh(what string) string {
	b.program.labels++
	return what + "." + strconv.Itoa(b.program.labels)
}

// End says that nothing falls through or jumps behind the last instruction: labels that wait for
// the next one are dropped. Finish reports a jump to one of them.
func (b *Builder) End() {
	for _, label := range b.waiting {
		delete(b.at, label)
	}
	b.waiting = b.waiting[:0]
}

// Referenced reports whether an instruction so far refers to a label.
func (b *Builder) Referenced(label string) bool {
	for ; b.looked < len(b.ins); b.looked++ {
		if to := b.ins[b.looked].Reference(); to != "" {
			b.referred[to] = true
		}
	}
	return b.referred[label]
}

// Forget gives a register's value without what the verifier knows of it. A compare teaches the
// verifier about the register, all its copies, and the stack slot that holds its value; after a
// rule that did not match it would walk all later rules once for each thing it has learned. The
// operation that changes nothing cuts the tie.
func (b *Builder) Forget(to, from asm.Register) {
	if to != from {
		b.Emit(asm.Mov.Reg(to, from))
	}
	b.Emit(asm.Or.Imm(to, 0))
}

// Meet joins ways that have found one of several slots. From label at[i] it adds i*size to
// the address, from met R2; there is a power of two of slots. The verifier would walk what follows
// once for each way, but it does not remember a byte of the stack that is not on a multiple of 8.
// Overwrites R2.
func (b *Builder) Meet(at []string, met string, address asm.Register, size int, stack int16) {
	for i := range at {
		b.Label(at[i])
		b.Emit(asm.Mov.Imm(asm.R2, int32(i*size)))
		if i < len(at)-1 {
			b.Emit(asm.Ja.Label(met))
		}
	}
	b.Label(met)
	b.Emit(
		asm.StoreMem(asm.R10, stack, asm.R2, asm.Byte),
		asm.LoadMem(asm.R2, asm.R10, stack, asm.Byte),
		asm.And.Imm(asm.R2, int32((len(at)-1)*size)),
		asm.Add.Reg(address, asm.R2),
	)
}

// Finish gives the program, which the builder loses. The error is a mistake of who wrote it: a
// label that is there twice, or a reference to one that is not there.
func (b *Builder) Finish() (asm.Instructions, error) {
	ins := b.ins
	b.ins = nil
	for i := range ins {
		label := target(&ins[i])
		if label == "" {
			continue
		}
		at, ok := b.at[label]
		if !ok || at == len(ins) {
			b.fail("no instruction has the label %s", label)
			break
		}
		switch symbol := ins[at].Symbol(); symbol {
		case label:
		case "":
			ins[at] = ins[at].WithSymbol(label)
		default:
			ins[i] = ins[i].WithReference(symbol)
		}
	}
	if err := b.program.err; err != nil {
		return nil, err
	}
	return ins, nil
}

// MustFinish is Finish for a program whose labels depend on nothing that is known at run time
// only.
func (b *Builder) MustFinish() asm.Instructions {
	ins, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return ins
}

func (b *Builder) fail(format string, args ...any) {
	if b.program.err == nil {
		b.program.err = fmt.Errorf("assemble eBPF instructions: "+format, args...)
	}
}

// target returns the label that an instruction refers to, or "".
func target(in *asm.Instruction) string {
	if in.IsLoadFromMap() {
		return ""
	}
	return in.Reference()
}

// Length counts instructions as the kernel does: a load of 64 bits is two.
func Length(ins asm.Instructions) (n int) {
	for i := range ins {
		n += int(ins[i].Size() / asm.InstructionSize)
	}
	return n
}

// Len returns where the next instruction will be, for Since.
func (b *Builder) Len() int { return len(b.ins) }

// Since counts the instructions from one on, as Length does.
func (b *Builder) Since(first int) int { return Length(b.ins[first:]) }

// FarJump reports whether a jump does not reach its label: an offset has 16 bits.
func FarJump(ins asm.Instructions) bool {
	at := map[string]int{} // in units of 8 bytes, as jumps count
	offset := 0
	for i := range ins {
		if s := ins[i].Symbol(); s != "" {
			at[s] = offset
		}
		offset += int(ins[i].Size() / asm.InstructionSize)
	}
	offset = 0
	for i := range ins {
		offset += int(ins[i].Size() / asm.InstructionSize)
		// What has no label is code of clang's, within one function.
		op, label := ins[i].OpCode, ins[i].Reference()
		if !op.Class().IsJump() || op.JumpOp() == asm.Call || label == "" {
			continue
		}
		if d := at[label] - offset; d > math.MaxInt16 || d < math.MinInt16 {
			return true
		}
	}
	return false
}
