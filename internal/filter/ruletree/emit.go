package ruletree

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// PacketBytes is the size of the memory on the stack that a look-up takes a packet from: its fields as 64-bit
// numbers in host order at the offsets below, and room for what Emit keeps there.
func (p *Pool) PacketBytes() int16 {
	if p.bits == 32 {
		return bestAt4 + wordBytes
	}
	return bestAt6 + 2*wordBytes
}

// bestAt is where the best result so far is kept. For IPv6 the word behind it can be
// read as a field, for the verifier.
func (p *Pool) bestAt() int16 {
	if p.bits == 32 {
		return bestAt4
	}
	return bestAt6
}

// fieldMask is of the offsets that can be read as fields.
func (p *Pool) fieldMask() int32 {
	if p.bits == 32 {
		return 0x18
	}
	return 0x38
}

// Offsets of the fields: those of IPv4, and the lower halves of IPv6 addresses.
const (
	SrcAt   = 0
	DstAt   = 8
	Port0At = 16
	Port1At = 24
	SrcLoAt = 32
	DstLoAt = 40

	bestAt4 = 32
	bestAt6 = 48
)

const (
	wordBytes = 8
	wordLog   = 3
)

// straight is how many walks behind a tree are made in a row. Further ones, which only packets come
// to whose rules overlap in most ways, are rounds of bpf_loop: the verifier walks their code once.
const straight = 2

// firstSteps is how many steps are laid out in a row.
const firstSteps = 3

// cached is up to what size a table is taken to be near the CPU. In a larger one the first steps of all trees are made
// ahead, to have their memory on its way while the first tree is walked: eBPF has no prefetch; and ranks and gates are asked
// before a leaf is read.
const cached = 1 << 20

// maxRounds is BPF_MAX_LOOPS of include/linux/bpf_verifier.h. The walks of a packet have no box in common, and no table has more boxes:
// 1<<18 statements make 16 each, a list has 1<<23 elements.
const maxRounds = 1 << 23

// Maps are the names of those whose values are what Put and PutPorts write.
type Maps struct{ Trees, Ports string }

// Emit writes the look-up in a table. The packet's fields lie at offset at from R10, PacketBytes of them. R0 becomes the
// lowest result of the boxes that match, or 0; R1 to R5 are overwritten. Maps are where the pool lies, following the
// label of Following. In place, the first walk in each tree is code of its own, 3,000 to 9,000 instructions
// to the verifier; else the function makes all walks, which takes a packet 10 to 40 ns more.
func (t *Table) Emit(b *assembler.Builder, maps Maps, following string, at int16, inPlace bool) {
	e := &emitter{Builder: b, pool: t.pool, maps: maps, words: t.end, numbers: t.numbers, packet: asm.R10, at: at, behind: asm.R5}
	best, unmatched := at+t.pool.bestAt(), none
	e.Emit(asm.LoadImm(asm.R0, int64(unmatched), asm.DWord), asm.StoreMem(asm.R10, best, asm.R0, asm.DWord))
	if t.pool.bits == 128 {
		e.Emit(asm.StoreMem(asm.R10, best+wordBytes, asm.R0, asm.DWord)) // see bestAt
	}
	large := t.Bytes() > cached
	if large && inPlace {
		for i := 1; i < len(t.trees); i++ {
			e.root(t.trees[i].root) // only to have it brought near
		}
	}
	found := e.Fresh("found")
	for i := range t.trees {
		tr := &t.trees[i]
		done := found
		if i < len(t.trees)-1 {
			done = e.Fresh("walked")
		}
		if i > 0 {
			e.Emit(
				asm.LoadMem(asm.R1, asm.R10, best, asm.DWord),
				asm.LoadImm(asm.R2, int64(tr.first), asm.DWord),
				asm.JLE.Reg(asm.R1, asm.R2, found),
			)
		}
		if inPlace {
			e.root(tr.root)
			e.walk(done, tr.steps-1, ask{rank: large && i > 0, gate: large})
			e.Emit(asm.Mov.Reg(asm.R2, asm.R1))
		} else {
			e.Emit(asm.LoadImm(asm.R2, int64(tr.root), asm.DWord))
		}
		e.Emit(
			asm.Mov.Reg(asm.R1, asm.R10),
			asm.Add.Imm(asm.R1, int32(at)),
			asm.LoadMem(asm.R3, asm.R10, best, asm.DWord),
			asm.Call.Label(following),
			asm.StoreMem(asm.R10, best, asm.R0, asm.DWord),
		)
		if done != found {
			e.Label(done)
		}
	}
	e.Label(found)
	e.Emit(asm.LoadMem(asm.R0, asm.R10, best, asm.DWord), asm.Mov.Reg32(asm.R0, asm.R0)) // of none, 0
}

// root takes the first step, all of whose numbers are known here.
func (e *emitter) root(d uint64) {
	if d&leafFlag != 0 {
		e.Emit(asm.LoadImm(asm.R1, int64(d), asm.DWord))
		return
	}
	e.Emit(
		asm.LoadMem(asm.R4, asm.R10, e.at+int16(d>>codeShift&codeMask*wordBytes), asm.DWord),
		asm.RSh.Imm(asm.R4, int32(d>>bitsShift&bitsMask)),
		asm.And.Imm(asm.R4, int32(d>>48)),
		asm.LSh.Imm(asm.R4, wordLog),
		asm.LoadMapValue(asm.R1, 0, uint32(d)*wordBytes).WithReference(e.maps.Trees),
		asm.Add.Reg(asm.R1, asm.R4),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
	)
}

// Following writes the functions that walk what follows a tree of any table of the pool. Label is the symbol of the
// first, and that of the other begins with it. The first is a global function: the verifier walks it by itself, once.
func (p *Pool) Following(b *assembler.Builder, maps Maps, label string) {
	e := &emitter{Builder: b, pool: p, maps: maps, words: p.words.n, numbers: len(p.pairs.words), packet: asm.R6, best: asm.R7, behind: asm.R9}
	e.following(label)
	e.round(label + "_round")
}

// emitter makes a walk that finds the packet at an offset from a register, and leaves the leaf in register
// behind if something follows it, or 0. The best result so far is in a register, or at bestAt of the packet's memory if best is 0.
type emitter struct {
	*assembler.Builder
	pool    *Pool
	maps    Maps
	words   int // bound of indices
	numbers int // bound of those of pairs of ports
	packet  asm.Register
	at      int16
	best    asm.Register
	behind  asm.Register
}

// State between rounds, as offsets from its address, which is R10 less its size.
const (
	stateNext   = 0
	stateBest   = 8
	stateFields = 16
	stateBytes  = 24
)

// following walks from the descriptor in R2 on, with the best result so far in R3, and returns the
// best one.
func (e *emitter) following(label string) {
	walk, done, none := e.Fresh("walk"), e.Fresh("done"), e.Fresh("none")
	e.Global(label, assembler.Memory("packet", int(e.pool.PacketBytes())), assembler.Number("next"), assembler.Number("best"))
	e.Emit(
		asm.JEq.Imm(asm.R1, 0, none),
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R7, asm.R3),
		asm.Mov.Imm(asm.R8, 0),
	)
	e.Label(walk)
	e.walk(done, maxSteps, ask{rank: true, gate: true})
	e.Emit(
		asm.Add.Imm(asm.R8, 1),
		asm.JLT.Imm(asm.R8, straight, walk),
		asm.StoreMem(asm.R10, stateNext-stateBytes, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, stateBest-stateBytes, asm.R7, asm.DWord),
		asm.StoreMem(asm.R10, stateFields-stateBytes, asm.R6, asm.DWord),
	)
	e.Loop(maxRounds, label+"_round", -stateBytes)
	e.Emit(asm.LoadMem(asm.R7, asm.R10, stateBest-stateBytes, asm.DWord))
	e.Label(done)
	e.Emit(asm.Mov.Reg(asm.R0, asm.R7), asm.Return())
	e.Label(none)
	e.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// round is a walk as bpf_loop calls it, with the number of the round in R1 and the state in R2.
func (e *emitter) round(label string) {
	done := e.Fresh("done")
	e.Static(label, assembler.Number("round"), assembler.Pointer("state"))
	e.Emit(
		asm.Mov.Reg(asm.R8, asm.R2),
		asm.LoadMem(asm.R6, asm.R8, stateFields, asm.DWord),
		asm.LoadMem(asm.R7, asm.R8, stateBest, asm.DWord),
		asm.LoadMem(asm.R1, asm.R8, stateNext, asm.DWord),
	)
	e.walk(done, maxSteps, ask{rank: true, gate: true})
	e.Emit(
		asm.StoreMem(asm.R8, stateNext, asm.R1, asm.DWord),
		asm.StoreMem(asm.R8, stateBest, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	e.Label(done)
	e.Emit(
		asm.StoreMem(asm.R8, stateBest, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
}

// ask is what is asked of a leaf's descriptor before the leaf is read.
type ask struct{ rank, gate bool }

// walk goes from the descriptor in R1 through a leaf, in at most so many steps. It falls through with what follows
// in R1, or goes to done.
func (e *emitter) walk(done string, steps int, ask ask) {
	leaf, after := e.Fresh("leaf"), e.Fresh("after")
	e.Emit(asm.LoadMapValue(asm.R0, 0, 0).WithReference(e.maps.Trees))
	// Each of the first steps is a branch of its own for the CPU's predictor.
	for range min(steps, firstSteps) {
		e.step(leaf, done)
	}
	if steps > firstSteps {
		step := e.Fresh("step")
		e.Emit(asm.Mov.Imm(asm.R5, maxSteps))
		e.Label(step)
		e.step(leaf, done)
		e.Emit(asm.Sub.Imm(asm.R5, 1), asm.JGT.Imm(asm.R5, 0, step), asm.Ja.Label(done)) // never done
	}
	e.Label(leaf)
	if ask.rank {
		e.rank(done)
	}
	e.leaf(after, done, ask.gate)
	e.Label(after)
	e.Emit(asm.JEq.Imm(e.behind, 0, done), asm.LoadMem(asm.R3, e.behind, -wordBytes, asm.DWord))
	e.Emit(asm.JLE.Reg(e.bestIn(asm.R4), asm.R3, done), asm.LoadMem(asm.R1, e.behind, -2*wordBytes, asm.DWord))
}

// bestIn gives the register that holds the best result, which becomes to if it is not in one.
func (e *emitter) bestIn(to asm.Register) asm.Register {
	if e.best != 0 {
		return e.best
	}
	e.Emit(asm.LoadMem(to, asm.R10, e.at+e.pool.bestAt(), asm.DWord))
	return to
}

// shifted puts the field that the descriptor in R1 names, shifted, into R4, and the descriptor shifted by bitsShift into R3.
func (e *emitter) shifted() {
	e.Emit(
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, codeShift-wordLog),
		asm.And.Imm(asm.R3, e.pool.fieldMask()),
		asm.Mov.Reg(asm.R4, e.packet),
		asm.Add.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R4, asm.R4, e.at, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, bitsShift),
		asm.RSh.Reg(asm.R4, asm.R3), // takes the lower six bits (RFC 9669 section 4.1)
	)
}

// step goes down from the node whose descriptor is in R1, or to leaf. R0 is the pool.
func (e *emitter) step(leaf, done string) {
	e.Emit(asm.JSLT.Imm(asm.R1, 0, leaf))
	e.shifted()
	e.Emit(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 48),
		asm.And.Reg(asm.R4, asm.R2),
		asm.Mov.Reg32(asm.R1, asm.R1),
		asm.Add.Reg(asm.R1, asm.R4),
		asm.JGE.Imm(asm.R1, int32(e.words), done), // never: for the verifier
		asm.LSh.Imm(asm.R1, wordLog),
		asm.Add.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
	)
}

// rank goes to done if the match is better than all that the leaf whose descriptor is in R1 leads to.
func (e *emitter) rank(done string) {
	if e.best == 0 {
		e.bestIn(asm.R3)
	} else {
		e.Emit(asm.Mov.Reg(asm.R3, e.best))
	}
	e.Emit(
		asm.RSh.Imm(asm.R3, int32(e.pool.scale)),
		asm.Add.Imm(asm.R3, 1<<rankBits), // as leafFlag is
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, rankShift),
		asm.JGT.Reg(asm.R2, asm.R3, done),
	)
}

// leaf compares the entries of the leaf whose descriptor is in R1, if its gate is open or not asked,
// and goes to after. The number of entries left is compared by order: of a number that is not 0,
// verifiers before Linux 6.8 do not learn that it is 1 at least.
func (e *emitter) leaf(after, done string, gate bool) {
	size := entryWords(e.pool.bits)
	loop, other, compare, last := e.Fresh("entry"), e.Fresh("other"), e.Fresh("compare"), e.Fresh("last")
	e.Emit(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, countShift),
		asm.And.Imm(asm.R2, more>>countShift|countMask),
		asm.JLT.Imm(asm.R2, 1, done), // nothing
	)
	if gate {
		e.shifted()
		e.Emit(
			asm.RSh.Imm(asm.R3, valueShift-bitsShift),
			asm.Xor.Reg(asm.R4, asm.R3),
			asm.And.Imm(asm.R4, valueMask), // 0 if it is open
		)
	}
	e.Emit(
		asm.Mov.Reg32(asm.R1, asm.R1),
		asm.JGT.Imm(asm.R1, int32(e.words), done), // never: for the verifier. A leaf without entries may lie at the very end
		asm.LSh.Imm(asm.R1, wordLog),
		asm.JLE.Imm(asm.R2, countMask, last),
		asm.And.Imm(asm.R2, countMask),                 // without more
		asm.JGT.Imm(asm.R2, maxLeaf, done),             // never
		asm.JLT.Imm(asm.R1, firstWord*wordBytes, done), // never
		asm.Mov.Reg(e.behind, asm.R0),
		asm.Add.Reg(e.behind, asm.R1),
		asm.JLT.Imm(asm.R2, 1, after),
	)
	if gate {
		e.Emit(asm.JNE.Imm(asm.R4, 0, after))
	}
	e.Emit(asm.Ja.Label(compare))
	e.Label(last)
	if gate {
		e.Emit(asm.JNE.Imm(asm.R4, 0, done))
	}
	e.Emit(
		asm.JGT.Imm(asm.R2, maxLeaf, done), // never
		asm.Mov.Imm(e.behind, 0),
	)
	e.Label(compare)
	e.Emit(asm.Add.Reg(asm.R1, asm.R0))
	e.Label(loop)
	e.entry(size, other)
	e.Emit(asm.JGE.Reg(asm.R0, e.bestIn(asm.R3), after))
	if e.best != 0 {
		e.Emit(asm.Mov.Reg(e.best, asm.R0))
	} else {
		e.Emit(asm.StoreMem(asm.R10, e.at+e.pool.bestAt(), asm.R0, asm.DWord))
	}
	e.Emit(asm.Ja.Label(after))
	e.Label(other)
	e.Emit(
		asm.Add.Imm(asm.R1, int32(size)*wordBytes),
		asm.Sub.Imm(asm.R2, 1),
		asm.JGT.Imm(asm.R2, 0, loop),
	)
}

// entry puts the result of the entry at R1 into R0 if it matches, and goes to other if not.
func (e *emitter) entry(size int, other string) {
	last := int16(size-1) * wordBytes
	if size == entry4 {
		e.Emit(asm.LoadMem(asm.R0, asm.R1, last, asm.DWord))
		e.prefix(4, SrcAt, other)
		e.Emit(asm.RSh.Imm(asm.R0, openBits))
		e.prefix(0, DstAt, other)
		e.Emit(
			asm.RSh.Imm(asm.R0, pairShift-openBits),
			asm.And.Imm(asm.R0, pairMask(e.numbers)),
			asm.LSh.Imm(asm.R0, wordLog),
			asm.LoadMapValue(asm.R3, 0, 0).WithReference(e.maps.Ports),
			asm.Add.Reg(asm.R0, asm.R3),
		)
		e.ports(asm.R0, 0, other)
	} else {
		for i, at := range []int16{SrcAt, SrcLoAt, DstAt, DstLoAt} {
			e.masked(at, i, 4+i, other)
		}
		e.ports(asm.R1, last-wordBytes, other)
	}
	e.Emit(asm.LoadMem(asm.R0, asm.R1, last, asm.DWord), asm.RSh.Imm(asm.R0, resultShift))
}

// prefix goes to other unless an IPv4 address agrees with that of the entry but for as many bits as the lower six of R0 say.
func (e *emitter) prefix(address, field int16, other string) {
	e.Emit(
		asm.LoadMem(asm.R3, asm.R1, address, asm.Word),
		asm.LoadMem(asm.R4, e.packet, e.at+field, asm.DWord),
		asm.Xor.Reg(asm.R3, asm.R4),
		asm.RSh.Reg(asm.R3, asm.R0), // takes the lower six bits (RFC 9669 section 4.1)
		asm.JNE.Imm(asm.R3, 0, other),
	)
}

// masked goes to other unless half of an IPv6 address agrees with a word of the entry under a mask.
func (e *emitter) masked(field int16, word, mask int, other string) {
	e.Emit(
		asm.LoadMem(asm.R0, e.packet, e.at+field, asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, int16(word)*wordBytes, asm.DWord),
		asm.Xor.Reg(asm.R3, asm.R0),
		asm.LoadMem(asm.R4, asm.R1, int16(mask)*wordBytes, asm.DWord),
		asm.And.Reg(asm.R3, asm.R4),
		asm.JNE.Imm(asm.R3, 0, other),
	)
}

// ports goes to other unless both numbers lie in their spans, a word at an offset from a register.
func (e *emitter) ports(from asm.Register, at int16, other string) {
	for i, field := range []int16{Port0At, Port1At} {
		lo := at + int16(4*i)
		e.Emit(
			asm.LoadMem(asm.R3, from, lo, asm.Half),
			asm.LoadMem(asm.R4, e.packet, e.at+field, asm.DWord),
			asm.Sub.Reg(asm.R4, asm.R3),
			asm.LoadMem(asm.R3, from, lo+2, asm.Half),
			asm.JGT.Reg(asm.R4, asm.R3, other),
		)
	}
}
