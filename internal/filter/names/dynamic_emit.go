package names

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
	"levee/internal/lang/dnsname"
)

// stackWork is the key of the map that the function which reads messages works on, below R10.
const stackWork = hashtable.StackFree

// DynamicFunction writes the look-up in a dynamic set of names, laid out for room entries, as a
// function `u64 symbol(u64 labels)`: 1 if the set has the name that was read last on this CPU, of
// so many labels, or one that it is below, else 0.
//
// There are two functions, one that loops over the codes in use and one, symbol_one, that looks for
// the entry of one; see hashtable.Code.
func DynamicFunction(b *assembler.Builder, mapName, symbol string, room int) {
	dynamicFunctions(b, mapName, symbol, room, false)
}

// NumberedDynamicFunction is DynamicFunction for all sets of one room, whose memories one array of
// maps holds: `u64 symbol(u64 labels, u64 number)`, where number is the key of the set's memory.
// Where the map has none the answer is 0.
func NumberedDynamicFunction(b *assembler.Builder, mapName, symbol string, room int) {
	dynamicFunctions(b, mapName, symbol, room, true)
}

func dynamicFunctions(b *assembler.Builder, mapName, symbol string, room int, numbered bool) {
	c := &hashtable.Code{Builder: b, Layout: layoutOf(room), Map: mapName}
	one := symbol + "_one"
	labels := assembler.Number("labels")
	if numbered {
		c.Number = asm.R2
		b.Global(symbol, labels, assembler.Number("number"))
	} else {
		b.Global(symbol, labels)
	}
	emitCodes(c, one)
	b.Global(one, assembler.Number("digest"), assembler.Number("code"),
		assembler.Memory("set", tableEnd(room)))
	no := c.Fresh("no")
	c.Emit(
		asm.Mov.Reg(asm.R9, asm.R3),
		asm.JEq.Imm(asm.R9, 0, no), // for the verifier: a pointer given to a function may be none
		asm.Mov.Reg(asm.R4, asm.R2),
	)
	c.Search(no)
}

// emitCodes calls the function one for each code in use, from the end of the list (see
// index.Count), until it says yes.
func emitCodes(c *hashtable.Code, one string) {
	loop, miss, below, found, ask := c.Fresh("loop"), c.Fresh("miss"), c.Fresh("below"),
		c.Fresh("found"), c.Fresh("ask")
	c.Emit(asm.Mov.Reg(asm.R6, asm.R1))
	c.Open(miss)
	c.Emit(
		asm.StoreImm(asm.R10, stackWork, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(WorkMap),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackWork),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, miss),
		asm.Mov.Reg(asm.R7, asm.R0),
	)
	c.Pointer(asm.R5, offNumber)
	c.Emit(
		asm.LoadMem(asm.R8, asm.R5, 0, asm.Word),
		asm.JGT.Imm(asm.R8, MaxCodes, miss), // the verifier's bound
	)
	c.Label(loop)
	c.Emit(
		asm.JLT.Imm(asm.R8, 1, miss), // by order, see leaf of package ruletree
		asm.Sub.Imm(asm.R8, 1),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.LSh.Imm(asm.R3, 2),
	)
	c.Pointer(asm.R5, offCodes)
	c.Emit(
		asm.Add.Reg(asm.R5, asm.R3),
		asm.LoadMem(asm.R2, asm.R5, 0, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.JGE.Imm(asm.R2, codeBelow, below),
		asm.Sub.Imm(asm.R3, codeSelf),
		asm.JGT.Reg(asm.R3, asm.R6, loop),
		asm.Ja.Label(found),
	)
	c.Label(below)
	c.Emit(
		asm.Sub.Imm(asm.R3, codeBelow),
		asm.JGE.Reg(asm.R3, asm.R6, loop),
	)
	c.Label(found)
	c.Emit(
		asm.Mov.Imm(asm.R1, 0),
		asm.JLT.Imm(asm.R3, 1, ask), // by order, as above
		// The digest of the suffix with so many labels.
		asm.Sub.Imm(asm.R3, 1),
		asm.And.Imm(asm.R3, dnsname.MaxLabels),
		asm.LSh.Imm(asm.R3, 4),
		asm.Add.Reg(asm.R3, asm.R7),
		asm.LoadMem(asm.R1, asm.R3, 0, asm.DWord),
		asm.LoadMem(asm.R4, asm.R3, 8, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.LSh.Imm(asm.R0, 32),
		asm.RSh.Imm(asm.R4, 32),
		asm.Or.Reg(asm.R4, asm.R0),
		asm.Xor.Reg(asm.R1, asm.R4),
	)
	c.Label(ask)
	c.Emit(
		asm.Mov.Reg(asm.R3, asm.R9),
		asm.Call.Label(one),
		asm.JEq.Imm(asm.R0, 0, loop),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
	c.Label(miss)
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}
