package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/field"
)

// treeMaps returns the names of a pool's memory.
func treeMaps(p *plan.Pool) ruletree.Maps {
	return ruletree.Maps{Trees: p.Name + "_trees", Ports: p.Name + "_ports"}
}

// emitPools emits the functions that walk the trees of a family, and gives their memory its place.
func (c *compiler) emitPools() {
	for _, p := range c.Plan.Pools {
		if p != nil {
			maps := treeMaps(p)
			c.room(maps.Trees, p.Size(), p.Put)
			c.room(maps.Ports, p.PortsSize(), p.PutPorts)
			p.Following(c.Builder, maps, p.Name)
		}
	}
}

// ruleTree looks rules up in their tree; it falls through where none matches.
func (c *compiler) ruleTree(in *scope, t *plan.RuleTree) {
	c.givePacket(in)
	c.walkTree(t.Tree, t.InPlace)
	if c.InFunction {
		none := c.Fresh("none")
		c.Emit(asm.JEq.Imm(asm.R0, 0, none), asm.Return())
		c.Label(none)
	} else {
		c.Emit(asm.JNE.Imm(asm.R0, 0, "decided"))
	}
	c.takeBack(in)
}

// walkTree looks the packet up that was put where package ruletree wants it.
func (c *compiler) walkTree(t *plan.Tree, inPlace bool) {
	t.Emit(c.Builder, treeMaps(t.Pool), t.Pool.Name, packetAt, inPlace)
}

// packetAt is the place on the stack of the IPv6 packets given to package ruletree, and the last
// word of them, which keeps a register.
const (
	packetAt = -ruletree.PacketBytes
	keptAt   = packetAt + ruletree.PacketBytes - 8
)

// givePacket puts the fields that rules of a chain ask for where package ruletree looks for them; 0
// for those that none does.
func (c *compiler) givePacket(in *scope) {
	if in.family == ir.IPv6 {
		c.give6(in)
		return
	}
	if in.holds[field.SrcAddr] {
		c.Emit(asm.LSh.Imm(ruletree.RegAddresses, 32))
	} else {
		c.Emit(asm.Mov.Imm(ruletree.RegAddresses, 0))
	}
	if in.holds[field.DstAddr] {
		c.Emit(asm.Or.Reg(ruletree.RegAddresses, env.RegDst))
	}
	c.giveNumber(in, field.BoxNumber0, ruletree.RegPort0)
	c.giveNumber(in, field.BoxNumber1, ruletree.RegPort1)
}

// giveNumber puts the field that the rules ask for on a side of boxes into a register, in which it
// may be.
func (c *compiler) giveNumber(in *scope, side field.Box, to asm.Register) {
	f, ok := in.side(side)
	if !ok {
		c.Emit(asm.Mov.Imm(to, 0))
		return
	}
	if reg, hot := env.HotRegister(f); hot && reg == to {
		return
	}
	reg, _ := c.Value(f)
	c.Emit(asm.Mov.Reg(to, reg))
}

// side gives the field that rules ask for on a side of boxes, if there is one.
func (in *scope) side(side field.Box) (f field.Field, ok bool) {
	for f := range field.NumFields {
		if in.holds[f] && f.Info().Box == side {
			return f, true
		}
	}
	return 0, false
}

// Where these compile, registers of the rules are those of a look-up: givePacket and givePair
// change the others only.
const (
	_ = uint8(env.RegSrc - ruletree.RegAddresses)
	_ = uint8(env.RegDstPort - ruletree.RegPort1)
	_ = uint8(env.RegSrcPort - ruletree.RegPort0)
)

// takeBack undoes givePacket and what the look-up has overwritten.
func (c *compiler) takeBack(in *scope) {
	dst := in.holds[field.DstAddr]
	if in.family == ir.IPv6 {
		if dst {
			c.Emit(asm.LoadMem(env.RegDst, asm.R10, keptAt, asm.DWord))
		}
		return
	}
	if dst {
		c.Emit(asm.Mov.Reg32(env.RegDst, ruletree.RegAddresses))
	}
	if in.holds[field.SrcAddr] {
		c.Emit(asm.RSh.Imm(env.RegSrc, 32))
	}
}

// give6 is givePacket for IPv6.
func (c *compiler) give6(in *scope) {
	c.Emit(asm.Mov.Imm(asm.R0, 0))
	c.keepDst(in)
	address := func(f field.Field, reg asm.Register, upper, lower, key int16) {
		if !in.holds[f] {
			c.storePacket(upper, asm.R0)
			c.storePacket(lower, asm.R0)
			return
		}
		c.storePacket(upper, reg)
		c.Field(asm.R1, key, asm.DWord)
		c.storePacket(lower, asm.R1)
	}
	address(field.SrcAddr, env.RegSrc, ruletree.SrcAt, ruletree.SrcLoAt, env.KeySrcLo)
	address(field.DstAddr, env.RegDst, ruletree.DstAt, ruletree.DstLoAt, env.KeyDstLo)
	c.Emit(asm.Mov.Imm(asm.R2, 0))
	if f, ok := in.side(field.BoxNumber0); ok {
		reg, _ := c.Value(f)
		c.Emit(asm.Mov.Reg(asm.R2, reg), asm.LSh.Imm(asm.R2, 16))
	}
	if f, ok := in.side(field.BoxNumber1); ok {
		reg, _ := c.Value(f)
		c.Emit(asm.Or.Reg(asm.R2, reg))
	}
	c.storePacket(ruletree.PortsAt, asm.R2)
}

// keepDst keeps the register that a look-up of an IPv6 packet overwrites; R0 is 0.
func (c *compiler) keepDst(in *scope) {
	reg := asm.R0
	if in.holds[field.DstAddr] {
		reg = env.RegDst
	}
	c.Emit(asm.StoreMem(asm.R10, keptAt, reg, asm.DWord))
}

func (c *compiler) storePacket(field int16, reg asm.Register) {
	c.Emit(asm.StoreMem(asm.R10, packetAt+field, reg, asm.DWord))
}
