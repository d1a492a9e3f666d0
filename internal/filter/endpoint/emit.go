package endpoint

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
)

// stackNumber is the place of the service below R10, in the function that goes through the shapes.
const stackNumber = hashtable.StackFree

// Function writes the look-up of an endpoint as a function `u64 symbol(u64 high, u64 low, u64
// service)`: the address left-aligned in 128 bits, an IPv4 address in the upper half of high, and
// protocol<<16 | port, with port 0 for protocols without ports. R0 is 1 if an entry of the set, of
// the given family and max, covers it, else 0.
//
// There are two functions, one that loops over the shapes in use and one, symbol_one, that looks
// for the entry of one shape; see hashtable.Code.
func Function(b *assembler.Builder, mapName, symbol string, max int, ip4 bool) {
	functions(b, mapName, symbol, max, ip4, false)
}

// NumberedFunction is Function for all sets of one room (see FormatRoom), whose memories one array
// of maps holds: `u64 symbol(u64 high, u64 low, u64 service, u64 number)`, where number is the key
// of the set's memory. Where the map has none the answer is 0.
func NumberedFunction(b *assembler.Builder, mapName, symbol string, room int, ip4 bool) {
	functions(b, mapName, symbol, room, ip4, true)
}

func functions(b *assembler.Builder, mapName, symbol string, room int, ip4, numbered bool) {
	e := &emitter{hashtable.Code{Builder: b, Layout: layoutOf(room), Map: mapName}}
	one := symbol + "_one"
	high, low, service := assembler.Number("high"), assembler.Number("low"),
		assembler.Number("service")
	if numbered {
		e.Number = asm.R4
		b.Global(symbol, high, low, service, assembler.Number("number"))
	} else {
		b.Global(symbol, high, low, service)
	}
	e.shapes(one, ip4)
	set := assembler.Memory("set", sizeFor(room))
	if e.Far() { // there are no more than five registers
		b.Global(one, high, low, assembler.Number("service_shape"), set,
			assembler.Memory("table", e.Size()))
	} else {
		b.Global(one, high, low, service, assembler.Number("shape"), set)
	}
	e.one()
}

type emitter struct{ hashtable.Code }

// shapes calls the function one for each shape in use, from the end of the list (see count), until
// it says yes.
func (e *emitter) shapes(one string, ip4 bool) {
	number, list := shapesOf(ip4)
	loop, miss := e.Fresh("loop"), e.Fresh("miss")
	e.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.StoreMem(asm.R10, stackNumber, asm.R3, asm.DWord),
	)
	e.Open(miss)
	e.Pointer(asm.R5, number)
	e.Emit(
		asm.LoadMem(asm.R8, asm.R5, 0, asm.Word),
		asm.JGT.Imm(asm.R8, MaxShapes, miss), // the verifier's bound
	)
	e.Label(loop)
	e.Emit(
		asm.JLT.Imm(asm.R8, 1, miss), // by order, see leaf of package ruletree
		asm.Sub.Imm(asm.R8, 1),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.LSh.Imm(asm.R3, 2),
	)
	e.Pointer(asm.R5, list)
	e.Emit(
		asm.Add.Reg(asm.R5, asm.R3),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.LoadMem(asm.R3, asm.R10, stackNumber, asm.DWord),
		asm.LoadMem(asm.R4, asm.R5, 0, asm.Word),
	)
	if e.Far() {
		e.Emit(asm.LSh.Imm(asm.R4, 32), asm.Or.Reg(asm.R3, asm.R4), asm.Mov.Reg(asm.R4, asm.R9))
		e.Pointer(asm.R5, e.At)
	} else {
		e.Emit(asm.Mov.Reg(asm.R5, asm.R9))
	}
	e.Emit(
		asm.Call.Label(one),
		asm.JEq.Imm(asm.R0, 0, loop),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
	e.Label(miss)
	e.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// one looks for the entry of one shape that covers address and service: 1 if it is there and its
// lease has not ended, else 0.
func (e *emitter) one() {
	no := e.Fresh("no")
	set := asm.R5
	if e.Far() {
		set = asm.R4
		e.Emit(
			asm.JEq.Imm(asm.R5, 0, no),
			asm.StoreMem(asm.R10, hashtable.StackTable, asm.R5, asm.DWord),
		)
	}
	e.Emit(
		asm.Mov.Reg(asm.R9, set),
		asm.JEq.Imm(asm.R9, 0, no), // for the verifier: a pointer given to a function may be none
		asm.StoreMem(asm.R10, hashtable.StackHi, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, hashtable.StackLo, asm.R2, asm.DWord),
	)
	if e.Far() {
		e.Emit(asm.Mov.Reg(asm.R4, asm.R3), asm.RSh.Imm(asm.R4, 32), asm.Mov.Reg32(asm.R3, asm.R3))
	}
	e.service()
	e.Search(no)
}

// service turns protocol<<16 | port in R3 and the shape in R4 into the service that the key has, in
// R8; the code of the length is the low byte of R4.
func (e *emitter) service() {
	e.Emit(
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 8),
		asm.And.Imm(asm.R0, 31), // bits of the port that count
		asm.Mov.Imm(asm.R2, 16),
		asm.Sub.Reg(asm.R2, asm.R0),
		asm.And.Imm(asm.R2, 31),
		asm.Mov.Reg(asm.R8, asm.R3),
		asm.And.Imm(asm.R8, 0xffff),
		asm.RSh.Reg(asm.R8, asm.R2),
		asm.LSh.Reg(asm.R8, asm.R2),
		asm.LSh.Imm(asm.R0, 16),
		asm.Or.Reg(asm.R8, asm.R0),
		asm.RSh.Imm(asm.R3, 16),
		asm.LSh.Imm(asm.R3, 24),
		asm.Or.Reg(asm.R8, asm.R3),
	)
}
