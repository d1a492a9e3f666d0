package hashtable

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// Stack bytes of the emitted code, below R10. In the function that looks one key up (Code.Search):
const (
	StackHi     = -8 // the address asked for, as in Key.Hi
	StackLo     = -16
	stackSecond = -24 // the half of the hash that names the second bucket
	stackLease  = -32 // end of the lease of the entry found
	stackTag    = -40 // of the key being looked for
	StackTable  = -48 // the address of the table, of one that is Far
)

// In the function that opens the maps (Code.Open):
const (
	stackKey  = -8  // of the set's memory in the array of maps, then 0, the only key in it
	StackFree = -16 // from here down the caller's
)

// Code is the code of one function. A look-up in a set is two functions: one opens the set and goes
// through the keys, the other looks for one key. Both are global: the verifier (Linux 5.6) walks
// each once, for any number of calls and keys. The second takes the set's memory as a pointer
// (5.12). They carry BTF, so every function of the program must (btf.WithFuncMetadata).
type Code struct {
	*assembler.Builder
	Layout              // of the table
	Map    string       // name of the array of maps
	Number asm.Register // has the key of the set's memory in it; R0: it holds one set only
}

// Pointer sets dst to a place in the set, whose memory is in R9.
func (c *Code) Pointer(dst asm.Register, offset int) {
	c.Emit(asm.Mov.Reg(dst, asm.R9), asm.Add.Imm(dst, int32(offset)))
}

// Open leaves the set's current memory in R9, or goes to miss without one. A look-up opens the set
// once, so that all its steps see the same contents while a replace swaps them.
func (c *Code) Open(miss string) {
	if c.Number == asm.R0 {
		c.Emit(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	} else {
		c.Emit(asm.StoreMem(asm.R10, stackKey, c.Number, asm.Word))
	}
	c.Emit(asm.LoadMapPtr(asm.R1, 0).WithReference(c.Map))
	c.element(miss)
	c.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	if c.Number != asm.R0 {
		c.Emit(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	}
	c.element(miss)
	c.Emit(asm.Mov.Reg(asm.R9, asm.R0))
}

// element looks the key on the stack up in the map in R1, or goes to miss.
func (c *Code) element(miss string) {
	c.Emit(
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, miss),
	)
}

// Search looks for the entry of one key in the memory in R9 and returns 1 if it is there and its
// lease has not ended, else 0. The address, with bits behind the prefix, is on the stack, the code
// of the length in the low byte of R4, and the service, where keys have one, in R8. A digest is in
// R1. The clock is read only when an entry is found. At the label no, 0 is returned as well.
func (c *Code) Search(no string) {
	look, found := c.Fresh("look"), c.Fresh("found")
	switch {
	case c.Narrow:
		c.narrowKey()
	case c.Digests:
		c.digestKey()
	default:
		c.wideKey()
	}
	probe := c.probe
	if c.Digests {
		probe = c.probeDigests
	}
	c.bucket()
	c.glance(look)
	c.Label(no)
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	c.Label(look)
	c.Emit(asm.StoreMem(asm.R10, stackTag, asm.R4, asm.DWord))
	probe(found)
	c.Emit(
		asm.LoadMem(asm.R0, asm.R5, int16(c.Spilled), asm.Word),
		asm.JEq.Imm(asm.R0, 0, no),
		asm.LoadMem(asm.R3, asm.R10, stackSecond, asm.DWord),
	)
	c.bucket()
	probe(found)
	c.Emit(asm.Ja.Label(no))
	c.Label(found)
	c.lease(no)
}

// narrowKey leaves the masked address in R1, the tag in R4, and the hash for the first bucket in
// R3; see Table.hash. Both are cut to the bits that are compared: else the verifier would learn
// from each compare that they are small, and walk what follows once more for not having known.
func (c *Code) narrowKey() {
	c.Emit(
		asm.And.Imm(asm.R4, metaCode),
		asm.Mov.Imm(asm.R0, 33), // code of 32 bits
		asm.Sub.Reg(asm.R0, asm.R4),
		asm.And.Imm(asm.R0, 63),
		asm.LoadMem(asm.R1, asm.R10, StackHi, asm.DWord),
		asm.RSh.Reg(asm.R1, asm.R0),
		asm.LSh.Reg(asm.R1, asm.R0),
		asm.Mov.Reg32(asm.R1, asm.R1),
		asm.Mov.Reg(asm.R3, asm.R4),
		asm.LSh.Imm(asm.R3, 32),
		asm.Or.Reg(asm.R3, asm.R1),
	)
	c.Pointer(asm.R5, AtSeeds)
	c.Emit(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R3, asm.R0))
	c.times(8)
	c.fold()
	c.times(16)
	c.halves()
}

// wideKey leaves the masked address in R1 and R2, the tag in R4, and the hash for the first bucket
// in R3.
func (c *Code) wideKey() {
	c.Emit(
		asm.And.Imm(asm.R4, metaCode),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.LSh.Imm(asm.R0, 4),
	)
	c.Pointer(asm.R5, AtMasks)
	c.Emit(
		asm.Add.Reg(asm.R5, asm.R0),
		asm.LoadMem(asm.R1, asm.R10, StackHi, asm.DWord),
		asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord),
		asm.And.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R2, asm.R10, StackLo, asm.DWord),
		asm.LoadMem(asm.R0, asm.R5, 8, asm.DWord),
		asm.And.Reg(asm.R2, asm.R0),
		asm.Mov.Reg(asm.R3, asm.R1),
	)
	c.Pointer(asm.R5, AtSeeds)
	c.Emit(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R3, asm.R0))
	c.times(8)
	c.fold()
	c.Emit(asm.Xor.Reg(asm.R3, asm.R2))
	rest := asm.R4
	if c.Services != 0 {
		rest = asm.R0
		c.Emit(asm.Mov.Reg(rest, asm.R8), asm.LSh.Imm(rest, 8), asm.Or.Reg(rest, asm.R4))
	}
	c.tag(rest)
}

// digestKey leaves the tag in R4 and the hash for the first bucket in R3; the digest stays in R1.
func (c *Code) digestKey() {
	c.Emit(asm.And.Imm(asm.R4, metaCode), asm.Mov.Reg(asm.R3, asm.R1))
	c.Pointer(asm.R5, AtSeeds)
	c.Emit(asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Xor.Reg(asm.R3, asm.R0))
	c.times(8)
	c.fold()
	c.tag(asm.R4)
}

// tag adds what keys have besides their address to the hash in R3, and leaves the tag in R4.
func (c *Code) tag(rest asm.Register) {
	c.Emit(asm.Add.Reg(asm.R3, rest))
	c.times(16)
	c.fold()
	c.times(24)
	c.Emit(
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.And.Imm(asm.R0, 0xff),
		asm.LSh.Imm(asm.R0, 8),
		asm.Or.Reg(asm.R4, asm.R0),
		asm.And.Imm(asm.R4, metaTag), // as in narrowKey
	)
	c.halves()
}

// times multiplies R3 by a seed; R5 points to the seeds.
func (c *Code) times(seed int16) {
	c.Emit(asm.LoadMem(asm.R0, asm.R5, seed, asm.DWord), asm.Mul.Reg(asm.R3, asm.R0))
}

func (c *Code) fold() {
	c.Emit(asm.Mov.Reg(asm.R0, asm.R3), asm.RSh.Imm(asm.R0, 32), asm.Xor.Reg(asm.R3, asm.R0))
}

// halves keeps the lower half of the hash for the second bucket and leaves the upper in R3.
func (c *Code) halves() {
	c.Emit(
		asm.Mov.Reg32(asm.R0, asm.R3),
		asm.StoreMem(asm.R10, stackSecond, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R3, 32),
	)
}

// bucket turns half a hash in R3 into the address of the bucket, in R5. The move tells the
// verifier, after a spill, that the number has 32 bits.
func (c *Code) bucket() {
	c.Emit(
		asm.Mov.Reg32(asm.R3, asm.R3),
		asm.Mul.Imm(asm.R3, int32(c.Buckets)),
		asm.RSh.Imm(asm.R3, 32),
		asm.Mul.Imm(asm.R3, int32(c.Bytes)),
	)
	if c.Far() {
		c.Emit(asm.LoadMem(asm.R5, asm.R10, StackTable, asm.DWord))
	} else {
		c.Pointer(asm.R5, c.At)
	}
	c.Emit(asm.Add.Reg(asm.R5, asm.R3))
}

// glance goes to look if any slot of the bucket at R5 may hold the key, or if entries have spilled
// from it, without branches but for the last. Only for equal numbers does x ^ y - 1 have the sign.
// Whether entries have spilled is read last: one that leaves its slot meanwhile has been counted
// before.
func (c *Code) glance(look string) {
	c.Emit(asm.Mov.Imm(asm.R3, 0))
	for i := range c.Slots {
		load, with := asm.LoadMem(asm.R0, asm.R5, int16(c.Metas+8*i), asm.Half), asm.R4
		if c.Narrow {
			load, with = asm.LoadMem(asm.R0, asm.R5, int16(c.Keys+4*i), asm.Word), asm.R1
		}
		c.Emit(load, asm.Xor.Reg(asm.R0, with), asm.Sub.Imm(asm.R0, 1), asm.Or.Reg(asm.R3, asm.R0))
	}
	c.Emit(
		asm.LoadMem(asm.R0, asm.R5, int16(c.Spilled), asm.Word),
		asm.Neg.Imm(asm.R0, 0),
		asm.Or.Reg(asm.R3, asm.R0),
		asm.JSLT.Imm(asm.R3, 0, look),
	)
}

// probe looks for the key in the slots of the bucket at R5, as Table.findIn does, and goes to found
// with its meta in R0. One branch a slot: all that has to be equal is gathered in R4.
func (c *Code) probe(found string) {
	for i := range c.Slots {
		gather := func(size asm.Size, offset int, with asm.Register) {
			c.Emit(
				asm.LoadMem(asm.R3, asm.R5, int16(offset), size),
				asm.Xor.Reg(asm.R3, with),
				asm.Or.Reg(asm.R4, asm.R3),
			)
		}
		meta := asm.LoadMem(asm.R0, asm.R5, int16(c.Metas+8*i), asm.DWord)
		c.Emit(
			meta,
			asm.LoadMem(asm.R4, asm.R10, stackTag, asm.DWord),
			asm.Xor.Reg(asm.R4, asm.R0),
			asm.And.Imm(asm.R4, metaTag),
		)
		if c.Narrow {
			gather(asm.Word, c.Keys+4*i, asm.R1)
		} else {
			gather(asm.DWord, c.Keys+16*i, asm.R1)
			gather(asm.DWord, c.Keys+16*i+8, asm.R2)
		}
		if c.Services != 0 {
			gather(asm.Word, c.Services+4*i, asm.R8)
		}
		meta.Dst = asm.R3
		c.Emit(
			meta,
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaIdentity),
			asm.Or.Reg(asm.R4, asm.R3),
			asm.JEq.Imm(asm.R4, 0, found),
		)
	}
}

// probeDigests is probe for digests, with one branch for all slots: which of them has the key
// nobody can guess, and what is guessed wrong has waited for the bucket in vain. The meta of the
// slot where nothing differs is gathered in R2: of 0 alone (x - 1) & ^x is negative.
func (c *Code) probeDigests(found string) {
	c.Emit(asm.Mov.Imm(asm.R2, 0))
	for i := range c.Slots {
		meta := asm.LoadMem(asm.R0, asm.R5, int16(c.Metas+8*i), asm.DWord)
		again := meta
		again.Dst = asm.R3
		c.Emit(
			meta,
			asm.LoadMem(asm.R3, asm.R10, stackTag, asm.DWord),
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaTag),
			asm.LoadMem(asm.R4, asm.R5, int16(c.Keys+8*i), asm.DWord),
			asm.Xor.Reg(asm.R4, asm.R1),
			asm.Or.Reg(asm.R4, asm.R3),
			again,
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaIdentity),
			asm.Or.Reg(asm.R4, asm.R3),
			asm.Mov.Reg(asm.R3, asm.R4),
			asm.Sub.Imm(asm.R3, 1),
			asm.Xor.Imm(asm.R4, -1),
			asm.And.Reg(asm.R3, asm.R4),
			asm.ArSh.Imm(asm.R3, 63),
			asm.And.Reg(asm.R0, asm.R3),
			asm.Or.Reg(asm.R2, asm.R0),
		)
	}
	c.Emit(asm.Mov.Reg(asm.R0, asm.R2), asm.JNE.Imm(asm.R0, 0, found))
}

// lease returns whether the lease in the meta in R0 has not ended; if it has, it goes to no.
func (c *Code) lease(no string) {
	yes := c.Fresh("yes")
	c.Emit(
		asm.RSh.Imm(asm.R0, metaExpires),
		asm.JEq.Imm(asm.R0, 0, yes),
		asm.StoreMem(asm.R10, stackLease, asm.R0, asm.DWord),
	)
	c.Jiffies()
	c.Emit(
		asm.LoadMem(asm.R1, asm.R10, stackLease, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, no),
	)
	c.Label(yes)
	c.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
}
