package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// fastProof stores what a client acknowledges, or the number of an echo, from the header at l4.
func (c *compiler) fastProof(class ir.Class, l4 int16) {
	at := l4 + 8
	switch class.Transport {
	case ir.UDP:
		return
	case ir.ICMP:
		at = l4 + 4
	}
	c.Emit(
		asm.LoadMem(asm.R2, regData, at, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.StoreMem(asm.R10, keyProof, asm.R2, asm.Word),
	)
}

// lookUpFlow looks the connection of a packet up, whose fields are in the registers of a chain, and
// stores whether it is known where rules ask for it.
func (c *compiler) lookUpFlow(ch *plan.Chain) {
	class := ch.Classes[0]
	six, proto := class.Family == ir.IPv6, class.Proto()
	done := c.Fresh("looked_up")
	if class.Transport == ir.ICMP {
		reply := int32(0)
		if six {
			reply = 129
		}
		answer := c.Fresh("echo_reply")
		c.Emit(
			asm.Mov.Reg(asm.R1, regDstPort),
			asm.RSh.Imm(asm.R1, 8),
			asm.Mov.Imm(asm.R0, 0),
			asm.JEq.Imm(asm.R1, reply, answer),
			asm.Ja.Label(done),
		)
		c.Label(answer)
	}
	flow.Hash(c.Builder, six, proto, c.flowPieces(class))
	c.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	if class.Transport == ir.TCP {
		at, n := c.fieldAt(field.TCPFlags)
		c.Emit(
			asm.LoadMem(asm.R2, asm.R10, at, sizeOf(n)),
			asm.LoadMem(asm.R3, asm.R10, keyProof, asm.Word),
		)
	}
	c.Emit(asm.Call.Label(flow.Label(proto)))
	c.Label(done)
	c.Emit(asm.StoreMem(asm.R10, keyFlow, asm.R0, asm.Byte))
}

// flowPieces are what a connection is hashed of.
func (c *compiler) flowPieces(class ir.Class) map[int]func() {
	upper := func(r asm.Register) func() {
		return func() { c.Emit(asm.Mov.Reg(asm.R1, r), asm.RSh.Imm(asm.R1, 32)) }
	}
	lower := func(r asm.Register) func() { return func() { c.Emit(asm.Mov.Reg32(asm.R1, r)) } }
	word := func(at int16) func() {
		return func() { c.Emit(asm.LoadMem(asm.R1, asm.R10, at, asm.Word)) }
	}
	out := map[int]func(){}
	for i, a := range []struct {
		hi asm.Register
		lo int16
	}{{regDst, keyDstLo}, {regSrc, keySrcLo}} {
		if class.Family == ir.IPv4 {
			out[4*i] = lower(a.hi)
			continue
		}
		out[4*i], out[4*i+1] = upper(a.hi), lower(a.hi)
		out[4*i+2], out[4*i+3] = word(a.lo+4), word(a.lo) // a number of the machine's order
	}
	out[8] = func() {
		c.Emit(asm.Mov.Reg(asm.R1, regDstPort), asm.LSh.Imm(asm.R1, 16),
			asm.Or.Reg(asm.R1, regSrcPort))
	}
	if class.Transport == ir.ICMP { // the identifier
		out[8] = func() {
			c.Emit(asm.LoadMem(asm.R1, asm.R10, keyProof, asm.Word), asm.RSh.Imm(asm.R1, 16))
		}
	}
	return out
}

// emitFlows emits the functions that look connections up, of the transports that packets may have.
func (c *compiler) emitFlows() {
	emitted := map[string]bool{}
	for _, ch := range c.plan.Chains {
		if label := flow.Label(ch.Classes[0].Proto()); ch.Tracked && !emitted[label] {
			emitted[label] = true
			flow.Emit(c.Builder, ch.Classes[0].Proto())
		}
	}
}
