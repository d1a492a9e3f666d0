package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/stream"
)

// The hash of a flow lies where segments that are no fragments have nothing in struct key: 32 bits
// in place of a fragment's identification, 16 in that of an ICMP type.
const (
	streamTag  = KeyDatagram
	streamLine = KeyICMP
)

// HashStream hashes the flow of a segment, for rules that search its stream. The fields of the
// packet are in the registers of a chain.
func (c *Code) HashStream(ch *plan.Chain) {
	class := ch.Classes[0]
	flow.HashIn(c.Builder, stream.Map, class.Family == ir.IPv6, class.Proto(), c.flowPieces(class))
	c.Emit(
		asm.StoreMem(asm.R10, streamTag, asm.R0, asm.Word),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.R10, streamLine, asm.R0, asm.Half),
	)
}

// InStream asks whether a stream contains the text of a condition. For a segment without data the
// answer is that the stream is unknown.
func (c *Code) InStream(q *ir.Cond, no string) {
	c.Field(asm.R2, streamLine, asm.Half)
	c.Field(asm.R1, streamTag, asm.Word)
	c.Emit(asm.LSh.Imm(asm.R2, 32), asm.Or.Reg(asm.R2, asm.R1))
	c.Field(asm.R3, KeyLeft, asm.Half)
	c.Field(asm.R4, KeyOff, asm.Half)
	c.Emit(asm.LSh.Imm(asm.R3, 16), asm.Or.Reg(asm.R3, asm.R4))
	c.Context(asm.R1)
	c.Emit(asm.Call.Label(searchLabel(c.Plan.SearchOf(q.Pattern))))
	want := stream.Yes
	if q.Not {
		want = stream.No
	}
	if !q.Unknown {
		c.Emit(asm.JNE.Imm(asm.R0, int32(want), no))
		return
	}
	is := c.Fresh("in_stream")
	c.Emit(
		asm.JEq.Imm(asm.R0, int32(want), is),
		asm.JNE.Imm(asm.R0, int32(stream.Unknown), no),
	)
	c.Label(is)
}

// streamFunction emits two functions. The first takes the context, the hash of a flow, and a word
// with the offset of the TCP header below the number of bytes from there. It returns the state of
// the search after this segment. The second is the body of a bpf_loop over the segment's new bytes.
func (c *Code) streamFunction(label string, s *plan.Search) {
	const hash, sought, off, segment = asm.R6, asm.R7, asm.R8, asm.R9
	m := s.Machine
	round, known, there := label+"_round", c.Fresh("known"), c.Fresh("there")
	id := int64(s.ID)
	c.Global(label, c.ContextParam(), assembler.Number("hash"), assembler.Number("place"))
	c.Emit(
		asm.Mov.Reg(hash, asm.R2),
		asm.Mov.Reg(off, asm.R3),
		asm.And.Imm(off, 0xffff),
		asm.StoreMem(asm.R10, searchContext, asm.R1, asm.DWord),
		asm.Call.Label(stream.Meet),
		asm.Mov.Reg(sought, asm.R0),
		asm.JLE.Imm(asm.R0, int32(stream.None), known),
	)
	seek := func() {
		c.Emit(
			asm.Mov.Reg(asm.R1, hash),
			asm.Mov.Reg(asm.R2, segment),
			asm.Mov.Reg(asm.R3, off),
			asm.LoadImm(asm.R4, int64(s.Within)<<32|id, asm.DWord),
			asm.Call.Label(stream.Seek),
			asm.Mov.Reg(sought, asm.R0),
		)
	}
	c.Emit(asm.Mov.Reg(segment, sought))
	seek()
	c.Emit(
		asm.JNE.Imm(asm.R0, int32(stream.Absent), there),
		asm.Mov.Reg(asm.R1, hash),
		asm.LoadImm(asm.R2, id, asm.DWord),
		asm.Mov.Imm(asm.R3, int32(m.Start)),
		asm.Call.Label(stream.Enter),
		asm.Mov.Imm(sought, int32(stream.Unknown)),
		asm.JEq.Imm(asm.R0, int32(stream.Unknown), known),
	)
	seek()
	c.Emit(
		asm.JNE.Imm(asm.R0, int32(stream.Absent), there),
		asm.Mov.Imm(sought, int32(stream.Unknown)), // another CPU has taken its place
		asm.Ja.Label(known),
	)
	c.Label(there)
	c.Emit(
		asm.Mov.Reg(asm.R0, sought),
		asm.RSh.Imm(asm.R0, stream.StateShift),
		asm.JEq.Imm(asm.R0, 0, known),
		asm.LSh.Imm(asm.R0, 2),
		asm.StoreMem(asm.R10, searchState, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R1, sought),
		asm.RSh.Imm(asm.R1, stream.BytesShift),
		asm.And.Imm(asm.R1, stream.BytesMask),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R10, searchBytes, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, sought),
		asm.And.Imm(asm.R1, 1<<stream.BytesShift-1),
		asm.StoreMem(asm.R10, searchAt, asm.R1, asm.DWord),
	)
	c.Loop(maxStreamRounds, round, searchContext)
	c.Emit(
		asm.Mov.Reg(asm.R1, hash),
		asm.LoadImm(asm.R2, id, asm.DWord),
		asm.Mov.Reg(asm.R3, sought),
		asm.LoadMem(asm.R4, asm.R10, searchState, asm.DWord),
		asm.Call.Label(stream.Note),
		asm.Return(),
	)
	c.Label(known)
	c.Emit(asm.Mov.Reg(asm.R0, sought), asm.Return())
	c.searchRound(round, s)
}

// maxStreamRounds is the rounds of the longest part of a stream.
const maxStreamRounds = stream.Most / chunk
