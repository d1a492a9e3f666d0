package capture

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/net/bpf"

	"levee/internal/filter/assembler"
)

// Registers of a filter: A and X are those of its machine (McCanne and Jacobson, "The BSD Packet
// Filter", 1993), which has no calls.
const (
	regA      = asm.R0
	regPacket = asm.R1
	regHave   = asm.R2 // bytes of it that are there
	regBytes  = asm.R3 // of the whole frame
	regX      = asm.R4
	regAt     = asm.R5
	regEnd    = asm.R6
)

const scratchWords = 16

// translate makes of a filter a function that is given the packet, how many bytes of it there are,
// and how many the frame has. It returns 0 for packets that are not wanted; a load of what is not
// there ends the filter so.
func translate(filter []bpf.Instruction) (asm.Instructions, error) {
	f := translator{Builder: assembler.New()}
	f.Emit(asm.Mov.Imm32(regA, 0), asm.Mov.Imm32(regX, 0))
	for at := range scratchWords {
		f.Emit(asm.StoreImm(asm.R10, word(at), 0, asm.Word))
	}
	for i, in := range filter {
		f.Label(at(i))
		if err := f.instruction(i, in); err != nil {
			return nil, fmt.Errorf("instruction %d of the filter: %w", i, err)
		}
	}
	// what no instruction leads to is refused by the kernel
	if f.Referenced("not_there") {
		f.Label("not_there")
		f.Emit(asm.Mov.Imm(regA, 0), asm.Return())
	}
	return f.Finish()
}

type translator struct{ *assembler.Builder }

func at(i int) string { return fmt.Sprintf("filter_%d", i) }

func (f *translator) instruction(i int, in bpf.Instruction) error {
	switch in := in.(type) {
	case bpf.LoadConstant:
		f.Emit(asm.Mov.Imm32(register(in.Dst), int32(in.Val)))
	case bpf.LoadScratch:
		f.Emit(asm.LoadMem(register(in.Dst), asm.R10, word(in.N), asm.Word))
	case bpf.StoreScratch:
		f.Emit(asm.StoreMem(asm.R10, word(in.N), register(in.Src), asm.Word))
	case bpf.LoadAbsolute:
		return f.absolute(int(in.Off), in.Size)
	case bpf.LoadIndirect:
		return f.indirect(in.Off, in.Size)
	case bpf.LoadMemShift: // four times the lower half of a byte
		a := asm.R7
		f.Emit(asm.Mov.Reg32(a, regA))
		if err := f.absolute(int(in.Off), 1); err != nil {
			return err
		}
		f.Emit(
			asm.And.Imm32(regA, 15),
			asm.LSh.Imm32(regA, 2),
			asm.Mov.Reg32(regX, regA),
			asm.Mov.Reg32(regA, a),
		)
	case bpf.LoadExtension:
		if in.Num != bpf.ExtLen {
			return fmt.Errorf("%v is not there for packets that are captured", in)
		}
		f.Emit(asm.Mov.Reg32(regA, regBytes))
	case bpf.ALUOpConstant:
		op, ok := operations[in.Op]
		if !ok || in.Val == 0 && (in.Op == bpf.ALUOpDiv || in.Op == bpf.ALUOpMod) {
			return fmt.Errorf("%v means nothing", in)
		}
		f.Emit(op.Imm32(regA, int32(in.Val)))
	case bpf.ALUOpX:
		op, ok := operations[in.Op]
		if !ok {
			return fmt.Errorf("%v means nothing", in)
		}
		if in.Op == bpf.ALUOpDiv || in.Op == bpf.ALUOpMod {
			f.Emit(asm.JEq.Imm32(regX, 0, "not_there"))
		}
		f.Emit(op.Reg32(regA, regX))
	case bpf.NegateA:
		f.Emit(asm.Neg.Imm32(regA, 0))
	case bpf.TAX:
		f.Emit(asm.Mov.Reg32(regX, regA))
	case bpf.TXA:
		f.Emit(asm.Mov.Reg32(regA, regX))
	case bpf.Jump:
		f.Emit(asm.Ja.Label(at(i + 1 + int(in.Skip))))
	case bpf.JumpIf:
		return f.jump(i, in.Cond, in.SkipTrue, in.SkipFalse,
			func(op asm.JumpOp, to string) asm.Instruction {
				return op.Imm32(regA, int32(in.Val), to)
			})
	case bpf.JumpIfX:
		return f.jump(i, in.Cond, in.SkipTrue, in.SkipFalse,
			func(op asm.JumpOp, to string) asm.Instruction { return op.Reg32(regA, regX, to) })
	case bpf.RetA:
		f.Emit(asm.Return())
	case bpf.RetConstant:
		f.Emit(asm.Mov.Imm32(regA, int32(min(in.Val, 1))), asm.Return())
	default:
		return fmt.Errorf("%v is not known", in)
	}
	return nil
}

func register(r bpf.Register) asm.Register {
	if r == bpf.RegX {
		return regX
	}
	return regA
}

func word(n int) int16 { return int16(-8 - 8*n) }

var operations = map[bpf.ALUOp]asm.ALUOp{
	bpf.ALUOpAdd: asm.Add, bpf.ALUOpSub: asm.Sub, bpf.ALUOpMul: asm.Mul, bpf.ALUOpDiv: asm.Div,
	bpf.ALUOpOr: asm.Or, bpf.ALUOpAnd: asm.And, bpf.ALUOpShiftLeft: asm.LSh,
	bpf.ALUOpShiftRight: asm.RSh, bpf.ALUOpMod: asm.Mod, bpf.ALUOpXor: asm.Xor,
}

var sizes = map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word}

// read loads a number in network order that lies at a register plus an offset.
func (f *translator) read(from asm.Register, offset int16, size int) error {
	s, ok := sizes[size]
	if !ok {
		return fmt.Errorf("a load of %d bytes is not known", size)
	}
	f.Emit(asm.LoadMem(regA, from, offset, s))
	if size > 1 {
		f.Emit(asm.HostTo(asm.BE, regA, s))
	}
	return nil
}

func (f *translator) absolute(offset, size int) error {
	if offset < 0 || offset+size > Looks {
		f.Emit(asm.Ja.Label("not_there"))
		return nil
	}
	f.Emit(asm.JLT.Imm32(regHave, int32(offset+size), "not_there"))
	return f.read(regPacket, int16(offset), size)
}

func (f *translator) indirect(offset uint32, size int) error {
	f.Emit(
		asm.Mov.Reg32(regAt, regX),
		asm.Add.Imm32(regAt, int32(offset)),
		asm.JGT.Imm(regAt, int32(Looks-size), "not_there"),
		asm.Mov.Reg(regEnd, regAt),
		asm.Add.Imm(regEnd, int32(size)),
		asm.JGT.Reg(regEnd, regHave, "not_there"),
		asm.Add.Reg(regAt, regPacket),
	)
	return f.read(regAt, 0, size)
}

// jump branches on a comparison of A.
func (f *translator) jump(i int, test bpf.JumpTest, yes, no uint8,
	compare func(asm.JumpOp, string) asm.Instruction) error {
	t, ok := tests[test]
	if !ok {
		return fmt.Errorf("a jump if %v is not known", test)
	}
	if t.not {
		yes, no = no, yes
	}
	f.Emit(compare(t.op, at(i+1+int(yes))))
	if no > 0 {
		f.Emit(asm.Ja.Label(at(i + 1 + int(no))))
	}
	return nil
}

// tests are the comparisons; that for bits that are not set is a not of the other.
var tests = map[bpf.JumpTest]struct {
	op  asm.JumpOp
	not bool
}{
	bpf.JumpEqual: {asm.JEq, false}, bpf.JumpNotEqual: {asm.JNE, false},
	bpf.JumpGreaterThan: {asm.JGT, false}, bpf.JumpLessThan: {asm.JLT, false},
	bpf.JumpGreaterOrEqual: {asm.JGE, false}, bpf.JumpLessOrEqual: {asm.JLE, false},
	bpf.JumpBitsSet: {asm.JSet, false}, bpf.JumpBitsNotSet: {asm.JSet, true},
}
