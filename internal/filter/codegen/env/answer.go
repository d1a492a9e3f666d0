package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// lookUpAnswer stores whether a packet that leaves answers the other side, whose fields are in the
// registers of a chain.
func (c *Code) lookUpAnswer(ch *plan.Chain) {
	class := ch.Classes[0]
	six := class.Family == ir.IPv6
	yes, no, done := c.Fresh("answers"), c.Fresh("begins"), c.Fresh("looked_up")
	switch class.Transport {
	case ir.ICMP:
		c.Emit(asm.Mov.Reg(asm.R1, RegDstPort), asm.RSh.Imm(asm.R1, 8))
		for _, kind := range flow.Asked(six) {
			c.Emit(asm.JEq.Imm(asm.R1, int32(kind), yes))
		}
		c.Emit(asm.Ja.Label(no))
	case ir.TCP:
		at, n := c.FieldAt(field.TCPFlags)
		c.Emit(
			asm.LoadMem(asm.R1, asm.R10, at, SizeOf(n)),
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.And.Imm(asm.R2, packet.RST),
			asm.JNE.Imm(asm.R2, 0, yes),
			asm.And.Imm(asm.R1, packet.SYN|packet.ACK),
			asm.JEq.Imm(asm.R1, packet.SYN, no),
			asm.JEq.Imm(asm.R1, packet.SYN|packet.ACK, yes),
		)
		flow.Hash(c.Builder, six, class.Proto(), c.flowPieces(class))
		c.Emit(asm.Mov.Reg(asm.R2, asm.R0))
		c.Context(asm.R1)
		c.Emit(asm.Call.Label(flow.AnswersTCP), asm.Ja.Label(done))
	default:
		flow.Hash(c.Builder, six, class.Proto(), c.flowPieces(class))
		c.Emit(
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.Call.Label(flow.AnswersUDP),
			asm.Ja.Label(done),
		)
	}
	if c.Referenced(yes) {
		c.Label(yes)
		c.Emit(asm.Mov.Imm(asm.R0, flow.Known), asm.Ja.Label(done))
		c.Label(no)
		c.Emit(asm.Mov.Imm(asm.R0, flow.Unknown))
	}
	c.Label(done)
	c.Emit(asm.StoreMem(asm.R10, keyFlow, asm.R0, asm.Byte))
}
