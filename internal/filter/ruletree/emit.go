package ruletree

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// The registers of a look-up. Those of IPv4 packets hold the packet; the fields of an IPv6 packet
// are more than there are registers, and lie in memory (emit6.go).
const (
	regBase = asm.R0 // of the trees
	regD    = asm.R1 // the descriptor, then an entry
	regLeaf = asm.R5 // the descriptor of the leaf
	regBest = asm.R7 // the best result so far
)

const (
	wordBytes = 8
	wordLog   = 3
)

// straight is the number of walks behind a tree that are made in a row. Further ones, which only
// packets come to whose rules overlap in most ways, are rounds of bpf_loop: the verifier walks
// their code once.
const straight = 2

// firstSteps is the number of steps that are laid out in a row.
const firstSteps = 3

// cached is up to what size a table is taken to be near the CPU. In a larger one the first steps of
// all trees are made ahead, to have their memory on its way while the first tree is walked: eBPF
// has no prefetch; and ranks and gates are asked before a leaf is read.
const cached = 1 << 20

// maxRounds is BPF_MAX_LOOPS of include/linux/bpf_verifier.h. The walks of a packet have no box in
// common, and no table has more boxes: 1<<18 statements make 16 each, a list has 1<<23 elements.
const maxRounds = 1 << 23

// Maps are the names of those whose values are what Put and PutPorts write.
type Maps struct{ Trees, Ports string }

// Emit writes the look-up in a table: R0 becomes the lowest result of the boxes that match, or 0.
// Where it takes the packet from, and what it overwrites, says Registers for IPv4 and PacketBytes
// for IPv6, whose packet lies at offset at from R10. Maps are where the pool lies, following the
// label of Following. In place, the first walk in each tree is code of its own, 3,000 to 9,000
// instructions to the verifier; else the function makes all walks, which takes a packet 10 to 40 ns
// more.
func (t *Table) Emit(b *assembler.Builder, maps Maps, following string, at int16, inPlace bool) {
	e := newEmitter(b, t.pool, maps, t.end, t.numbers, memory{asm.R10, at})
	unmatched := none
	e.prepare()
	e.Emit(asm.LoadImm(regBest, int64(unmatched), asm.DWord))
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
		if inPlace {
			e.root(tr.root)
		}
		if i > 0 {
			e.further(i, done, inPlace)
		}
		if inPlace {
			e.walk(done, tr.steps-1, ask{rank: large && i > 0, gate: large})
		} else {
			e.Emit(asm.LoadImm(regD, int64(tr.root), asm.DWord))
		}
		e.call(following)
		e.Emit(asm.Mov.Reg(regBest, asm.R0))
		if done != found {
			e.Label(done)
		}
	}
	e.Label(found)
	e.Emit(
		asm.Mov.Reg(asm.R0, regBest),
		asm.RSh.Imm(asm.R0, needBits),
		asm.Mov.Reg32(asm.R0, asm.R0), // of none, 0
	)
}

// further goes to done if the best match does not need the i-th tree, or if the first step into it,
// when that has been made, led to nothing. It is one branch for both: fewer packets go on than need
// the tree.
func (e *emitter) further(i int, done string, stepped bool) {
	if !stepped {
		e.Emit(asm.Mov.Reg(asm.R2, regBest))
	} else {
		e.Emit(
			asm.Mov.Reg32(asm.R2, regD), // 0 of nothing alone
			asm.Neg.Imm(asm.R2, 0),
			asm.ArSh.Imm(asm.R2, 63), // all ones if it is not 0
			asm.And.Reg(asm.R2, regBest),
		)
	}
	e.Emit(asm.And.Imm(asm.R2, int32(needOf(i))), asm.JEq.Imm(asm.R2, 0, done))
}

// root takes the first step, all of whose numbers are known here.
func (e *emitter) root(d uint64) {
	if isLeaf(d) {
		e.Emit(asm.LoadImm(regD, int64(d), asm.DWord))
		return
	}
	e.key(asm.R4, int(d>>codeShift&codeMask))
	e.Emit(
		asm.RSh.Imm(asm.R4, int32(d>>bitsShift&bitsMask)),
		asm.And.Imm(asm.R4, int32(e.pool.mask(d))),
		asm.LSh.Imm(asm.R4, wordLog),
		asm.LoadMapValue(regD, 0, uint32(d)*wordBytes).WithReference(e.maps.Trees),
		asm.Add.Reg(regD, asm.R4),
		asm.LoadMem(regD, regD, 0, asm.DWord),
	)
}

// Following writes the functions that walk what follows a tree of any table of the pool. Label is
// the symbol of the first, and that of the other begins with it. The first is a global function:
// the verifier walks it by itself, once.
func (p *Pool) Following(b *assembler.Builder, maps Maps, label string) {
	e := newEmitter(b, p, maps, p.words.n, len(p.pairs.words), memory{asm.R6, 0})
	e.following(label)
	e.round(label + "_round")
}

// emitter makes walks.
type emitter struct {
	*assembler.Builder
	packet
	pool    *Pool
	maps    Maps
	words   int      // bound of indices
	numbers int      // bound of those of pairs of ports
	aside   []func() // write what a walk rarely comes to
}

// packet names the places in which a look-up finds what it asks of a packet: the differences of
// IPv4 and IPv6.
type packet interface {
	// prepare makes the packet ready for walks.
	prepare()
	// key puts a key that is known by its number here into a register.
	key(to asm.Register, code int)
	// step puts what the descriptor of a node indexes its children by, unmasked, into R4, or goes
	// to leaf if it is one.
	step(leaf string)
	// gated puts the key that the descriptor of a leaf names, shifted, into R4, and the descriptor,
	// shifted by bitsShift, into R3.
	gated()
	// entry puts the result of the entry at regD into R0 if it matches, and goes to other if not.
	entry(other string)

	// call calls the function that walks from regD on, with the best result so far.
	call(following string)
	// begin begins that function, and leaves what it is given where walks want it.
	begin(label string)
	// save and restore put the packet into the state that rounds share, whose address is in a
	// register for the latter.
	save()
	restore(state asm.Register)
}

// memory is the place of an IPv6 packet's keys.
type memory struct {
	base asm.Register
	at   int16
}

func newEmitter(b *assembler.Builder, p *Pool, maps Maps, words, numbers int, m memory) *emitter {
	e := &emitter{Builder: b, pool: p, maps: maps, words: words, numbers: numbers}
	if p.bits == 32 {
		e.packet = &packet4{e}
	} else {
		e.packet = &packet6{e, m}
	}
	return e
}

// State between rounds, as offsets from its address, which is R10 less its size.
const (
	stateNext   = 0
	stateBest   = 8
	stateFields = 16
	stateBytes  = 32
)

// following walks from the descriptor that it is given on, and returns the best result.
func (e *emitter) following(label string) {
	done := e.Fresh("done")
	e.begin(label)
	for range straight {
		e.walk(done, maxSteps, ask{rank: true, gate: true})
	}
	e.Emit(
		asm.StoreMem(asm.R10, stateNext-stateBytes, regD, asm.DWord),
		asm.StoreMem(asm.R10, stateBest-stateBytes, regBest, asm.DWord),
	)
	e.save()
	e.Loop(maxRounds, label+"_round", -stateBytes)
	e.Emit(asm.LoadMem(regBest, asm.R10, stateBest-stateBytes, asm.DWord))
	e.Label(done)
	e.Emit(asm.Mov.Reg(asm.R0, regBest), asm.Return())
}

// round is a walk as bpf_loop calls it, with the number of the round in R1 and the state in R2.
func (e *emitter) round(label string) {
	const stackState = -8
	done := e.Fresh("done")
	e.Static(label, assembler.Number("round"), assembler.Pointer("state"))
	e.Emit(
		asm.StoreMem(asm.R10, stackState, asm.R2, asm.DWord),
		asm.LoadMem(regBest, asm.R2, stateBest, asm.DWord),
		asm.LoadMem(regD, asm.R2, stateNext, asm.DWord),
	)
	e.restore(asm.R2)
	e.walk(done, maxSteps, ask{rank: true, gate: true})
	e.Emit(
		asm.LoadMem(asm.R2, asm.R10, stackState, asm.DWord),
		asm.StoreMem(asm.R2, stateNext, regD, asm.DWord),
		asm.StoreMem(asm.R2, stateBest, regBest, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	e.Label(done)
	e.Emit(
		asm.LoadMem(asm.R2, asm.R10, stackState, asm.DWord),
		asm.StoreMem(asm.R2, stateBest, regBest, asm.DWord),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
}

// ask says which parts of a leaf's descriptor are tested before the leaf is read.
type ask struct{ rank, gate bool }

// walk goes from the descriptor in regD through a leaf, in at most so many steps. It falls through
// with what follows in regD, or goes to done.
func (e *emitter) walk(done string, steps int, ask ask) {
	leaf, after := e.Fresh("leaf"), e.Fresh("after")
	e.Emit(asm.LoadMapValue(regBase, 0, 0).WithReference(e.maps.Trees))
	// Each of the first steps is a branch of its own for the CPU's predictor.
	for range min(steps, firstSteps) {
		e.down(leaf, done)
	}
	if steps > firstSteps {
		step := e.Fresh("step")
		e.Emit(asm.Mov.Imm(asm.R5, maxSteps))
		e.Label(step)
		e.down(leaf, done)
		// never done
		e.Emit(asm.Sub.Imm(asm.R5, 1), asm.JGT.Imm(asm.R5, 0, step), asm.Ja.Label(done))
		e.besides()
	}
	e.Label(leaf)
	if ask.rank {
		e.rank(done)
	}
	e.leaf(after, done, ask.gate)
	e.Label(after)
	e.behind(done)
	if len(e.aside) > 0 {
		on := e.Fresh("on")
		e.Emit(asm.Ja.Label(on))
		e.besides()
		e.Label(on)
	}
}

// behind puts what follows the leaf into regD, or goes to done if nothing better does. Few packets
// come here: what follows a leaf is not asked before, as that branch would surprise more of them.
func (e *emitter) behind(done string) {
	e.Emit(
		asm.Mov.Reg(asm.R3, regLeaf),
		asm.LSh.Imm(asm.R3, 63-moreShift),
		asm.JSGE.Imm(asm.R3, 0, done), // nothing follows
		asm.Mov.Reg32(regLeaf, regLeaf),
		asm.JGT.Imm(regLeaf, int32(e.words), done), // never
		asm.JLT.Imm(regLeaf, firstWord, done),      // never
		asm.LSh.Imm(regLeaf, wordLog),
		asm.LoadMapValue(regBase, 0, 0).WithReference(e.maps.Trees),
		asm.Add.Reg(regLeaf, regBase),
		asm.LoadMem(asm.R3, regLeaf, -wordBytes, asm.DWord),
	)
	e.Forget(asm.R4, regBest)
	e.Emit(asm.JLE.Reg(asm.R4, asm.R3, done), asm.LoadMem(regD, regLeaf, -2*wordBytes, asm.DWord))
}

// besides writes what was put aside, where nothing falls through.
func (e *emitter) besides() {
	for _, write := range e.aside {
		write()
	}
	e.aside = nil
}

// down goes down from the node whose descriptor is in regD, or to leaf.
func (e *emitter) down(leaf, done string) {
	e.step(leaf)
	e.Emit(
		asm.Mov.Reg(asm.R2, regD),
		asm.RSh.Imm(asm.R2, maskShift),
		asm.And.Reg(asm.R4, asm.R2),
		asm.Mov.Reg32(regD, regD),
		asm.Add.Reg(regD, asm.R4),
		asm.JGE.Imm(regD, int32(e.words), done), // never: for the verifier
		asm.LSh.Imm(regD, wordLog),
		asm.Add.Reg(regD, regBase),
		asm.LoadMem(regD, regD, 0, asm.DWord),
	)
}

// rank goes to done if the match is better than all matches below the leaf whose descriptor is in
// regD.
func (e *emitter) rank(done string) {
	e.Emit(
		asm.Mov.Reg(asm.R3, regBest),
		asm.RSh.Imm(asm.R3, int32(needBits+e.pool.scale)),
		asm.Add.Imm(asm.R3, leafKind>>rankShift),
		asm.Mov.Reg(asm.R2, regD),
		asm.RSh.Imm(asm.R2, rankShift),
		asm.JGT.Reg(asm.R2, asm.R3, done),
	)
}

// leaf compares the entries of the leaf whose descriptor is in regD, if its gate is open or not
// asked, and goes to after. The number of entries left is compared by order: of a number that is
// not 0, verifiers before Linux 6.8 do not learn that it is 1 at least.
func (e *emitter) leaf(after, done string, gate bool) {
	size := entryWords(e.pool.bits)
	loop, other := e.Fresh("entry"), e.Fresh("other")
	e.Emit(
		asm.Mov.Reg(asm.R2, regD),
		asm.RSh.Imm(asm.R2, countShift),
		asm.And.Imm(asm.R2, more>>countShift|countMask),
		asm.JLT.Imm(asm.R2, 1, done), // nothing
	)
	if gate {
		e.gated()
		e.Emit(
			asm.RSh.Imm(asm.R3, valueShift-bitsShift),
			asm.Xor.Reg(asm.R4, asm.R3),
			asm.And.Imm(asm.R4, valueMask), // 0 if it is open
		)
	}
	e.Emit(
		asm.Mov.Reg(regLeaf, regD),
		asm.Mov.Reg32(regD, regD),
		// never: for the verifier. A leaf without entries may lie at the very end
		asm.JGT.Imm(regD, int32(e.words), done),
		asm.LSh.Imm(regD, wordLog),
		asm.And.Imm(asm.R2, countMask),     // without more
		asm.JGT.Imm(asm.R2, maxLeaf, done), // never
		asm.JLT.Imm(asm.R2, 1, after),
	)
	if gate {
		e.Emit(asm.JNE.Imm(asm.R4, 0, after))
	}
	e.Emit(asm.Add.Reg(regD, regBase))
	e.Label(loop)
	e.entry(other)
	e.Forget(asm.R3, regBest)
	worse := e.Fresh("worse")
	e.Emit(asm.JGE.Reg(asm.R0, asm.R3, worse), asm.Mov.Reg(regBest, asm.R0))
	e.Label(worse)
	e.Emit(
		asm.And.Imm(asm.R0, needBehind),
		asm.JEq.Imm(asm.R0, 0, done),
		asm.Ja.Label(after),
	)
	e.Label(other)
	e.Emit(
		asm.Add.Imm(regD, int32(size)*wordBytes),
		asm.Sub.Imm(asm.R2, 1),
		asm.JGT.Imm(asm.R2, 0, loop),
	)
}
