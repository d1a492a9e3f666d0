package endpoint

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Stack bytes of the emitted code, below R10.
const (
	stackHi     = -8 // the address
	stackLo     = -16
	stackSecond = -24 // the half of the hash that names the second bucket
	stackLease  = -32 // end of the lease of the entry found
	stackTag    = -40 // of the key being looked for

	// In the function that opens the maps and goes through the shapes:
	stackKey    = -8 // of the set's memory in the array of maps, then 0, the only key in it
	stackNumber = -16
)

// Function gives the look-up of an endpoint as a function `u64 symbol(u64 high, u64 low, u64 service)`: the address left-aligned
// in 128 bits, an IPv4 address in the upper half of high, and protocol<<16 | port, with port 0 for protocols without
// ports. R0 is 1 if an entry of the set, of the given family and max, covers it, else 0.
//
// As in package prefix there are two global functions, one that loops over the shapes in use and one, symbol_one, that looks for the
// entry of one shape; the clock is read only when an entry is found.
func Function(mapName, symbol string, max int, ip4 bool) asm.Instructions {
	return functions(mapName, symbol, max, ip4, false)
}

// NumberedFunction is Function for all sets of one room (see FormatRoom), whose memories one array of maps holds: `u64 symbol(u64
// high, u64 low, u64 service, u64 number)`, where number is the key of the set's memory. Where the map has none the answer is 0.
func NumberedFunction(mapName, symbol string, room int, ip4 bool) asm.Instructions {
	return functions(mapName, symbol, room, ip4, true)
}

func functions(mapName, symbol string, room int, ip4, numbered bool) asm.Instructions {
	one := symbol + "_one"
	all := &emitter{mapName: mapName, label: symbol + "_in", buckets: bucketsFor(room), numbered: numbered}
	single := &emitter{mapName: mapName, label: one + "_in", buckets: bucketsFor(room)}
	all.shapes(one, ip4)
	single.one()
	asked := params("high", "low", "service", "number")
	key := asked[:3:3]
	if !numbered {
		asked = key
	}
	return append(
		function(symbol, all.out, asked),
		function(one, single.out, append(key, params("shape")[0], memoryParam(sizeFor(room))))...,
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

// emitter collects instructions; a pending symbol is put on the next one.
type emitter struct {
	out     asm.Instructions
	symbol  string
	mapName string
	label   string
	buckets int

	numbered bool // the key of the set's memory is in R4
}

func (e *emitter) add(ins ...asm.Instruction) {
	if e.symbol != "" {
		ins[0] = ins[0].WithSymbol(e.symbol)
		e.symbol = ""
	}
	e.out = append(e.out, ins...)
}

func (e *emitter) mark(symbol string) { e.symbol = symbol }

// pointer sets dst to a place in the set, which is in R9.
func (e *emitter) pointer(dst asm.Register, offset int) {
	e.add(asm.Mov.Reg(dst, asm.R9), asm.Add.Imm(dst, int32(offset)))
}

// open leaves the memory of the set that is in force in R9, or goes to miss if there is none. A look-up opens the set
// once, so that all its steps see the same contents while a replace swaps them.
func (e *emitter) open() {
	if e.numbered {
		e.add(asm.StoreMem(asm.R10, stackKey, asm.R4, asm.Word))
	} else {
		e.add(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	}
	e.add(asm.LoadMapPtr(asm.R1, 0).WithReference(e.mapName))
	e.element()
	e.add(asm.Mov.Reg(asm.R1, asm.R0))
	if e.numbered {
		e.add(asm.StoreImm(asm.R10, stackKey, 0, asm.Word))
	}
	e.element()
	e.add(asm.Mov.Reg(asm.R9, asm.R0))
}

// element looks the key on the stack up in the map in R1.
func (e *emitter) element() {
	e.add(
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, e.label+"_miss"),
	)
}

// shapes calls the function one for each shape in use, from the end of the list (see count), until it says yes.
func (e *emitter) shapes(one string, ip4 bool) {
	number, list := shapesOf(ip4)
	e.add(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.StoreMem(asm.R10, stackNumber, asm.R3, asm.DWord),
	)
	e.open()
	e.pointer(asm.R5, number)
	e.add(
		asm.LoadMem(asm.R8, asm.R5, 0, asm.Word),
		asm.JGT.Imm(asm.R8, MaxShapes, e.label+"_miss"), // the verifier's bound
	)
	e.mark(e.label + "_loop")
	e.add(
		asm.JEq.Imm(asm.R8, 0, e.label+"_miss"),
		asm.Sub.Imm(asm.R8, 1),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.LSh.Imm(asm.R3, 2),
	)
	e.pointer(asm.R5, list)
	e.add(
		asm.Add.Reg(asm.R5, asm.R3),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.LoadMem(asm.R3, asm.R10, stackNumber, asm.DWord),
		asm.LoadMem(asm.R4, asm.R5, 0, asm.Word),
		asm.Mov.Reg(asm.R5, asm.R9),
		asm.Call.Label(one),
		asm.JEq.Imm(asm.R0, 0, e.label+"_loop"),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return(),
	)
	e.mark(e.label + "_miss")
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// one looks for the entry of one shape that covers address and service: 1 if it is there and its lease has not ended, else 0.
func (e *emitter) one() {
	e.add(
		asm.Mov.Reg(asm.R9, asm.R5),
		asm.JEq.Imm(asm.R9, 0, e.label+"_no"), // for the verifier: a pointer given to a function may be none
		asm.StoreMem(asm.R10, stackHi, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, stackLo, asm.R2, asm.DWord),
	)
	e.service()
	e.key()
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

// service turns protocol<<16 | port in R3 and the shape in R4 into the service that the key has, in R8, and the code of the length in R4.
func (e *emitter) service() {
	e.add(
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
		asm.And.Imm(asm.R4, metaCode),
	)
}

// key leaves the masked address in R1 and R2, the tag in R4, and the hash for the first bucket in R3; see hash.
func (e *emitter) key() {
	e.add(asm.Mov.Reg(asm.R0, asm.R4), asm.LSh.Imm(asm.R0, 4))
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
	e.add(
		asm.Xor.Reg(asm.R3, asm.R2),
		asm.Mov.Reg(asm.R0, asm.R8),
		asm.LSh.Imm(asm.R0, 8),
		asm.Or.Reg(asm.R0, asm.R4),
		asm.Add.Reg(asm.R3, asm.R0),
	)
	e.times(16)
	e.fold()
	e.times(24)
	e.add(
		asm.Mov.Reg(asm.R0, asm.R3),
		asm.And.Imm(asm.R0, 0xff),
		asm.LSh.Imm(asm.R0, 8),
		asm.Or.Reg(asm.R4, asm.R0),
		asm.And.Imm(asm.R4, metaTag), // or the verifier would learn from each compare that it is small
		asm.Mov.Reg32(asm.R0, asm.R3),
		asm.StoreMem(asm.R10, stackSecond, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R3, 32),
	)
}

// times multiplies R3 by a seed; R5 points to the seeds.
func (e *emitter) times(seed int16) {
	e.add(asm.LoadMem(asm.R0, asm.R5, seed, asm.DWord), asm.Mul.Reg(asm.R3, asm.R0))
}

func (e *emitter) fold() {
	e.add(asm.Mov.Reg(asm.R0, asm.R3), asm.RSh.Imm(asm.R0, 32), asm.Xor.Reg(asm.R3, asm.R0))
}

// bucket turns half a hash in R3 into the address of the bucket, in R5. The move tells the verifier, after a spill, that the
// number has 32 bits.
func (e *emitter) bucket() {
	e.add(
		asm.Mov.Reg32(asm.R3, asm.R3),
		asm.Mul.Imm(asm.R3, int32(e.buckets)),
		asm.RSh.Imm(asm.R3, 32),
		asm.Mul.Imm(asm.R3, bucketBytes),
	)
	e.pointer(asm.R5, offBuckets)
	e.add(asm.Add.Reg(asm.R5, asm.R3))
}

// glance goes to look if any slot of the bucket at R5 may hold the key, or if entries have spilled from it, without branches but
// for the last. Only for equal numbers does x ^ y - 1 have the sign. Whether entries have spilled is read last: one that leaves its
// slot meanwhile has been counted before.
func (e *emitter) glance() {
	e.add(asm.Mov.Imm(asm.R3, 0))
	for i := range slots {
		e.add(
			asm.LoadMem(asm.R0, asm.R5, int16(8*i), asm.Half),
			asm.Xor.Reg(asm.R0, asm.R4),
			asm.Sub.Imm(asm.R0, 1),
			asm.Or.Reg(asm.R3, asm.R0),
		)
	}
	e.add(
		asm.LoadMem(asm.R0, asm.R5, spilledAt, asm.Word),
		asm.Neg.Imm(asm.R0, 0),
		asm.Or.Reg(asm.R3, asm.R0),
		asm.JSLT.Imm(asm.R3, 0, e.label+"_look"),
	)
}

// probe looks for the key in the slots of the bucket at R5, as findIn does, and goes to found with its meta in R0. One branch
// a slot: all that has to be equal is gathered in R4.
func (e *emitter) probe() {
	for i := range slots {
		gather := func(size asm.Size, offset int, with asm.Register) {
			e.add(
				asm.LoadMem(asm.R3, asm.R5, int16(offset), size),
				asm.Xor.Reg(asm.R3, with),
				asm.Or.Reg(asm.R4, asm.R3),
			)
		}
		e.add(
			asm.LoadMem(asm.R0, asm.R5, int16(8*i), asm.DWord),
			asm.LoadMem(asm.R4, asm.R10, stackTag, asm.DWord),
			asm.Xor.Reg(asm.R4, asm.R0),
			asm.And.Imm(asm.R4, metaTag),
		)
		gather(asm.DWord, keyAt+16*i, asm.R1)
		gather(asm.DWord, keyAt+16*i+8, asm.R2)
		gather(asm.Word, serviceAt+4*i, asm.R8)
		e.add(
			asm.LoadMem(asm.R3, asm.R5, int16(8*i), asm.DWord),
			asm.Xor.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, metaIdentity),
			asm.Or.Reg(asm.R4, asm.R3),
			asm.JEq.Imm(asm.R4, 0, e.label+"_found"),
		)
	}
}

// found decides by the lease in the meta in R0.
func (e *emitter) found() {
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
