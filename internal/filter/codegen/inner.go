package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen/env"
	"levee/internal/filter/fragment"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/tunnel"
	"levee/internal/packet"
)

// What is known of the packet within a tunnel is a word of the environment: a bit for each match
// that holds, and this one if there is such a packet. It is 0 of a packet that is no tunnel.
const withinBit = 63

// noTunnel sets the word for a packet without a tunnel. The verifier must not know that it is 0: it
// would walk the rules once for 0, and once for the words of tunnels.
func (c *compiler) noTunnel() {
	if !c.AsksInside() {
		return
	}
	c.Emit(
		asm.Mov.Reg(asm.R0, env.RegBytes),
		asm.Sub.Reg(asm.R0, env.RegBytes),
		asm.StoreMem(asm.R10, env.InnerAt, asm.R0, asm.DWord),
	)
}

// slowTunnels has the careful decoder decode what may be a tunnel, by the protocol in R3.
func (c *compiler) slowTunnels() {
	if !c.Plan.LooksInside() {
		return
	}
	for _, p := range tunnel.Protocols {
		c.Emit(asm.JEq.Imm(asm.R3, int32(p), "slow"))
	}
}

// slowUDPTunnels does the same by the destination port of the header at l4.
func (c *compiler) slowUDPTunnels(l4 int16) {
	if !c.Plan.LooksInside() {
		return
	}
	c.Emit(asm.LoadMem(asm.R2, env.RegData, l4+2, asm.Half))
	for _, p := range tunnel.Ports {
		c.Emit(asm.JEq.Imm(asm.R2, be16(p), "slow"))
	}
}

// lookInside decodes the packet within a tunnel, which the careful decoder has decoded, asks all
// matches on it, and has the packet decoded once more: the stack has no room for two. It goes to
// malformed with the reason in R0.
func (c *compiler) lookInside() {
	if !c.Plan.LooksInside() {
		return
	}
	whole, found, none := c.Fresh("no_later"), c.Fresh("tunnel"), c.Fresh("no_tunnel")
	done, again := c.Fresh("looked_inside"), c.Fresh("decode_again")
	c.Emit(
		asm.LoadMem(asm.R5, asm.R10, env.KeyFrag, asm.Half),
		asm.JEq.Imm(asm.R5, 0, whole),
		asm.And.Imm(asm.R5, fragment.FirstBit),
		asm.JEq.Imm(asm.R5, 0, none), // a later fragment begins with anything
	)
	c.Label(whole)
	c.Emit(asm.LoadMem(asm.R4, asm.R10, env.KeyProto, asm.Byte))
	for _, p := range tunnel.Protocols {
		c.Emit(asm.JEq.Imm(asm.R4, int32(p), found))
	}
	c.Emit(
		asm.JNE.Imm(asm.R4, packet.ProtoUDP, none),
		asm.LoadMem(asm.R4, asm.R10, env.KeyDstPort, asm.Half),
	)
	for _, p := range tunnel.Ports {
		c.Emit(asm.JEq.Imm(asm.R4, int32(p), found))
	}
	c.Emit(asm.Ja.Label(none))
	c.Label(found)
	if !c.RowInEnv { // nobody else has written it
		c.Emit(asm.StoreImm(asm.R10, env.RowAt, 0, asm.Word))
	}
	c.giveEnv()
	c.Context(asm.R2)
	c.Emit(
		asm.LSh.Imm(asm.R5, 31), // fragment.FirstBit is the second
		asm.LoadMem(asm.R3, asm.R10, env.KeyLeft, asm.Half),
		asm.LSh.Imm(asm.R3, 16),
		asm.Or.Reg(asm.R3, asm.R5),
		asm.LoadMem(asm.R5, asm.R10, env.KeyOff, asm.Half),
		asm.Or.Reg(asm.R3, asm.R5),
		asm.Call.Label(tunnel.Label),
		asm.JEq.Imm(asm.R0, tunnel.None, again),
		asm.JNE.Imm32(asm.R0, 0, "malformed"),
		asm.LoadMem(asm.R1, asm.R10, env.KeyClass, asm.Byte),
	)
	var of [ir.NumClasses]*plan.Chain
	for _, ch := range c.Plan.Within {
		for _, class := range ch.Classes {
			of[class.Index()] = ch
		}
	}
	c.dispatch(0, ir.NumClasses-1, of[:], func(ch *plan.Chain) string {
		if ch == nil {
			return done
		}
		return chainLabel(ch)
	})
	for _, ch := range c.Plan.Within {
		c.measured(ch, func() {
			c.Label(chainLabel(ch))
			for _, b := range ch.Do {
				c.callFunction(b.(*plan.Function))
			}
			c.Emit(asm.Ja.Label(done))
		})
	}
	c.Label(done)
	c.Emit(
		asm.LoadMem(asm.R1, asm.R10, env.InnerAt, asm.DWord),
		asm.LoadImm(asm.R2, -1<<withinBit, asm.DWord),
		asm.Or.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R10, env.InnerAt, asm.R1, asm.DWord),
	)
	c.Label(again)
	c.decode()
	c.Label(none)
}

// noteMatch notes in a function that a match on the packet within holds.
func (c *compiler) noteMatch(number int) {
	const at = env.InnerAt - env.At
	c.Emit(
		asm.LoadMem(asm.R1, asm.R10, env.Pointer, asm.DWord),
		asm.LoadMem(asm.R2, asm.R1, at, asm.DWord),
		asm.LoadImm(asm.R3, 1<<number, asm.DWord),
		asm.Or.Reg(asm.R2, asm.R3),
		asm.StoreMem(asm.R1, at, asm.R2, asm.DWord),
	)
}

// matchWithin asks whether a match on the packet within holds. Negated, it asks whether there is a
// packet within for which the match does not hold.
func matchWithin(q *ir.Cond) extra {
	return extra{asks: true, emit: func(c *compiler, no string) {
		bit := int32(q.Inner.Number)
		c.Field(asm.R1, env.InnerAt, asm.DWord)
		if !q.Not {
			c.Emit(
				asm.RSh.Imm(asm.R1, bit),
				asm.And.Imm(asm.R1, 1),
				asm.JEq.Imm(asm.R1, 0, no),
			)
			return
		}
		c.Emit(
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.RSh.Imm(asm.R1, bit),
			asm.And.Imm(asm.R1, 1),
			asm.JNE.Imm(asm.R1, 0, no),
			asm.RSh.Imm(asm.R2, withinBit),
			asm.JEq.Imm(asm.R2, 0, no),
		)
	}}
}

// emitInside emits the function that decodes packets within tunnels.
func (c *compiler) emitInside() error {
	if !c.Plan.LooksInside() {
		return nil
	}
	return tunnel.Emit(c.Builder, assembler.Memory("within", c.EnvBytes()), c.ContextParam(),
		c.Target.Hook.OfSKB(), c.Target.Frags)
}
