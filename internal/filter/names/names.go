// Package names reads DNS messages in programs, and looks their names up in sets: a function that
// clang makes of bpf/dns.bpf.c, the tables of sets, and the function that searches one.
//
// In go names and a secret, out come tables and instructions. The function reads the head of a
// message once, and leaves a digest of each suffix of the name; a table holds digests, so that a
// look-up takes one cache line for each number of labels that elements of the set have. [Table] is
// that of a set that does not change, [Dynamic] that of one whose entries come and go, with leases:
// beside the table it has their letters, which programs do not read. Digests are
// sums of NH (RFC 4418), of 128 bits: of two names that differ they are equal with a probability of
// about 2^-64 for who does not know the secret. Of these 128 bits a table compares 61, and the
// bucket.
//
// The package knows no policies, and opens, pins and loads nothing.
package names

import (
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type dns_facts -type name_work read ../../../bpf/dns.bpf.c

// Label is the function. It is given the context, the offset of the UDP header, the bytes of the
// packet from that offset, and the number of suffixes whose digests are wanted. It returns facts in
// the upper half, and in the lower the question's type below the size that EDNS tells.
const Label = "dns"

// Facts of a message.
const (
	Seen      = int32(readDnsFactsDNS_SEEN) // it has been looked at
	Header    = int32(readDnsFactsDNS_HEAD)
	Response  = int32(readDnsFactsDNS_RESPONSE)
	Malformed = int32(readDnsFactsDNS_MALFORMED)
	Question  = int32(readDnsFactsDNS_QUESTION)
	EDNS      = int32(readDnsFactsDNS_EDNS)

	OpcodeShift = int32(readDnsFactsDNS_OPCODE) // 4 bits
	LabelsShift = int32(readDnsFactsDNS_LABELS) // 8 bits
)

// WorkMap is the name of the map with each CPU's scratch memory.
const (
	WorkMap   = "names"
	WorkBytes = int(unsafe.Sizeof(readNameWork{}))
)

// KeysTable is the table with the keys of digests, for all sets of a program.
const (
	KeysTable = "name_keys"
	KeysBytes = int(unsafe.Sizeof(keys{}))
)

// How many instructions the functions have, at most: that which reads messages, and that which
// searches a set.
const (
	MaxInstructions       = 1_500
	MaxSearchInstructions = 110
)

var load = sync.OnceValues(loadRead)

// Keys returns the contents of KeysTable.
func Keys(s Secret) []byte {
	k := keysOf(s)
	return k.bytes()
}

// WorkSpec describes the map of the function's scratch memory.
func WorkSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: WorkMap, Type: ebpf.PerCPUArray, KeySize: 4,
		ValueSize: uint32(WorkBytes), MaxEntries: 1}
}

// Emit emits the function, for programs at tc or at XDP, for packets in one buffer or several.
func Emit(b *assembler.Builder, context assembler.Param, tcx, frags bool) error {
	function, entry := "dns_xdp", readProgEntryXdp
	switch {
	case tcx:
		function, entry = "dns_tcx", readProgEntryTcx
	case frags:
		function, entry = "dns_xdp_frags", readProgEntryXdpFrags
	}
	return b.Function(load, "read DNS messages", assembler.Function{Label: Label, Name: function,
		Entry: entry, Params: []assembler.Param{context, assembler.Number("off"),
			assembler.Number("left"), assembler.Number("deepest")},
		Change: func(body asm.Instructions) asm.Instructions {
			for i := range body {
				if body[i].Reference() == ".rodata.names" {
					body[i] = body[i].WithReference(KeysTable)
				}
			}
			return body
		}})
}

// Stack of the function that searches.
const stackZero = -4

// EmitSearch emits a function that returns 1 if the name that was read last on this CPU, of so many
// labels, is in a table, else 0.
func (t *Table) EmitSearch(b *assembler.Builder, label, table string) {
	b.Global(label, assembler.Number("labels"))
	no := b.Fresh("no_name")
	switch {
	case t.Root:
		b.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
		return
	case t.AllBelow:
		b.Emit(asm.Mov.Imm(asm.R0, 1), asm.JNE.Imm(asm.R1, 0, no), asm.Mov.Imm(asm.R0, 0))
		b.Label(no)
		b.Emit(asm.Return())
		return
	}
	next, bucket, ask := b.Fresh("depth"), b.Fresh("bucket"), b.Fresh("ask")
	b.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.R10, stackZero, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(WorkMap),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackZero),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, no),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMapValue(asm.R8, 0, 0).WithReference(table),
		asm.Mov.Imm(asm.R9, 0),
		asm.Mov.Imm(asm.R5, 0),
	)
	// The lines of all numbers of labels are read, and the answer, the sign of R5, is asked for at
	// the end. A branch on what a line holds is guessed: where it was guessed wrong, all behind it
	// has waited for memory in vain.
	b.Label(next)
	b.Emit(
		asm.JGE.Imm(asm.R9, int32(len(t.Depths)), ask),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Add.Reg(asm.R1, asm.R9),
		asm.LoadMem(asm.R3, asm.R1, 0, asm.Byte),
		asm.Add.Imm(asm.R9, 1),
		asm.JGT.Reg(asm.R3, asm.R6, ask),
	)
	t.locate(b, next)
	t.compareBuckets(b, bucket, next)
	b.Label(ask)
	b.Emit(asm.JSGE.Imm(asm.R5, 0, no), asm.Mov.Imm(asm.R0, 1), asm.Return())
	b.Label(no)
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// locate finds the slot of the name's suffix with R3 labels: it leaves the suffix's mark in R1 and
// the address of its bucket in R4. It goes to next where the filter has no such suffix. R7 is the
// work memory, R8 the table.
func (t *Table) locate(b *assembler.Builder, next string) {
	b.Emit(
		// The digest of the suffix with so many labels.
		asm.Mov.Reg(asm.R2, asm.R3),
		asm.Sub.Imm(asm.R2, 1),
		asm.And.Imm(asm.R2, int32(pieces-1)),
		asm.LSh.Imm(asm.R2, 4),
		asm.Add.Reg(asm.R2, asm.R7),
		asm.LoadMem(asm.R4, asm.R2, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R2, 8, asm.DWord),
		// Its mark, in R1.
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.LSh.Imm(asm.R1, 32),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.RSh.Imm(asm.R0, 32),
		asm.Or.Reg(asm.R1, asm.R0),
		asm.Xor.Reg(asm.R1, asm.R4),
		asm.RSh.Imm(asm.R1, 1),
		asm.And.Imm(asm.R1, ^flags),
		asm.Or.Imm(asm.R1, present),
		// Its bucket, in R4.
		asm.LoadImm(asm.R0, mixA-1<<64, asm.DWord),
		asm.Mul.Reg(asm.R4, asm.R0),
		asm.Add.Reg(asm.R4, asm.R2),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 32),
		asm.Xor.Reg(asm.R4, asm.R0),
		asm.LoadImm(asm.R0, mixB-1<<64, asm.DWord),
		asm.Mul.Reg(asm.R4, asm.R0),
		asm.RSh.Imm(asm.R4, 32),
		asm.Mul.Imm(asm.R4, int32(t.buckets)),
	)
	if t.filter > 0 {
		b.Emit(asm.Mov.Reg(asm.R0, asm.R4))
	}
	b.Emit(asm.RSh.Imm(asm.R4, 32))
	if t.filter > 0 {
		// The branch on what the filter has is guessed right while a flood asks for names that are
		// not there, and the next packet need not wait for it.
		b.Emit(
			asm.RSh.Imm(asm.R0, 32-filterBits),
			asm.And.Imm(asm.R0, 1<<filterBits-1),
			asm.Mov.Reg(asm.R2, asm.R4),
			asm.Mul.Imm(asm.R2, filterBytes),
			asm.Add.Reg(asm.R2, asm.R8),
			asm.Add.Imm(asm.R2, int32(t.filter)),
			asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
			asm.RSh.Reg(asm.R2, asm.R0),
			asm.And.Imm(asm.R2, 1),
			asm.JEq.Imm(asm.R2, 0, next),
		)
	}
	b.Emit(
		asm.Mul.Imm(asm.R4, bucketBytes),
		asm.Add.Reg(asm.R4, asm.R8),
	)
}

// compareBuckets compares the mark in R1 with the slots of reach buckets from R4 on, and leaves the
// answer in the sign of R5. Then it goes to next.
func (t *Table) compareBuckets(b *assembler.Builder, bucket, next string) {
	if t.below {
		// The bits that have to be equal, in R2: of what has more labels all but onlyBelow.
		b.Emit(
			asm.Mov.Reg(asm.R2, asm.R6),
			asm.Sub.Reg(asm.R2, asm.R3),
			asm.Sub.Imm(asm.R2, 1),
			asm.ArSh.Imm(asm.R2, 63),
			asm.Or.Imm(asm.R2, ^onlyBelow),
		)
	}
	b.Emit(asm.Mov.Imm(asm.R3, 0))
	b.Label(bucket)
	for i := range slots {
		b.Emit(asm.LoadMem(asm.R0, asm.R4, int16(depthBytes+8*i), asm.DWord))
		if i == slots-1 {
			b.Emit(asm.JLT.Imm(asm.R0, 1, next)) // it is free: no element is in another bucket
		}
		b.Emit(asm.Xor.Reg(asm.R0, asm.R1))
		if t.below {
			b.Emit(asm.And.Reg(asm.R0, asm.R2))
		}
		b.Emit(asm.Sub.Imm(asm.R0, 1), asm.Or.Reg(asm.R5, asm.R0)) // 0 - 1 alone has the sign
	}
	b.Emit(
		asm.Add.Imm(asm.R4, bucketBytes),
		asm.Add.Imm(asm.R3, 1),
		asm.JLT.Imm(asm.R3, reach, bucket),
		asm.Ja.Label(next),
	)
}

// KeyLabel is the function that gives the digest, in 64 bits, of so many labels at the end of the
// name that was read last on this CPU; of all where the name has fewer, or the number is 0. It is
// given the name's labels and that number.
const KeyLabel = "name_key"

// EmitKey emits that function.
func EmitKey(b *assembler.Builder) {
	all, root := b.Fresh("all_labels"), b.Fresh("root")
	b.Global(KeyLabel, assembler.Number("labels"), assembler.Number("last"))
	b.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.JEq.Imm(asm.R2, 0, all),
		asm.JGE.Reg(asm.R2, asm.R6, all),
		asm.Mov.Reg(asm.R6, asm.R2),
	)
	b.Label(all)
	b.Emit(
		asm.JEq.Imm(asm.R6, 0, root),
		asm.StoreImm(asm.R10, stackZero, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(WorkMap),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, stackZero),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, root),
		asm.Sub.Imm(asm.R6, 1),
		asm.And.Imm(asm.R6, int32(pieces-1)),
		asm.LSh.Imm(asm.R6, 4),
		asm.Add.Reg(asm.R6, asm.R0),
		asm.LoadMem(asm.R0, asm.R6, 0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
		asm.LoadImm(asm.R2, mixA-1<<64, asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R2),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.Return(),
	)
	b.Label(root)
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}
