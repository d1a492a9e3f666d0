package prefix

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Stack bytes of the emitted code, below R10.
const (
	stackHi     = -8  // the address; IPv4 in the low half
	stackLo     = -16 // IPv6
	stackSecond = -24 // the half of the hash that names the second bucket
	stackLease  = -32 // end of the lease of the entry found
	stackTag    = -40 // of the key being looked for

	// In the function that opens the maps and goes through the lengths:
	stackKey   = -8  // of the set's memory in the array of maps, then 0, the only key in it
	stackTries = -16 // how many lengths may still be tried, for the verifier
	stackLater = -24 // IPv6: the lengths up to 64
)

// DynamicFunction4 gives the look-up of an IPv4 address in a dynamic set with the given max, as a
// function `u64 symbol(u64 address)` to be appended to a program and called with
// asm.Call.Label(symbol). For each prefix length in use it reads one bucket, sometimes two; the
// clock is read only when an entry is found.
//
// There are two functions, one that loops over the lengths and one that looks for a prefix of one
// length, called symbol_one. Both are global: the verifier (Linux 5.6) walks each once, however
// often it is called and whatever the number of lengths. The second takes the set's memory as a pointer (5.12). As one function the loop took 15,000 instructions of the
// verifier's million, and 70,000 for IPv6. They carry BTF, so every function of the program must
// (btf.WithFuncMetadata).
func DynamicFunction4(mapName, symbol string, max int) asm.Instructions {
	g := geometryOf(max)
	return dynamicFunctions(mapName, symbol, g, g.v4, asm.R0, "address")
}

// DynamicFunction6 does the same for IPv6: `u64 symbol(u64 high, u64 low)`.
func DynamicFunction6(mapName, symbol string, max int) asm.Instructions {
	g := geometryOf(max)
	return dynamicFunctions(mapName, symbol, g, g.v6, asm.R0, "high", "low")
}

// NumberedFunction4 is DynamicFunction4 for all sets of one room (see FormatRoom), whose memories one array of maps holds: `u64
// symbol(u64 address, u64 number)`, where number is the key of the set's memory. Where the map has none the answer is 0.
func NumberedFunction4(mapName, symbol string, room int) asm.Instructions {
	g := geometryOf(room)
	return dynamicFunctions(mapName, symbol, g, g.v4, asm.R2, "address", "number")
}

// NumberedFunction6 does the same for IPv6: `u64 symbol(u64 high, u64 low, u64 number)`.
func NumberedFunction6(mapName, symbol string, room int) asm.Instructions {
	g := geometryOf(room)
	return dynamicFunctions(mapName, symbol, g, g.v6, asm.R3, "high", "low", "number")
}

// dynamicFunctions makes both functions. The key of the set's memory is in register number, 0 for R0.
func dynamicFunctions(mapName, symbol string, g geometry, f family, number asm.Register, names ...string) asm.Instructions {
	one := symbol + "_one"
	emitter := func(label string) *dynamicEmitter {
		return &dynamicEmitter{
			emitter: emitter{mapName: mapName, v4: f.width == 32},
			family:  f,
			label:   label,
			number:  number,
		}
	}
	all, single := emitter(symbol+"_in"), emitter(one+"_in")
	all.all(one)
	single.one()
	key := params(names[:f.words]...)
	return append(
		function(symbol, all.out, params(names...)),
		function(one, single.out, append(key, params("length")[0], memoryParam(g.size)))...,
	)
}

// number is the type of what the functions take and give.
var number = &btf.Int{Name: "unsigned long long", Size: 8}

func params(names ...string) (out []btf.FuncParam) {
	for _, name := range names {
		out = append(out, btf.FuncParam{Name: name, Type: number})
	}
	return out
}

// memoryParam is a pointer to the memory of a set; its type tells the verifier how much that is.
func memoryParam(size int) btf.FuncParam {
	index := &btf.Int{Name: "unsigned int", Size: 4}
	words := &btf.Array{Index: index, Type: number, Nelems: uint32(size / 8)}
	return btf.FuncParam{Name: "set", Type: &btf.Pointer{Target: words}}
}

func function(symbol string, code asm.Instructions, params []btf.FuncParam) asm.Instructions {
	proto := &btf.FuncProto{Return: number, Params: params}
	fn := &btf.Func{Name: symbol, Type: proto, Linkage: btf.GlobalFunc}
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(symbol), fn)
	return code
}

type dynamicEmitter struct {
	emitter
	family
	label  string
	number asm.Register // R0: the map holds one set only
}

// open leaves the memory of the set that is in force in R9, or goes to miss if there is none. A look-up
// opens the set once, so that all its steps see the same contents while a replace swaps them.
func (e *dynamicEmitter) open() {
	if e.number == asm.R0 {
		e.add(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	} else {
		e.add(asm.StoreMem(asm.R10, stackKey, e.number, asm.Word))
	}
	e.add(asm.LoadMapPtr(asm.R1, 0).WithReference(e.mapName))
	e.element()
	e.add(asm.Mov.Reg(asm.R1, asm.R0))
	if e.number != asm.R0 {
		e.add(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	}
	e.element()
	e.add(asm.Mov.Reg(asm.R9, asm.R0))
}

// element looks the key on the stack up in the map in R1.
func (e *dynamicEmitter) element() {
	e.add(
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, e.label+"_miss"),
	)
}

// pointer sets dst to a place in the set that open found.
func (e *dynamicEmitter) pointer(dst asm.Register, offset int) {
	e.add(asm.Mov.Reg(dst, asm.R9), asm.Add.Imm(dst, int32(offset)))
}

// all calls the function one for each length that the filter names, until it says yes.
func (e *dynamicEmitter) all(one string) {
	e.add(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Reg(asm.R7, asm.R1))
	if !e.v4 {
		e.add(asm.Mov.Reg(asm.R7, asm.R2))
	}
	e.open()
	e.wanted()
	if e.v4 {
		e.try(one, e.label+"_each", e.label+"_miss", 32, 33)
		e.mark(e.label + "_miss")
		e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
		return
	}
	e.add(asm.StoreMem(asm.R10, stackLater, asm.R2, asm.DWord))
	e.try(one, e.label+"_long", e.label+"_then", 128, 64)
	e.mark(e.label + "_then")
	e.add(asm.LoadMem(asm.R8, asm.R10, stackLater, asm.DWord))
	e.try(one, e.label+"_short", e.label+"_last", 64, 64)
	e.mark(e.label + "_last")
	e.pointer(asm.R5, e.counts) // of length 0
	e.add(
		asm.LoadMem(asm.R0, asm.R5, 0, asm.Word),
		asm.JEq.Imm(asm.R0, 0, e.label+"_miss"),
		asm.Mov.Imm(asm.R3, 1),
	)
	e.call(one)
	e.add(asm.Return())
	e.mark(e.label + "_miss")
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// wanted leaves the set of lengths to try in R8, for IPv6 those up to 64 in R2; see Dynamic.wanted.
func (e *dynamicEmitter) wanted() {
	word := func(dst asm.Register, offset int) {
		e.pointer(asm.R5, offset)
		e.add(asm.LoadMem(dst, asm.R5, 0, asm.DWord))
	}
	word(asm.R8, e.lengths+lengthsUsed)
	if !e.v4 {
		word(asm.R2, e.lengths+lengthsUsed+8)
	}
	word(asm.R0, e.lengths)
	e.add(asm.JLE.Imm(asm.R0, few, e.label+"_go"))
	if e.v4 {
		e.add(asm.Mov.Reg32(asm.R3, asm.R6), asm.RSh.Imm(asm.R3, int32(32-e.bits)), asm.LSh.Imm(asm.R3, 3))
	} else {
		e.add(asm.Mov.Reg(asm.R3, asm.R6), asm.RSh.Imm(asm.R3, 64-hashed6))
		word(asm.R0, offSeeds+8)
		e.add(asm.Mul.Reg(asm.R3, asm.R0), asm.RSh.Imm(asm.R3, int32(64-e.bits)), asm.LSh.Imm(asm.R3, 4))
	}
	e.pointer(asm.R4, e.filter)
	e.add(asm.Add.Reg(asm.R4, asm.R3))
	for w, set := range []asm.Register{asm.R8, asm.R2}[:e.words] {
		e.add(asm.LoadMem(asm.R3, asm.R4, int16(8*w), asm.DWord))
		if !e.v4 {
			word(asm.R0, e.lengths+lengthsShort+8*w)
			e.add(asm.Or.Reg(asm.R3, asm.R0))
		}
		e.add(asm.And.Reg(set, asm.R3))
	}
	e.mark(e.label + "_go")
}

// try calls the function one for each length of the set in R8, whose lowest bit is the length top, and goes
// to done if none said yes. most is how many bits can be set.
func (e *dynamicEmitter) try(one, label, done string, top, most int) {
	e.add(asm.Mov.Imm(asm.R1, int32(most)), asm.StoreMem(asm.R10, stackTries, asm.R1, asm.DWord))
	e.mark(label)
	length := asm.R2
	if !e.v4 {
		length = asm.R3
	}
	e.add(
		asm.JEq.Imm(asm.R8, 0, done),
		asm.LoadMem(asm.R1, asm.R10, stackTries, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, done),
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
	e.pointer(asm.R5, offLowest)
	e.add(
		asm.Add.Reg(asm.R5, asm.R1),
		asm.LoadMem(asm.R1, asm.R5, 0, asm.Byte),
		asm.Mov.Imm(length, int32(top+1)),
		asm.Sub.Reg(length, asm.R1),
	)
	e.call(one)
	e.add(
		asm.JEq.Imm(asm.R0, 0, label),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
	e.mark(label + "_done")
}

// call asks for the address and the length that is in its register already.
func (e *dynamicEmitter) call(one string) {
	memory := asm.R3
	if !e.v4 {
		memory = asm.R4
	}
	e.add(asm.Mov.Reg(asm.R1, asm.R6))
	if !e.v4 {
		e.add(asm.Mov.Reg(asm.R2, asm.R7))
	}
	e.add(asm.Mov.Reg(memory, asm.R9), asm.Call.Label(one))
}

// one looks for the prefix of one length, given + 1 behind the address, that holds the address: 1 if it
// is there and its lease has not ended, else 0.
func (e *dynamicEmitter) one() {
	if e.v4 {
		e.add(asm.Mov.Reg(asm.R9, asm.R3), asm.Mov.Reg(asm.R4, asm.R2), asm.Mov.Reg32(asm.R1, asm.R1))
	} else {
		e.add(asm.Mov.Reg(asm.R9, asm.R4), asm.Mov.Reg(asm.R4, asm.R3), asm.StoreMem(asm.R10, stackLo, asm.R2, asm.DWord))
	}
	e.add(asm.JEq.Imm(asm.R9, 0, e.label+"_no")) // for the verifier: a pointer given to a function may be none
	e.add(asm.StoreMem(asm.R10, stackHi, asm.R1, asm.DWord))
	if e.v4 {
		e.key4()
	} else {
		e.key6()
	}
	e.bucket()
	e.glance()
	e.mark(e.label + "_no")
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	e.mark(e.label + "_look")
	e.add(asm.StoreMem(asm.R10, stackTag, asm.R4, asm.DWord))
	e.probe()
	e.add(
		asm.LoadMem(asm.R0, asm.R5, spilledAt, asm.Word),
		asm.JEq.Imm(asm.R0, 0, e.label+"_no"),
		asm.LoadMem(asm.R3, asm.R10, stackSecond, asm.DWord),
	)
	e.bucket()
	e.probe()
	e.add(asm.Ja.Label(e.label + "_no"))
	e.found()
}

// key4 leaves the masked address in R1, length + 1 in R4, and the hash for the first bucket in R3.
// Both are cut to the bits that they are compared with: else the verifier would learn from each
// compare that they are small, and walk what follows once more for not having known.
func (e *dynamicEmitter) key4() {
	e.add(
		asm.And.Imm(asm.R4, 0xff),
		asm.Mov.Imm(asm.R0, 33),
		asm.Sub.Reg(asm.R0, asm.R4),
		asm.And.Imm(asm.R0, 63),
		asm.LoadMem(asm.R1, asm.R10, stackHi, asm.DWord),
		asm.RSh.Reg(asm.R1, asm.R0),
		asm.LSh.Reg(asm.R1, asm.R0),
		asm.Mov.Reg32(asm.R1, asm.R1),
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
		asm.And.Imm(asm.R4, metaTag), // as in key4
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

// bucket turns half a hash in R3 into the address of the bucket, in R5. The move tells the verifier, after
// a spill, that the number has 32 bits.
func (e *dynamicEmitter) bucket() {
	e.add(
		asm.Mov.Reg32(asm.R3, asm.R3),
		asm.Mul.Imm(asm.R3, int32(e.buckets)),
		asm.RSh.Imm(asm.R3, 32),
		asm.Mul.Imm(asm.R3, int32(e.size)),
	)
	e.pointer(asm.R5, e.off)
	e.add(asm.Add.Reg(asm.R5, asm.R3))
}

// glance goes to look if any slot of the bucket at R5 may hold the key, or if entries have spilled
// from it, without branches but for the last. Only for equal numbers does x ^ y - 1 have the sign. Whether entries have spilled is
// read last: one that leaves its slot meanwhile has been counted before.
func (e *dynamicEmitter) glance() {
	e.add(asm.Mov.Imm(asm.R3, 0))
	for i := range slots {
		load, with := asm.LoadMem(asm.R0, asm.R5, int16(4+4*i), asm.Word), asm.R1
		if !e.v4 {
			load, with = asm.LoadMem(asm.R0, asm.R5, int16(e.meta+8*i), asm.Half), asm.R4
		}
		e.add(load, asm.Xor.Reg(asm.R0, with), asm.Sub.Imm(asm.R0, 1), asm.Or.Reg(asm.R3, asm.R0))
	}
	e.add(
		asm.LoadMem(asm.R0, asm.R5, spilledAt, asm.Word),
		asm.Neg.Imm(asm.R0, 0),
		asm.Or.Reg(asm.R3, asm.R0),
		asm.JSLT.Imm(asm.R3, 0, e.label+"_look"),
	)
}

// probe looks for the key in the slots of the bucket at R5, as findIn does, and goes to found with its
// meta in R0. One branch a slot: all that has to be equal is gathered in R4. That the second look at the
// meta finds a slot that changed hands needs loads to happen in order, as they do on x86-64; where
// they need not (arm64), a reader may, in the nanoseconds of such a change, take the next lease for this one's.
func (e *dynamicEmitter) probe() {
	for i := range slots {
		meta := int16(e.meta + 8*i)
		gather := func(size asm.Size, offset int16, with asm.Register) {
			e.add(
				asm.LoadMem(asm.R3, asm.R5, offset, size),
				asm.Xor.Reg(asm.R3, with),
				asm.Or.Reg(asm.R4, asm.R3),
			)
		}
		e.add(
			asm.LoadMem(asm.R0, asm.R5, meta, asm.DWord),
			asm.LoadMem(asm.R4, asm.R10, stackTag, asm.DWord),
			asm.Xor.Reg(asm.R4, asm.R0),
			asm.And.Imm(asm.R4, metaTag),
		)
		if e.v4 {
			gather(asm.Word, int16(4+4*i), asm.R1)
		} else {
			gather(asm.DWord, int16(48+16*i), asm.R1)
			gather(asm.DWord, int16(56+16*i), asm.R2)
		}
		e.add(
			asm.LoadMem(asm.R3, asm.R5, meta, asm.DWord),
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaIdentity),
			asm.Or.Reg(asm.R4, asm.R3),
			asm.JEq.Imm(asm.R4, 0, e.label+"_found"),
		)
	}
}

// found decides by the lease in the meta in R0.
func (e *dynamicEmitter) found() {
	e.mark(e.label + "_found")
	e.add(
		asm.RSh.Imm(asm.R0, metaExpires),
		asm.JEq.Imm(asm.R0, 0, e.label+"_yes"),
		asm.StoreMem(asm.R10, stackLease, asm.R0, asm.DWord),
		asm.FnJiffies64.Call(),
		asm.LoadMem(asm.R1, asm.R10, stackLease, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, e.label+"_no"),
	)
	e.mark(e.label + "_yes")
	e.add(asm.Mov.Imm(asm.R0, 1), asm.Return())
}
