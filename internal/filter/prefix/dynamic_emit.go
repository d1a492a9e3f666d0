package prefix

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
)

// Stack bytes of the function that goes through the lengths, below R10.
const (
	stackTries = hashtable.StackFree     // how many lengths may still be tried, for the verifier
	stackLater = hashtable.StackFree - 8 // IPv6: the lengths up to 64
)

// DynamicFunction4 writes the look-up of an IPv4 address in a dynamic set with the given max, as a
// function `u64 symbol(u64 address)`, called with asm.Call.Label(symbol). For each prefix length in
// use it reads one bucket, sometimes two; the clock is read only when an entry is found.
//
// There are two functions, one that loops over the lengths and one that looks for a prefix of one
// length, called symbol_one; see hashtable.Code. As one function the loop took 15,000 instructions
// of the verifier's million, and 70,000 for IPv6.
func DynamicFunction4(b *assembler.Builder, mapName, symbol string, max int) {
	g := geometryOf(max)
	dynamicFunctions(b, mapName, symbol, g, g.v4, asm.R0, "address")
}

// DynamicFunction6 does the same for IPv6: `u64 symbol(u64 high, u64 low)`.
func DynamicFunction6(b *assembler.Builder, mapName, symbol string, max int) {
	g := geometryOf(max)
	dynamicFunctions(b, mapName, symbol, g, g.v6, asm.R0, "high", "low")
}

// NumberedFunction4 is DynamicFunction4 for all sets of one room (see FormatRoom), whose memories
// one array of maps holds: `u64 symbol(u64 address, u64 number)`, where number is the key of the
// set's memory. Where the map has none the answer is 0.
func NumberedFunction4(b *assembler.Builder, mapName, symbol string, room int) {
	g := geometryOf(room)
	dynamicFunctions(b, mapName, symbol, g, g.v4, asm.R2, "address")
}

// NumberedFunction6 does the same for IPv6: `u64 symbol(u64 high, u64 low, u64 number)`.
func NumberedFunction6(b *assembler.Builder, mapName, symbol string, room int) {
	g := geometryOf(room)
	dynamicFunctions(b, mapName, symbol, g, g.v6, asm.R3, "high", "low")
}

// dynamicFunctions writes both functions of the words of an address. The key of the set's memory is
// in register number, R0: there is none.
func dynamicFunctions(b *assembler.Builder, mapName, symbol string, g geometry, f family,
	number asm.Register, words ...string) {
	e := &dynamicEmitter{hashtable.Code{Builder: b, Layout: f.Layout, Map: mapName, Number: number},
		f, g}
	var address []assembler.Param
	for _, name := range words {
		address = append(address, assembler.Number(name))
	}
	address = slices.Clip(address)
	one := symbol + "_one"
	if number == asm.R0 {
		b.Global(symbol, address...)
	} else {
		b.Global(symbol, append(address, assembler.Number("number"))...)
	}
	e.all(one)
	params := append(address, assembler.Number("length"), assembler.Memory("set", g.size))
	if e.Far() {
		params = append(params, assembler.Memory("table", e.Size()))
	}
	b.Global(one, params...)
	e.one()
}

type dynamicEmitter struct {
	hashtable.Code
	f family
	g geometry
}

// all calls the function one for each length that the filter names, until it says yes.
func (e *dynamicEmitter) all(one string) {
	miss := e.Fresh("miss")
	e.Emit(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Reg(asm.R7, asm.R1))
	if !e.Narrow {
		e.Emit(asm.Mov.Reg(asm.R7, asm.R2))
	}
	e.Open(miss)
	e.bulk()
	e.wanted()
	if e.Narrow {
		e.try(one, 32, 33)
		e.Label(miss)
		e.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
		return
	}
	e.Emit(asm.StoreMem(asm.R10, stackLater, asm.R2, asm.DWord))
	e.try(one, 128, 64)
	e.Emit(asm.LoadMem(asm.R8, asm.R10, stackLater, asm.DWord))
	e.try(one, 64, 64)
	e.Pointer(asm.R5, e.f.counts) // of length 0
	e.Emit(
		asm.LoadMem(asm.R0, asm.R5, 0, asm.Word),
		asm.JEq.Imm(asm.R0, 0, miss),
		asm.Mov.Imm(asm.R3, 1),
	)
	e.call(one)
	e.Emit(asm.Return())
	e.Label(miss)
	e.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// wanted leaves the set of lengths to try in R8, for IPv6 those up to 64 in R2; see Dynamic.wanted.
func (e *dynamicEmitter) wanted() {
	word := func(dst asm.Register, offset int) {
		e.Pointer(asm.R5, offset)
		e.Emit(asm.LoadMem(dst, asm.R5, 0, asm.DWord))
	}
	end := e.Fresh("wanted")
	word(asm.R8, e.f.lengths+lengthsUsed)
	if !e.Narrow {
		word(asm.R2, e.f.lengths+lengthsUsed+8)
	}
	word(asm.R0, e.f.lengths)
	e.Emit(asm.JLE.Imm(asm.R0, few, end))
	if e.Narrow {
		e.Emit(asm.Mov.Reg32(asm.R3, asm.R6), asm.RSh.Imm(asm.R3, int32(32-e.f.bits)),
			asm.LSh.Imm(asm.R3, 3))
	} else {
		e.Emit(asm.Mov.Reg(asm.R3, asm.R6), asm.RSh.Imm(asm.R3, 64-hashed6))
		word(asm.R0, hashtable.AtSeeds+8)
		e.Emit(asm.Mul.Reg(asm.R3, asm.R0), asm.RSh.Imm(asm.R3, int32(64-e.f.bits)),
			asm.LSh.Imm(asm.R3, 4))
	}
	e.Pointer(asm.R4, e.f.filter)
	e.Emit(asm.Add.Reg(asm.R4, asm.R3))
	for w, set := range []asm.Register{asm.R8, asm.R2}[:e.f.words] {
		e.Emit(asm.LoadMem(asm.R3, asm.R4, int16(8*w), asm.DWord))
		if !e.Narrow {
			word(asm.R0, e.f.lengths+lengthsShort+8*w)
			e.Emit(asm.Or.Reg(asm.R3, asm.R0))
		}
		e.Emit(asm.And.Reg(set, asm.R3))
	}
	e.Label(end)
}

// try calls the function one for each length of the set in R8, whose lowest bit is the length top,
// and returns 1 if it says yes. most is how many bits can be set.
func (e *dynamicEmitter) try(one string, top, most int) {
	each, done := e.Fresh("each"), e.Fresh("tried")
	e.Emit(asm.Mov.Imm(asm.R1, int32(most)), asm.StoreMem(asm.R10, stackTries, asm.R1, asm.DWord))
	e.Label(each)
	length := asm.R2
	if !e.Narrow {
		length = asm.R3
	}
	e.Emit(
		asm.JEq.Imm(asm.R8, 0, done),
		asm.LoadMem(asm.R1, asm.R10, stackTries, asm.DWord),
		asm.JLT.Imm(asm.R1, 1, done),
		asm.Sub.Imm(asm.R1, 1),
		asm.StoreMem(asm.R10, stackTries, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Neg.Imm(asm.R1, 0),
		asm.And.Reg(asm.R1, asm.R8),
		asm.Xor.Reg(asm.R8, asm.R1),
		asm.LoadImm(asm.R2, lowestMultiplier, asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.RSh.Imm(asm.R1, 58),
	)
	e.Pointer(asm.R5, offLowest)
	e.Emit(
		asm.Add.Reg(asm.R5, asm.R1),
		asm.LoadMem(asm.R1, asm.R5, 0, asm.Byte),
		asm.Mov.Imm(length, int32(top+1)),
		asm.Sub.Reg(length, asm.R1),
	)
	e.call(one)
	e.Emit(
		asm.JEq.Imm(asm.R0, 0, each),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
	e.Label(done)
}

// call asks for the address and the length that is in its register already.
func (e *dynamicEmitter) call(one string) {
	memory := asm.R3
	if !e.Narrow {
		memory = asm.R4
	}
	e.Emit(asm.Mov.Reg(asm.R1, asm.R6))
	if !e.Narrow {
		e.Emit(asm.Mov.Reg(asm.R2, asm.R7))
	}
	e.Emit(asm.Mov.Reg(memory, asm.R9))
	if e.Far() {
		e.Pointer(memory+1, e.At)
	}
	e.Emit(asm.Call.Label(one))
}

// one looks for the prefix of one length, given + 1 behind the address, that holds the address: 1
// if it is there and its lease has not ended, else 0.
func (e *dynamicEmitter) one() {
	no := e.Fresh("no")
	if e.Far() { // behind the memory, and as it is
		table := asm.R4
		if !e.Narrow {
			table = asm.R5
		}
		e.Emit(
			asm.JEq.Imm(table, 0, no),
			asm.StoreMem(asm.R10, hashtable.StackTable, table, asm.DWord),
		)
	}
	if e.Narrow {
		e.Emit(asm.Mov.Reg(asm.R9, asm.R3), asm.Mov.Reg(asm.R4, asm.R2),
			asm.Mov.Reg32(asm.R1, asm.R1))
	} else {
		e.Emit(asm.Mov.Reg(asm.R9, asm.R4), asm.Mov.Reg(asm.R4, asm.R3),
			asm.StoreMem(asm.R10, hashtable.StackLo, asm.R2, asm.DWord))
	}
	e.Emit(
		asm.JEq.Imm(asm.R9, 0, no), // for the verifier: a pointer given to a function may be none
		asm.StoreMem(asm.R10, hashtable.StackHi, asm.R1, asm.DWord),
	)
	e.Search(no)
}
