package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/limit"
	"levee/internal/filter/plan"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// limit emits what a limit does where it stands: it hashes the keys, has the function of the limit
// charge their budgets, and drops the packet where one is exhausted.
func (c *compiler) limit(in *scope, r *ir.Rule, e ir.Effect) {
	l := c.limitOf(e.Limit)
	within := c.Fresh("within")
	if in.strangers && len(l.Keys) == 1 && limit.Size(l.Limit) > near {
		c.touchStranger(in)
	}
	// The hashes of all keys but the last wait in R5 and R4, which loads of fields do not use.
	wait := []asm.Register{asm.R5, asm.R4}
	n := len(l.Keys)
	for i := range l.Keys {
		if l.Keys[i].Fields[0] == field.DNSName {
			c.nameKey(&l.Keys[i], i)
		}
	}
	for i := range l.Keys {
		k := &l.Keys[i]
		if k.Fields[0] == field.DNSName { // whatever the family
			limit.Hash(c.Builder, l.Map, i, false, c.namePieces(i))
		} else {
			limit.Hash(c.Builder, l.Map, i, in.family == ir.IPv6, c.pieces(in, k))
		}
		if i < n-1 {
			c.Emit(asm.Mov.Reg(wait[i], asm.R0))
		}
	}
	args := asm.R1
	for i := range max(1, n) {
		switch {
		case n == 0:
			c.Emit(asm.Mov.Imm(args, 0))
		case i == n-1:
			c.Emit(asm.Mov.Reg(args, asm.R0))
		default:
			c.Emit(asm.Mov.Reg(args, wait[i]))
		}
		args++
	}
	switch {
	case l.Rate.Bits:
		c.Field(args, env.KeyBytes, asm.Word)
		args++
	case c.Target.Hook.OfSKB():
		c.segments(args)
		args++
	}
	six := in.family == ir.IPv6
	if l.Rates != nil {
		hi, lo := addressAt(l.Rates.Field)
		c.Emit(asm.Mov.Reg(args, hi))
		if six {
			c.Field(args+1, lo, asm.DWord)
		}
	}
	c.Emit(asm.Call.Label(limit.LabelOf(l.Limit, l.Map, six)), asm.JEq.Imm(asm.R0, 0, within))
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Drop})
	c.Label(within)
}

// segments leaves in a register, which is neither R0 nor R5, how many packets there were on the
// wire of one that may be merged. Who made it may not have counted them, such as a virtual machine:
// with the headers there may be one too many then, and never one too few.
func (c *compiler) segments(to asm.Register) {
	one := c.Fresh("one")
	c.Context(asm.R0)
	c.Emit(
		asm.LoadMem(asm.R5, asm.R0, env.SkbGSOSize, asm.Word),
		asm.Mov.Imm(to, 1),
		asm.JEq.Imm(asm.R5, 0, one),
		asm.LoadMem(to, asm.R0, env.SkbGSOSegs, asm.Word),
		asm.JNE.Imm(to, 0, one),
		asm.LoadMem(to, asm.R0, env.SkbLen, asm.Word),
		asm.Add.Reg(to, asm.R5),
		asm.Sub.Imm(to, 1),
		asm.Div.Reg(to, asm.R5),
	)
	c.Label(one)
}

// givesContext reports whether what rules are emitted as asks for the context.
func (c *compiler) givesContext(rules []ir.Rule) bool {
	return c.extension.looks(rules) || c.Target.Hook.OfSKB() && c.extension.anyEffect(rules,
		func(e *effect) bool { return e == effectsOf[action.Limit] })
}

// pieces returns what a key is hashed of, 32 bits each, which the functions load into R1.
func (c *compiler) pieces(in *scope, k *policy.Key) (out []func()) {
	number := func(f field.Field) func() {
		return func() {
			if reg, hot := env.HotRegister(f); hot {
				c.Emit(asm.Mov.Reg(asm.R1, reg))
				return
			}
			at, n := c.FieldAt(f)
			c.Field(asm.R1, at, env.SizeOf(n))
		}
	}
	for _, f := range k.Fields {
		if f.Info().Compare == field.ByPrefix {
			out = append(out, c.addressPieces(in, k, f)...)
		} else {
			out = append(out, number(f))
		}
	}
	return out
}

// addressPieces returns the loads of an address's first bits, as many as the key counts by, in
// pieces of 32 bits.
func (c *compiler) addressPieces(in *scope, k *policy.Key, f field.Field) (out []func()) {
	hi, lo := addressAt(f)
	counts, width := k.Bits4, 32
	if in.family == ir.IPv6 {
		counts, width = k.Bits6, 128
	}
	if k.Bits4 == 0 { // of a flow
		counts = width
	}
	for from := 0; from < counts; from += 32 {
		out = append(out, func() {
			if from < 64 {
				c.Emit(asm.Mov.Reg(asm.R1, hi))
			} else {
				c.Field(asm.R1, lo, asm.DWord)
			}
			if width == 128 && from%64 == 0 {
				c.Emit(asm.RSh.Imm(asm.R1, 32))
			}
			if n := counts - from; n < 32 {
				c.Emit(asm.RSh.Imm32(asm.R1, int32(32-n))) // which clears the upper half
			} else if width == 128 && from%64 == 32 {
				c.Emit(asm.Mov.Reg32(asm.R1, asm.R1))
			}
		})
	}
	return out
}

// addressAt returns the register with an address, or the first half of one of IPv6, and where in
// the key its second half is.
func addressAt(f field.Field) (hi asm.Register, lo int16) {
	if f == field.DstAddr {
		return env.RegDst, env.KeyDstLo
	}
	return env.RegSrc, env.KeySrcLo
}

func (c *compiler) limitOf(of *policy.Limit) *plan.Limit {
	for i := range c.Plan.Limits {
		if c.Plan.Limits[i].Limit == of {
			return &c.Plan.Limits[i]
		}
	}
	panic(fmt.Sprintf("limit of %s is not in the plan", of.Rate.Text))
}
