package prefix

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/hashtable"
)

// bulk returns what the bulk knows of the address in R6 and R7, or goes on. R8 is overwritten, and
// R7 of IPv4. See Dynamic.inBulk. Marks of both kinds are read first, so that nothing waits for
// them.
func (e *dynamicEmitter) bulk() {
	if e.g.bytes == 0 {
		return
	}
	table, known, end := e.Fresh("table"), e.Fresh("known"), e.Fresh("levels_end")
	head := int16(e.f.bulk.head)
	e.Emit(
		asm.LoadMem(asm.R8, asm.R9, head, asm.DWord),
		asm.JEq.Imm(asm.R8, 0, table),
		asm.JEq.Imm(asm.R8, -1, known),
	)
	e.Jiffies()
	e.Emit(asm.JGE.Reg(asm.R0, asm.R8, table))
	e.Label(known)
	if e.Narrow { // the address left-aligned
		e.Emit(asm.Mov.Reg(asm.R7, asm.R6), asm.LSh.Imm(asm.R7, 32))
	}
	e.bulkMarks()
	e.Emit(asm.Mov.Imm(asm.R2, 0))
	for i := range maxLevels {
		e.bulkLevel(head+int16(headLevels+sizeLevel*i), end, table)
	}
	e.Label(end)
	e.Emit(
		asm.And.Imm(asm.R2, 1),
		asm.RSh.Reg(asm.R8, asm.R2), // the mark of what left for members, of what came for others
		asm.And.Imm(asm.R8, 1),
		asm.JNE.Imm(asm.R8, 0, table),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.Return(),
	)
	e.Label(table)
}

// top returns the register that has the first 64 bits of the address, left-aligned.
func (e *dynamicEmitter) top() asm.Register {
	if e.Narrow {
		return asm.R7
	}
	return asm.R6
}

// bulkLevel looks into the level at an offset and sets bit 0 of R2 if it has the address. It goes
// to none if there is no such level. Which level has an address, if any, nobody can predict: a
// branch for it costs more than looking into all of them.
func (e *dynamicEmitter) bulkLevel(at int16, none, table string) {
	field := func(dst asm.Register, offset int16, size asm.Size) {
		e.Emit(asm.LoadMem(dst, asm.R9, at+offset, size))
	}
	other, next := e.Fresh("other"), e.Fresh("level")
	field(asm.R0, 0, asm.Byte)
	e.Emit(asm.JEq.Imm(asm.R0, noLevel, none))
	field(asm.R1, 1, asm.Byte)
	if e.Narrow {
		e.Emit(asm.Mov.Reg(asm.R3, asm.R7), asm.RSh.Reg(asm.R3, asm.R1),
			asm.JEq.Imm(asm.R0, directLevel, other))
	} else {
		e.Emit(asm.JEq.Imm(asm.R0, wideLevel, other),
			asm.Mov.Reg(asm.R3, asm.R6), asm.RSh.Reg(asm.R3, asm.R1))
	}
	test := func(word asm.Register, mask int32) { // of the bitmap in R0
		field(asm.R1, 2, asm.Byte)
		e.Emit(asm.Mov.Reg(asm.R3, word), asm.RSh.Reg(asm.R3, asm.R1), asm.And.Imm(asm.R3, mask),
			asm.RSh.Reg(asm.R0, asm.R3))
	}
	// Only 0 less 1 has the upper bit, of numbers without it: the difference of keys is in R4.
	same := func() {
		e.Emit(asm.Sub.Imm(asm.R4, 1), asm.RSh.Imm(asm.R4, 63), asm.And.Reg(asm.R0, asm.R4))
	}
	e.Emit(asm.Mov.Reg(asm.R4, asm.R3))
	field(asm.R1, 16, asm.DWord)
	e.Emit(asm.Mul.Reg(asm.R4, asm.R1))
	if e.Narrow {
		e.bulkSlot(at, 8, table)
		e.Emit(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Mov.Reg(asm.R4, asm.R0),
			asm.RSh.Imm(asm.R4, 32), asm.Xor.Reg(asm.R4, asm.R3))
		test(asm.R7, 31)
		same()
		e.Emit(asm.Or.Reg(asm.R2, asm.R0), asm.Ja.Label(next))
		e.Label(other)
		e.Emit(asm.LSh.Imm(asm.R3, 3))
		field(asm.R1, 12, asm.Word)
		e.Emit(asm.Add.Reg(asm.R3, asm.R1))
		e.inArena(asm.R3, 8, table)
		e.Emit(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord))
		test(asm.R7, 63)
		e.Emit(asm.Or.Reg(asm.R2, asm.R0))
		e.Label(next)
		return
	}
	e.bulkSlot(at, 16, table)
	e.Emit(asm.LoadMem(asm.R4, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R0, asm.R5, 8, asm.DWord))
	test(asm.R6, 63)
	same()
	e.Emit(asm.Or.Reg(asm.R2, asm.R0), asm.Ja.Label(next))
	e.Label(other)
	e.Emit(asm.Mov.Reg(asm.R3, asm.R7), asm.RSh.Reg(asm.R3, asm.R1), asm.Mov.Reg(asm.R4, asm.R6))
	field(asm.R1, 16, asm.DWord)
	e.Emit(asm.Mul.Reg(asm.R4, asm.R1))
	e.bulkFold()
	e.Emit(asm.Add.Reg(asm.R4, asm.R3), asm.LoadImm(asm.R0, mul3, asm.DWord),
		asm.Mul.Reg(asm.R4, asm.R0))
	e.bulkSlot(at, 24, table)
	e.Emit(
		asm.LoadMem(asm.R4, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R4, asm.R6),
		asm.LoadMem(asm.R0, asm.R5, 8, asm.DWord), asm.Xor.Reg(asm.R0, asm.R3),
		asm.Or.Reg(asm.R4, asm.R0), asm.Mov.Reg32(asm.R0, asm.R4), asm.RSh.Imm(asm.R4, 32),
		asm.Or.Reg(asm.R4, asm.R0), // without the upper bit
		asm.LoadMem(asm.R0, asm.R5, 16, asm.DWord),
	)
	test(asm.R7, 63)
	same()
	e.Emit(asm.Or.Reg(asm.R2, asm.R0))
	e.Label(next)
}

func (e *dynamicEmitter) bulkFold() {
	e.Emit(asm.Mov.Reg(asm.R0, asm.R4), asm.RSh.Imm(asm.R0, 32), asm.Xor.Reg(asm.R4, asm.R0))
}

// bulkSlot ends the hash in R4 and leaves the address of its slot, of so many bytes, in R5.
func (e *dynamicEmitter) bulkSlot(at int16, size int32, table string) {
	e.bulkFold()
	m, d := uint64(mul2), uint32(mulD)
	e.Emit(
		asm.LoadImm(asm.R0, int64(m), asm.DWord),
		asm.Mul.Reg(asm.R4, asm.R0),
		asm.LoadMem(asm.R1, asm.R9, at+3, asm.Byte),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Reg(asm.R0, asm.R1),
		asm.LSh.Imm(asm.R0, 1),
		asm.LoadMem(asm.R1, asm.R9, at+8, asm.Word),
		asm.Add.Reg(asm.R0, asm.R1),
	)
	e.inArena(asm.R0, 2, table)
	e.Emit(
		asm.LoadMem(asm.R0, asm.R5, 0, asm.Half),
		asm.Mul.Imm32(asm.R0, int32(d)),
		asm.Add.Reg32(asm.R4, asm.R0),
		asm.LoadMem(asm.R1, asm.R9, at+4, asm.Word),
		asm.Mul.Reg(asm.R4, asm.R1),
		asm.RSh.Imm(asm.R4, 32),
		asm.Mul.Imm(asm.R4, size),
		asm.LoadMem(asm.R1, asm.R9, at+12, asm.Word),
		asm.Add.Reg(asm.R4, asm.R1),
	)
	e.inArena(asm.R4, size, table)
}

// inArena leaves the address of an offset in the arena in R5. The compare is for the verifier,
// which does not know what a level says of itself.
func (e *dynamicEmitter) inArena(offset asm.Register, size int32, table string) {
	e.Emit(asm.JGT.Imm(offset, int32(e.g.bytes)-size, table))
	e.Pointer(asm.R5, e.g.arena)
	e.Emit(asm.Add.Reg(asm.R5, offset))
}

// bulkMarks leaves in R8 which marks the address's areas have, a bit for each kind.
func (e *dynamicEmitter) bulkMarks() {
	e.Emit(asm.Mov.Imm(asm.R4, 0), asm.Mov.Imm(asm.R8, 0))
	for i, top := range e.f.bulk.tops {
		e.Pointer(asm.R5, hashtable.AtSeeds)
		e.Emit(
			asm.LoadMem(asm.R0, asm.R5, int16(8*(1+i)), asm.DWord),
			asm.Mov.Reg(asm.R3, e.top()),
			asm.RSh.Imm(asm.R3, int32(64-top+6)),
			asm.Mul.Reg(asm.R3, asm.R0),
			asm.RSh.Imm(asm.R3, int32(64-e.f.bulk.bits)),
			asm.LSh.Imm(asm.R3, 4),
		)
		e.Pointer(asm.R5, e.f.bulk.marks)
		e.Emit(
			asm.Add.Reg(asm.R5, asm.R3),
			asm.Mov.Reg(asm.R3, e.top()),
			asm.RSh.Imm(asm.R3, int32(64-top)),
			asm.And.Imm(asm.R3, 63),
			asm.LoadMem(asm.R0, asm.R5, 8*added, asm.DWord),
			asm.RSh.Reg(asm.R0, asm.R3),
			asm.Or.Reg(asm.R8, asm.R0),
			asm.LoadMem(asm.R0, asm.R5, 8*deleted, asm.DWord),
			asm.RSh.Reg(asm.R0, asm.R3),
			asm.Or.Reg(asm.R4, asm.R0),
		)
	}
	e.Emit(asm.And.Imm(asm.R8, 1), asm.And.Imm(asm.R4, 1), asm.LSh.Imm(asm.R4, deleted),
		asm.Or.Reg(asm.R8, asm.R4))
}
