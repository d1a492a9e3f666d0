package classify

import (
	"strconv"

	"github.com/cilium/ebpf/asm"
)

// Stack slots of the look-up, as offsets from R10: the fields of IPv4, the lower halves of IPv6
// addresses, the best entry so far. Trees count fields from fieldsAt (see code), for IPv4 from SrcAt.
const (
	SrcAt     = -32
	DstAt     = -24
	Port0At   = -16
	Port1At   = -8
	SrcLoAt   = -48
	DstLoAt   = -40
	bestAt    = -56
	fieldsAt  = -64
	entryWord = 8
)

// Emit gives the look-up. The caller has stored the packet's fields as 64-bit numbers in host order
// at R10 plus SrcAt, DstAt, Port0At, Port1At and, for IPv6, SrcLoAt and DstLoAt. R0 becomes the
// result of the first box that matches, or 0; R1 to R5 and the stack down to R10-64 are overwritten. All symbols
// begin with label.
func (t *Table) Emit(mapName, label string) asm.Instructions {
	e := &emitter{t: t, mapName: mapName, label: label}
	e.add(asm.Mov.Imm(asm.R0, -1), asm.StoreMem(asm.R10, bestAt, asm.R0, asm.DWord))
	if t.bits == 128 {
		e.add(asm.StoreMem(asm.R10, fieldsAt, asm.R0, asm.DWord)) // no field: for the verifier
	}
	for i := range t.trees {
		e.tree(&t.trees[i], label+"_"+strconv.Itoa(i), i > 0)
	}
	e.add(
		asm.LoadMem(asm.R0, asm.R10, bestAt, asm.DWord),
		asm.JNE.Imm(asm.R0, -1, label+"_found"),
		asm.Mov.Imm(asm.R0, 0),
	)
	e.mark(label + "_found")
	e.add(asm.Mov.Reg32(asm.R0, asm.R0)) // the priority is in the upper half
	return e.out
}

type emitter struct {
	t              *Table
	mapName, label string
	out            asm.Instructions
	symbol         string
}

func (e *emitter) add(ins ...asm.Instruction) {
	if e.symbol != "" {
		ins[0] = ins[0].WithSymbol(e.symbol)
		e.symbol = ""
	}
	e.out = append(e.out, ins...)
}

func (e *emitter) mark(symbol string) { e.symbol = symbol }

// tree walks one tree and leaves the better of its entry and the best one so far at bestAt.
func (e *emitter) tree(tr *tree, label string, compare bool) {
	done, leaf := label+"_done", label+"_leaf"
	if compare {
		e.add(
			asm.LoadMem(asm.R1, asm.R10, bestAt, asm.DWord),
			asm.LoadImm(asm.R2, int64(tr.first), asm.DWord),
			asm.JLE.Reg(asm.R1, asm.R2, done),
		)
	}
	e.root(tr.root, leaf)
	for range tr.depth - 1 {
		e.level(leaf, done)
	}
	e.mark(leaf)
	e.leaf(tr, label, done)
	e.mark(done)
	e.add(asm.Mov.Imm(asm.R1, 0)) // an instruction to jump to
}

// root takes the first step, all of whose numbers are known here.
func (e *emitter) root(d uint64, leaf string) {
	if d>>48 == 0 {
		e.add(asm.LoadImm(asm.R1, int64(d), asm.DWord), asm.Ja.Label(leaf))
		return
	}
	e.add(
		asm.LoadMem(asm.R4, asm.R10, fieldsAt+int16(d>>40&0x38), asm.DWord),
		asm.RSh.Imm(asm.R4, int32(d>>32&63)),
		asm.And.Imm(asm.R4, int32(d>>48)),
		asm.LSh.Imm(asm.R4, 3),
		asm.LoadMapValue(asm.R2, 0, uint32(d)*entryWord).WithReference(e.mapName),
		asm.Add.Reg(asm.R2, asm.R4),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord),
	)
}

// level goes down from the node whose descriptor is in R1.
func (e *emitter) level(leaf, done string) {
	mask, base := int32(0x38), int16(fieldsAt)
	if e.t.bits == 32 {
		mask, base = 0x18, SrcAt
	}
	e.add(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 48),
		asm.JEq.Imm(asm.R2, 0, leaf),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, 40),
		asm.And.Imm(asm.R3, mask),
		asm.Mov.Reg(asm.R4, asm.R10),
		asm.Add.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R4, asm.R4, base, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, 32),
		asm.And.Imm(asm.R3, 63),
		asm.RSh.Reg(asm.R4, asm.R3),
		asm.And.Reg(asm.R4, asm.R2),
		asm.Mov.Reg32(asm.R1, asm.R1),
		asm.Add.Reg(asm.R1, asm.R4),
		asm.JGE.Imm(asm.R1, int32(len(e.t.words)), done), // never: for the verifier
		asm.LSh.Imm(asm.R1, 3),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(e.mapName),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord),
	)
}

// leaf compares the entries of the leaf whose descriptor is in R1.
func (e *emitter) leaf(tr *tree, label, done string) {
	size := entryWords(e.t.bits)
	loop, next := label+"_entry", label+"_next"
	e.add(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 32),
		asm.JEq.Imm(asm.R2, 0, done),
		asm.JGT.Imm(asm.R2, int32(tr.widest), done), // never; it bounds what the verifier walks
		asm.Mov.Reg32(asm.R1, asm.R1),
		asm.JGT.Imm(asm.R1, int32(len(e.t.words)-maxLeaf*size-1), done), // never
		asm.LSh.Imm(asm.R1, 3),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(e.mapName),
		asm.Add.Reg(asm.R1, asm.R3),
	)
	if size == entry4 {
		e.add(
			asm.LoadMem(asm.R0, asm.R10, SrcAt, asm.DWord),
			asm.LSh.Imm(asm.R0, 32),
			asm.LoadMem(asm.R3, asm.R10, DstAt, asm.DWord),
			asm.Or.Reg(asm.R0, asm.R3),
		)
	}
	e.mark(loop)
	if size == entry4 {
		e.masked(asm.R0, 0, 1, next)
	} else {
		for i, at := range []int16{SrcAt, SrcLoAt, DstAt, DstLoAt} {
			e.add(asm.LoadMem(asm.R0, asm.R10, at, asm.DWord))
			e.masked(asm.R0, i, 4+i, next)
		}
	}
	e.ports(int16(size-2)*entryWord, next)
	e.add(
		asm.LoadMem(asm.R0, asm.R1, int16(size-1)*entryWord, asm.DWord),
		asm.LoadMem(asm.R3, asm.R10, bestAt, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R3, done),
		asm.StoreMem(asm.R10, bestAt, asm.R0, asm.DWord),
		asm.Ja.Label(done),
	)
	e.mark(next)
	e.add(
		asm.Add.Imm(asm.R1, int32(size)*entryWord),
		asm.Sub.Imm(asm.R2, 1),
		asm.JNE.Imm(asm.R2, 0, loop),
	)
}

// masked goes to next unless v agrees with a word of the entry under a mask.
func (e *emitter) masked(v asm.Register, word, mask int, next string) {
	e.add(
		asm.LoadMem(asm.R3, asm.R1, int16(word)*entryWord, asm.DWord),
		asm.Xor.Reg(asm.R3, v),
		asm.LoadMem(asm.R4, asm.R1, int16(mask)*entryWord, asm.DWord),
		asm.And.Reg(asm.R3, asm.R4),
		asm.JNE.Imm(asm.R3, 0, next),
	)
}

// ports goes to next unless both numbers lie in their spans.
func (e *emitter) ports(at int16, next string) {
	e.add(
		asm.LoadMem(asm.R3, asm.R1, at, asm.Half),
		asm.LoadMem(asm.R4, asm.R10, Port0At, asm.DWord),
		asm.Sub.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R3, asm.R1, at+2, asm.Half),
		asm.JGT.Reg(asm.R4, asm.R3, next),
		asm.LoadMem(asm.R3, asm.R1, at+4, asm.Half),
		asm.LoadMem(asm.R4, asm.R10, Port1At, asm.DWord),
		asm.Sub.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R3, asm.R1, at+6, asm.Half),
		asm.JGT.Reg(asm.R4, asm.R3, next),
	)
}
