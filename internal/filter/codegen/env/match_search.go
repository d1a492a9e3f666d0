package env

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
)

// chunk is the number of the payload's bytes that one round of a search reads.
const chunk = 64

// maxRounds is the rounds of the longest payload.
const maxRounds = 1 << 16 / chunk

func searchLabel(n int) string { return fmt.Sprintf("search_%d", n) }

// Contains asks whether the payload contains what a condition names.
func (c *Code) Contains(q *ir.Cond, no string) {
	c.transport(asm.R2)
	c.Field(asm.R3, KeyLeft, asm.Half)
	c.Context(asm.R1)
	c.Emit(
		asm.Add.Imm(asm.R2, udpHeader),
		asm.Sub.Imm(asm.R3, udpHeader),
		asm.Call.Label(searchLabel(c.Plan.SearchOf(q.Pattern))),
	)
	if q.Not {
		c.Emit(asm.JNE.Imm(asm.R0, 0, no))
	} else {
		c.Emit(asm.JEq.Imm(asm.R0, 0, no))
	}
}

// EmitSearches emits the functions that search payloads and streams.
func (c *Code) EmitSearches() {
	for i, s := range c.Plan.Searches {
		if s.ID != 0 {
			c.streamFunction(searchLabel(i), s)
		} else {
			c.searchFunction(searchLabel(i), s)
		}
	}
}

// What a search keeps on its stack for its rounds.
const (
	searchContext = -32
	searchAt      = -24 // where the payload begins in the frame
	searchBytes   = -16 // of the payload
	searchState   = -8
)

// searchFunction emits two functions. The first is given the context, an offset in the frame and a
// number of bytes, and returns 1 if these bytes contain the text. It has bpf_loop call the second,
// which steps the automaton over 64 bytes: the verifier walks that once or twice, and not once for
// each byte that a payload may have.
func (c *Code) searchFunction(label string, s *plan.Search) {
	m := s.Machine
	round, no, yes := label+"_round", c.Fresh("no"), c.Fresh("found")
	c.Global(label, c.ContextParam(), assembler.Number("at"), assembler.Number("bytes"))
	c.Emit(
		asm.And.Imm(asm.R2, 0xffff),
		asm.And.Imm(asm.R3, 0xffff),
		asm.StoreMem(asm.R10, searchContext, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, searchAt, asm.R2, asm.DWord),
		asm.StoreMem(asm.R10, searchBytes, asm.R3, asm.DWord),
		asm.Mov.Imm(asm.R4, int32(m.Start)),
		asm.StoreMem(asm.R10, searchState, asm.R4, asm.DWord),
	)
	c.Loop(maxRounds, round, searchContext)
	c.Emit(
		asm.LoadMem(asm.R1, asm.R10, searchState, asm.DWord),
		asm.JGT.Imm(asm.R1, int32(m.Last), no),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(s.Table.Name),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R2, asm.R2, int16(m.End), asm.Word),
		asm.JEq.Imm(asm.R2, int32(m.Accept), yes),
	)
	c.Label(no)
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	c.Label(yes)
	c.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	c.searchRound(round, s)
}

// searchRound emits the function of one round. Between two loads that wait for each other is one
// addition: all else is done beside.
func (c *Code) searchRound(label string, s *plan.Search) {
	const (
		bytes = -chunk // on the stack
		ahead = asm.R6 // what the first function keeps
		table = asm.R7
		left  = asm.R8 // bytes of this round
		state = asm.R9
	)
	m := s.Machine
	load := asm.FnXdpLoadBytes
	if c.Target.Hook.OfSKB() {
		load = asm.FnSkbLoadBytes
	}
	few, done, end := c.Fresh("few"), c.Fresh("done"), c.Fresh("end")
	c.Static(label, assembler.Number("round"), assembler.Pointer("search"))
	c.Emit(
		asm.Mov.Reg(ahead, asm.R2),
		asm.LSh.Imm(asm.R1, 6), // chunk
		asm.LoadMem(left, ahead, searchBytes-searchContext, asm.DWord),
		asm.Sub.Reg(left, asm.R1),
		asm.JSLE.Imm(left, 0, end),
		asm.JLE.Imm(left, chunk, few),
		asm.Mov.Imm(left, chunk),
	)
	c.Label(few)
	c.Emit(asm.Mov.Imm(asm.R0, 0))
	for at := int16(bytes); at < 0; at += 8 { // the helper may be asked for fewer
		c.Emit(asm.StoreMem(asm.R10, at, asm.R0, asm.DWord))
	}
	c.Emit(
		asm.LoadMem(asm.R2, ahead, searchAt-searchContext, asm.DWord),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, ahead, 0, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, bytes),
		asm.Mov.Reg(asm.R4, left),
		load.Call(),
		asm.JNE.Imm(asm.R0, 0, end),
		asm.LoadMapValue(table, 0, 0).WithReference(s.Table.Name),
		asm.LoadMem(state, ahead, searchState-searchContext, asm.DWord),
		asm.JGT.Imm(state, int32(m.Last), end), // for the verifier, as below
	)
	for i := range int16(chunk) {
		if i > 0 {
			c.Emit(asm.JLE.Imm(left, int32(i), done))
		}
		c.Emit(
			asm.LoadMem(asm.R1, asm.R10, bytes+i, asm.Byte),
			asm.Add.Reg(asm.R1, table),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.Byte), // the class
			asm.LSh.Imm(asm.R1, 2),
			asm.Add.Reg(asm.R1, table),
			asm.Add.Reg(asm.R1, state),
			asm.LoadMem(state, asm.R1, 0, asm.Word),
			asm.JGT.Imm(state, int32(m.Last), end),
		)
	}
	c.Label(done)
	c.Emit(
		asm.StoreMem(ahead, searchState-searchContext, state, asm.DWord),
		asm.JLE.Imm(state, int32(m.Dead), end),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	c.Label(end)
	c.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
}
