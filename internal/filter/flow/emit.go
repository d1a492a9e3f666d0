package flow

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

// MaxInstructions limits the instructions of the functions.
const MaxInstructions = 400

// Results of the functions that look a packet up.
const (
	Unknown = iota
	Known
	Ask    // the kernel, which may have a connection of TCP or UDP that is not known
	Proven // known, and a segment that tells who receives what is sent to its source
	// Groups is added where some port has asked a group of late, which a packet over UDP that is
	// not known may answer.
	Groups
)

// labels of these functions, by protocol: each is given the hash, that of TCP also the flags and
// the acknowledgement number. It notes what the packet tells of its connection.

var labels = map[uint8]string{
	packet.ProtoTCP: "flow_tcp", packet.ProtoUDP: "flow_udp", packet.ProtoICMP: "flow_icmp",
}

// Label returns the function for a protocol; ICMPv6 has that of ICMP.
func Label(proto uint8) string {
	if proto == packet.ProtoICMP6 {
		proto = packet.ProtoICMP
	}
	return labels[proto]
}

// Hash emits the hash of an incoming packet, whose destination is the side of the policy, and
// leaves it in R0. Each piece is 32 bits that a function loads into R1: by the numbers of their
// factors, those of the destination from 0 on, of the source from 4 on, of the ports 8. R1 to R3
// are used.
func Hash(b *assembler.Builder, six bool, proto uint8, pieces map[int]func()) {
	HashIn(b, Map, six, proto, pieces)
}

// HashIn is Hash by the head of a memory in another map, which begins as that of connections does.
func HashIn(b *assembler.Builder, in string, six bool, proto uint8, pieces map[int]func()) {
	b.Emit(
		asm.LoadMapValue(asm.R3, 0, 0).WithReference(in),
		asm.LoadMem(asm.R0, asm.R3, atStart, asm.DWord),
	)
	add := func(i int) {
		b.Emit(
			asm.LoadMem(asm.R2, asm.R3, atFactors+8*int16(i), asm.DWord),
			asm.Mul.Reg(asm.R1, asm.R2),
			asm.Add.Reg(asm.R0, asm.R1),
		)
	}
	for i := range 9 {
		if load := pieces[i]; load != nil {
			load()
			add(i)
		}
	}
	last := int32(proto)
	if six {
		last |= 1 << 8
	}
	b.Emit(asm.Mov.Imm(asm.R1, last))
	add(9)
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 32),
		asm.Xor.Reg(asm.R0, asm.R1),
		asm.LoadMem(asm.R1, asm.R3, atLast, asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R1),
	)
}

// Stack of the functions.
const (
	stackNow   = -8
	stackPlace = -13
)

// Emit emits the function of a protocol. That of TCP tells what is Proven if told is set.
func (r Room) Emit(b *assembler.Builder, proto uint8, told bool) {
	params := []assembler.Param{assembler.Number("hash")}
	if proto == packet.ProtoTCP {
		params = append(params, assembler.Number("flags"), assembler.Number("proof"))
	}
	if proto == packet.ProtoICMP6 {
		proto = packet.ProtoICMP
	}
	b.Global(Label(proto), params...)
	no, yes, asked := b.Fresh("unknown"), b.Fresh("known"), b.Fresh("asked")
	b.Emit(asm.Mov.Reg(asm.R6, asm.R1))
	if proto == packet.ProtoTCP {
		notSYN := b.Fresh("not_syn")
		b.Emit(
			asm.Mov.Reg(asm.R7, asm.R2),
			asm.Mov.Reg(asm.R8, asm.R3),
			asm.And.Imm(asm.R2, packet.SYN|packet.ACK),
			asm.JNE.Imm(asm.R2, packet.SYN, notSYN),
		)
		r.mayOpen(b, no)
		b.Label(notSYN)
	}
	b.Jiffies()
	b.Emit(asm.StoreMem(asm.R10, stackNow, asm.R0, asm.DWord))
	absent := no
	if proto != packet.ProtoICMP {
		absent = b.Fresh("absent")
	}
	r.find(b, absent)
	inUse(b, absent)
	put := b.Fresh("put")
	switch proto {
	case packet.ProtoTCP:
		tcp(b, put, yes, no, absent)
	case packet.ProtoUDP:
		b.Emit(
			asm.JEq.Imm(asm.R1, int32(twoWay), yes),
			asm.JNE.Imm(asm.R1, int32(oneWay), no),
			asm.Mov.Reg(asm.R3, asm.R0),
			asm.And.Imm(asm.R3, first),
			asm.Or.Imm(asm.R3, int32(twoWay)),
			asm.Ja.Label(put),
		)
	default:
		b.Emit(asm.Ja.Label(yes))
	}
	if proto != packet.ProtoICMP {
		b.Label(put)
		begin(b)
	}
	b.Label(yes)
	if told && proto == packet.ProtoTCP {
		not := b.Fresh("not_proven")
		b.Emit(
			asm.And.Imm(asm.R0, stateOf), // before this segment
			asm.JNE.Imm(asm.R0, int32(answered), not),
			asm.LoadMem(asm.R1, asm.R9, ofProof, asm.Word),
			asm.JNE.Reg(asm.R1, asm.R8, not), // it may be a number of data that has left
			asm.Mov.Imm(asm.R0, Proven),
			asm.Return(),
		)
		b.Label(not)
	}
	b.Emit(asm.Mov.Imm(asm.R0, Known), asm.Return())
	switch proto {
	case packet.ProtoTCP:
		b.Label(absent)
		b.Emit( // a segment of a connection that may be older than the policy
			asm.And.Imm(asm.R7, packet.SYN|packet.ACK|packet.RST),
			asm.JNE.Imm(asm.R7, packet.ACK, no),
		)
		ask(b, atAsked, no)
		b.Emit(asm.Return())
	case packet.ProtoUDP:
		b.Label(absent)
		ask(b, atAskedUDP, no)
		b.Emit(asm.Ja.Label(asked))
	}
	b.Label(no)
	b.Emit(asm.Mov.Imm(asm.R0, Unknown))
	if proto != packet.ProtoUDP {
		b.Emit(asm.Return())
		return
	}
	b.Label(asked)
	groups(b)
}

// groups returns what is in R0, and Groups with it where a group may have been asked.
func groups(b *assembler.Builder) {
	none := b.Fresh("no_group")
	b.Emit(
		asm.LoadMapValue(asm.R1, 0, uint32(atGroups)).WithReference(Map),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R10, stackNow, asm.DWord),
		asm.JGE.Reg(asm.R2, asm.R1, none),
		asm.Or.Imm(asm.R0, Groups),
	)
	b.Label(none)
	b.Emit(asm.Return())
}

// ask leaves Ask in R0 as often as the kernel may be asked of a protocol, which is counted at an
// offset in the memory; else it goes to no.
func ask(b *assembler.Builder, asked int16, no string) {
	again := b.Fresh("again")
	b.Emit(
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(Map),
		asm.LoadMem(asm.R1, asm.R10, stackNow, asm.DWord),
		asm.LSh.Imm(asm.R1, 16),
		asm.LoadMem(asm.R2, asm.R9, asked, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.Sub.Reg(asm.R3, asm.R1), // how often in this jiffy
		asm.JLT.Imm(asm.R3, 1<<16, again),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Mov.Imm(asm.R3, 0),
	)
	b.Label(again)
	b.Emit(
		asm.LoadMem(asm.R4, asm.R9, atAsks, asm.DWord),
		asm.JGE.Reg(asm.R3, asm.R4, no),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R9, asked, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, Ask),
	)
}

// mayOpen goes to no with a SYN where no connection is opening in the bucket of the hash in R6.
func (r Room) mayOpen(b *assembler.Builder, no string) {
	b.Emit(
		asm.LoadMapValue(asm.R2, 0, uint32(r.atOpening())).WithReference(Map),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.RSh.Imm(asm.R1, int32(r.shift())),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.RSh.Imm(asm.R3, 6),
		asm.LSh.Imm(asm.R3, 3),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.LoadMem(asm.R0, asm.R2, 0, asm.DWord),
		asm.And.Imm(asm.R1, 63),
		asm.RSh.Reg(asm.R0, asm.R1),
		asm.And.Imm(asm.R0, 1),
		asm.JEq.Imm(asm.R0, 0, no),
	)
}

// find leaves the place of the connection with the hash in R6 in R9, or goes to no.
func (r Room) find(b *assembler.Builder, no string) {
	b.Emit(
		asm.LoadMapValue(asm.R2, 0, uint32(headBytes)).WithReference(Map),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.RSh.Imm(asm.R1, int32(r.shift())),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R0, asm.R2, 0, asm.Byte),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.And.Imm(asm.R3, 7),
		asm.RSh.Reg(asm.R0, asm.R3),
		asm.And.Imm(asm.R0, 1),
		asm.JEq.Imm(asm.R0, 0, no), // in most cases where it is not there
		asm.LoadMapValue(asm.R9, 0, uint32(r.atPlaces())).WithReference(Map),
		asm.LSh.Imm(asm.R1, 7), // bytes of a bucket
		asm.Add.Reg(asm.R9, asm.R1),
		asm.LSh.Imm(asm.R6, lowBits), // the tag, where words have it
	)
	at := make([]string, places)
	for i := range at {
		at[i] = b.Fresh("place")
		b.Emit(
			asm.LoadMem(asm.R0, asm.R9, int16(i*placeBytes), asm.DWord),
			asm.Xor.Reg(asm.R0, asm.R6),
			asm.RSh.Imm(asm.R0, lowBits),
			asm.JEq.Imm(asm.R0, 0, at[i]),
		)
	}
	b.Emit(asm.Ja.Label(no))
	b.Meet(at, b.Fresh("found"), asm.R9, placeBytes, stackPlace)
}

// inUse leaves the word in R0 and the state in R1, or goes to no where the lease has ended.
func inUse(b *assembler.Builder, no string) {
	b.Emit(
		asm.LoadMem(asm.R0, asm.R9, 0, asm.DWord),
		asm.LoadMem(asm.R3, asm.R9, ofExpires, asm.Word),
		asm.LoadMem(asm.R1, asm.R10, stackNow, asm.DWord),
		asm.Sub.Reg32(asm.R3, asm.R1),
		asm.Sub.Imm32(asm.R3, 1),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, stateOf),
		asm.JEq.Imm(asm.R1, 0, no),
	)
	lease(b, asm.R1)
	b.Emit(asm.JGE.Reg(asm.R3, asm.R2, no))
}

// lease leaves the lease of the state in a register in R2. R5 is used.
func lease(b *assembler.Builder, state asm.Register) {
	b.Emit(
		asm.LoadMapValue(asm.R2, 0, uint32(atLease)).WithReference(Map),
		asm.Mov.Reg(asm.R5, state),
		asm.And.Imm(asm.R5, stateOf),
		asm.LSh.Imm(asm.R5, 2),
		asm.Add.Reg(asm.R2, asm.R5),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
	)
}

// tcp goes to put with the new state in R3, to yes or to no, or to absent where only the kernel can
// tell. What comes in renews no lease: the side that the policy is for may be gone. It begins one
// where it changes the state, which it can do once or twice for what has left.
func tcp(b *assembler.Builder, put, yes, no, absent string) {
	isSYN, isOpen, isAnswered, isOlder := b.Fresh("syn"), b.Fresh("open"), b.Fresh("answered"),
		b.Fresh("older")
	closes := b.Fresh("closes")
	flags(b, packet.SYN|packet.ACK, asm.JEq, packet.SYN, isSYN)
	b.Emit(
		asm.JEq.Imm(asm.R1, int32(open), isOpen),
		asm.JEq.Imm(asm.R1, int32(answered), isAnswered),
		asm.JEq.Imm(asm.R1, int32(older), isOlder),
		asm.JEq.Imm(asm.R1, int32(closing), yes),
		asm.JEq.Imm(asm.R1, int32(reset), yes),
		asm.JNE.Imm(asm.R1, int32(opening), no),
	)
	// The other side may have an older connection, which it speaks of (RFC 5961, section 4).
	flags(b, packet.SYN|packet.ACK|packet.RST, asm.JNE, packet.SYN|packet.ACK, yes)
	b.Emit(
		asm.Mov.Imm(asm.R3, int32(open)),
		asm.Ja.Label(put),
	)
	b.Label(isSYN) // belongs to nothing, but where both sides open (RFC 9293, section 3.5)
	b.Emit(
		asm.JEq.Imm(asm.R1, int32(opening), yes),
		asm.Ja.Label(no),
	)

	b.Label(isOlder)
	flags(b, packet.RST, asm.JNE, 0, yes) // who has forgotten it acknowledges nothing
	number := b.Fresh("number")
	b.Emit(
		asm.Mov.Imm(asm.R4, 1), // what left may be a probe, of the number before
		asm.Ja.Label(number),
	)
	b.Label(isAnswered)
	b.Emit(asm.Mov.Imm(asm.R4, 0))
	b.Label(number)
	proves(b, put, yes, no, absent)
	b.Label(closes)
	b.Emit(asm.Mov.Imm(asm.R3, int32(closing)), asm.Ja.Label(put))

	b.Label(isOpen)
	goesOn(b, yes, closes)
}

// flags goes to a label where some flags of the segment, which are in R7, compare so with others.
// R2 is used.
func flags(b *assembler.Builder, of int32, op asm.JumpOp, these int32, to string) {
	b.Emit(asm.Mov.Reg(asm.R2, asm.R7), asm.And.Imm(asm.R2, of), op.Imm(asm.R2, these, to))
}

// proves opens a connection where a segment acknowledges what has left, less R4 at its beginning.
// It falls through with a connection that both sides have closed.
func proves(b *assembler.Builder, put, yes, no, absent string) {
	flags(b, packet.ACK, asm.JEq, 0, no)
	b.Emit(
		asm.LoadMem(asm.R1, asm.R9, ofProof, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Sub.Reg32(asm.R3, asm.R1),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.RSh.Imm(asm.R2, sentBit),
		asm.And.Imm(asm.R2, 1<<(lowBits-sentBit)-1),
		asm.LSh.Imm(asm.R2, blockBits),
		asm.Add.Reg(asm.R2, asm.R4),
		// It may have been proven before the policy was in force.
		asm.JGT.Reg(asm.R3, asm.R2, absent),
	)
	flags(b, packet.RST, asm.JNE, 0, yes)
	b.Emit(
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.And.Imm(asm.R3, finOut),
		asm.Or.Imm(asm.R3, int32(open)),
	)
	flags(b, packet.FIN, asm.JEq, 0, put)
	b.Emit(
		asm.Or.Imm(asm.R3, finIn),
		asm.Mov.Reg(asm.R1, asm.R3),
		asm.And.Imm(asm.R1, finOut),
		asm.JEq.Imm(asm.R1, 0, put),
	)
}

// goesOn notes a FIN or a RST of an open connection, and goes to yes, or to closes where the other
// side has sent its FIN before.
func goesOn(b *assembler.Builder, yes, closes string) {
	resets, note := b.Fresh("resets"), b.Fresh("note")
	flags(b, packet.RST, asm.JNE, 0, resets)
	flags(b, packet.FIN, asm.JEq, 0, yes)
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, finOut),
		asm.JNE.Imm(asm.R1, 0, closes),
		asm.Mov.Imm(asm.R3, finIn),
		asm.Ja.Label(note),
	)
	// Anybody can send a RST. It only makes the connection one of the first that give way, until
	// something leaves.
	b.Label(resets)
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, resetIn),
		asm.JNE.Imm(asm.R1, 0, yes),
		asm.LoadMem(asm.R1, asm.R10, stackNow, asm.DWord),
		asm.StoreMem(asm.R9, ofProof, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R3, resetIn),
	)
	b.Label(note)
	b.Emit(
		asm.Or.Reg(asm.R3, asm.R0),
		asm.StoreMem(asm.R9, 0, asm.R3, asm.DWord),
		asm.Ja.Label(yes),
	)
}

// begin gives a place the state in R3, and its lease.
func begin(b *assembler.Builder) {
	lease(b, asm.R3)
	b.Emit(
		asm.LoadMapValue(asm.R1, 0, uint32(atSecond)).WithReference(Map),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.Word),
		asm.Sub.Reg32(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.R10, stackNow, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.Or.Reg(asm.R6, asm.R3), // the word
		asm.StoreMem(asm.R9, ofExpires, asm.R1, asm.Word),
		asm.StoreMem(asm.R9, 0, asm.R6, asm.DWord),
	)
}
