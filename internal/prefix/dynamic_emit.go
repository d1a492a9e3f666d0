package prefix

import (
	"strconv"

	"github.com/cilium/ebpf/asm"
)

// Stack bytes of the emitted code, below R10.
const (
	stackHi     = -8  // the address; IPv4 in the low half
	stackLo     = -16 // IPv6
	stackIndex  = -24 // of the length being tried
	stackSecond = -32 // the half of the hash that names the second bucket
	stackLease  = -40 // end of the lease of the entry found
)

// EmitDynamic4 gives the look-up of an IPv4 address in a dynamic set with the given max, under the
// package's register contract. For each prefix length in use it reads one bucket, sometimes two;
// the clock is read only when an entry is found.
func EmitDynamic4(mapName, label string, max int) asm.Instructions {
	return emitDynamic(mapName, label, geometryOf(max).v4)
}

// EmitDynamic6 does the same for IPv6.
func EmitDynamic6(mapName, label string, max int) asm.Instructions {
	return emitDynamic(mapName, label, geometryOf(max).v6)
}

func emitDynamic(mapName, label string, f family) asm.Instructions {
	e := &dynamicEmitter{
		emitter: emitter{mapName: mapName, end: label + "_end", v4: f.width == 32},
		family:  f,
		label:   label,
	}
	e.lengths()
	if e.v4 {
		e.key4()
	} else {
		e.key6()
	}
	e.bucket(asm.R3)
	e.probe("a")
	e.add(asm.LoadMem(asm.R0, asm.R5, 0, asm.Word), asm.JEq.Imm(asm.R0, 0, label+"_again"))
	e.add(asm.LoadMem(asm.R3, asm.R10, stackSecond, asm.DWord))
	e.bucket(asm.R3)
	e.probe("b")
	e.again()
	e.found()
	return e.out
}

type dynamicEmitter struct {
	emitter
	family
	label string
}

// lengths begins the loop over the list of lengths, from its end (see count); R4 is the length + 1.
func (e *dynamicEmitter) lengths() {
	if e.v4 {
		e.add(asm.Mov.Reg32(asm.R1, asm.R1))
	} else {
		e.add(asm.StoreMem(asm.R10, stackLo, asm.R2, asm.DWord))
	}
	e.add(asm.StoreMem(asm.R10, stackHi, asm.R1, asm.DWord))
	e.pointer(asm.R5, e.number)
	e.add(
		asm.LoadMem(asm.R3, asm.R5, 0, asm.Word),
		asm.JGT.Imm(asm.R3, int32(e.width+1), e.label+"_miss"), // the verifier's bound
	)
	e.mark(e.label + "_loop")
	e.add(
		asm.JEq.Imm(asm.R3, 0, e.label+"_miss"),
		asm.Sub.Imm(asm.R3, 1),
		asm.StoreMem(asm.R10, stackIndex, asm.R3, asm.DWord),
		asm.LSh.Imm(asm.R3, 2),
	)
	e.pointer(asm.R5, e.list)
	e.add(asm.Add.Reg(asm.R5, asm.R3), asm.LoadMem(asm.R4, asm.R5, 0, asm.Word))
}

// key4 leaves the masked address in R1, length + 1 in R4, and the hash for the first bucket in R3.
func (e *dynamicEmitter) key4() {
	e.add(
		asm.Mov.Imm(asm.R0, 33),
		asm.Sub.Reg(asm.R0, asm.R4),
		asm.And.Imm(asm.R0, 63),
		asm.LoadMem(asm.R1, asm.R10, stackHi, asm.DWord),
		asm.RSh.Reg(asm.R1, asm.R0),
		asm.LSh.Reg(asm.R1, asm.R0),
		asm.Mov.Reg(asm.R3, asm.R4),
		asm.LSh.Imm(asm.R3, 32),
		asm.Or.Reg(asm.R3, asm.R1),
	)
	e.pointer(asm.R5, offSeeds)
	e.add(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R3, asm.R0))
	e.times(8)
	e.fold()
	e.times(16)
	e.halves()
}

// key6 leaves the masked address in R1 and R2, the tag in R4, and the hash for the first bucket in R3.
func (e *dynamicEmitter) key6() {
	e.add(
		asm.And.Imm(asm.R4, 0xff),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.LSh.Imm(asm.R0, 4),
	)
	e.pointer(asm.R5, offMasks)
	e.add(
		asm.Add.Reg(asm.R5, asm.R0),
		asm.LoadMem(asm.R1, asm.R10, stackHi, asm.DWord),
		asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord),
		asm.And.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R2, asm.R10, stackLo, asm.DWord),
		asm.LoadMem(asm.R0, asm.R5, 8, asm.DWord),
		asm.And.Reg(asm.R2, asm.R0),
		asm.Mov.Reg(asm.R3, asm.R1),
	)
	e.pointer(asm.R5, offSeeds)
	e.add(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R3, asm.R0))
	e.times(8)
	e.fold()
	e.add(asm.Xor.Reg(asm.R3, asm.R2), asm.Add.Reg(asm.R3, asm.R4))
	e.times(16)
	e.fold()
	e.times(24)
	e.add(
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.And.Imm(asm.R0, 0xff),
		asm.LSh.Imm(asm.R0, 8),
		asm.Or.Reg(asm.R4, asm.R0),
	)
	e.halves()
}

// times multiplies R3 by a seed; R5 points to the seeds.
func (e *dynamicEmitter) times(seed int16) {
	e.add(asm.LoadMem(asm.R0, asm.R5, seed, asm.DWord), asm.Mul.Reg(asm.R3, asm.R0))
}

func (e *dynamicEmitter) fold() {
	e.add(asm.Mov.Reg(asm.R0, asm.R3), asm.RSh.Imm(asm.R0, 32), asm.Xor.Reg(asm.R3, asm.R0))
}

// halves keeps the lower half of the hash for the second bucket and leaves the upper in R3.
func (e *dynamicEmitter) halves() {
	e.add(
		asm.Mov.Reg32(asm.R0, asm.R3),
		asm.StoreMem(asm.R10, stackSecond, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R3, 32),
	)
}

// bucket turns half a hash into the address of the bucket, in R5. The move tells the verifier, after a
// spill, that the number has 32 bits.
func (e *dynamicEmitter) bucket(half asm.Register) {
	e.add(
		asm.Mov.Reg32(half, half),
		asm.Mul.Imm(half, int32(e.buckets)),
		asm.RSh.Imm(half, 32),
		asm.Mul.Imm(half, int32(e.size)),
	)
	e.pointer(asm.R5, e.off)
	e.add(asm.Add.Reg(asm.R5, half))
}

// probe looks for the key in the slots of the bucket at R5, as findIn does, and goes to found with
// its meta in R0.
func (e *dynamicEmitter) probe(name string) {
	for i := range slots {
		next := e.label + "_" + name + strconv.Itoa(i)
		meta := int16(e.meta + 8*i)
		if e.v4 {
			addr := int16(4 + 4*i)
			e.add(
				asm.LoadMem(asm.R0, asm.R5, addr, asm.Word),
				asm.JNE.Reg(asm.R0, asm.R1, next),
				asm.LoadMem(asm.R0, asm.R5, meta, asm.DWord),
				asm.Mov.Reg(asm.R3, asm.R0),
				asm.And.Imm(asm.R3, metaLen),
				asm.JNE.Reg(asm.R3, asm.R4, next),
				asm.LoadMem(asm.R3, asm.R5, addr, asm.Word),
				asm.JEq.Reg(asm.R3, asm.R1, e.label+"_found"),
			)
			e.mark(next)
			continue
		}
		addr := int16(48 + 16*i)
		e.add(
			asm.LoadMem(asm.R0, asm.R5, meta, asm.Half), // the tag
			asm.JNE.Reg(asm.R0, asm.R4, next),
			asm.LoadMem(asm.R0, asm.R5, meta, asm.DWord),
			asm.Mov.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaTag),
			asm.JNE.Reg(asm.R3, asm.R4, next),
			asm.LoadMem(asm.R3, asm.R5, addr, asm.DWord),
			asm.JNE.Reg(asm.R3, asm.R1, next),
			asm.LoadMem(asm.R3, asm.R5, addr+8, asm.DWord),
			asm.JNE.Reg(asm.R3, asm.R2, next),
			asm.LoadMem(asm.R3, asm.R5, meta, asm.DWord),
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaIdentity),
			asm.JEq.Imm(asm.R3, 0, e.label+"_found"),
		)
		e.mark(next)
	}
}

// again goes on with the next length.
func (e *dynamicEmitter) again() {
	if e.symbol != "" { // the last slot's way out
		e.add(asm.Mov.Imm(asm.R0, 0))
	}
	e.mark(e.label + "_again")
	e.add(
		asm.LoadMem(asm.R3, asm.R10, stackIndex, asm.DWord),
		asm.Ja.Label(e.label+"_loop"),
	)
}

// found decides by the lease in the meta in R0, and ends the code.
func (e *dynamicEmitter) found() {
	e.mark(e.label + "_found")
	e.add(
		asm.RSh.Imm(asm.R0, metaExpires),
		asm.JEq.Imm(asm.R0, 0, e.label+"_in"),
		asm.StoreMem(asm.R10, stackLease, asm.R0, asm.DWord),
		asm.FnJiffies64.Call(),
		asm.LoadMem(asm.R1, asm.R10, stackLease, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, e.label+"_again"),
	)
	e.mark(e.label + "_in")
	e.add(asm.Mov.Imm(asm.R0, 1), asm.Ja.Label(e.end))
	e.mark(e.label + "_miss")
	e.add(asm.Mov.Imm(asm.R0, 0))
	e.mark(e.end)
	e.add(asm.And.Imm(asm.R0, 1))
}
