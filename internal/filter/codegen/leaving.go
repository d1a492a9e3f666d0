package codegen

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
)

// What a policy says of packets that leave is a program of its own, at egress. It shares counters
// and dynamic sets with the one that judges what arrives, and has all else for itself.

// LeavingName is the name of the program that judges what leaves.
const LeavingName = state.LeavingProgram

// answerMark is ANSWER_MARK of bpf/answer.h.
const answerMark = 0x6c657665

// droppedMark is DROPPED_MARK of bpf/answer.h.
const droppedMark = 0x6c657664

// ownAnswers leaves alone what a cookie answers in the host's place: at XDP it leaves without being
// seen at egress, and a policy means the same at each hook. Another generation may have answered,
// or a live rule.
func (c *compiler) ownAnswers() {
	c.Emit(
		asm.LoadMem(asm.R1, env.RegCtx, env.SkbMark, asm.Word),
		asm.JNE.Imm32(asm.R1, answerMark, "of the host"),
		asm.LoadMem(asm.R1, env.RegCtx, env.SkbCameBy, asm.Word),
		asm.LoadMem(asm.R2, env.RegCtx, env.SkbIndex, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "of the host"),
		asm.Mov.Imm32(asm.R0, c.PassCode()),
		asm.Return(),
	)
	c.Label("of the host")
}

// turn leaves packets alone while another generation judges what leaves: programs at egress belong
// to a generation each (docs/explanation/decisions/0032-links.md), and a word of the interface says
// whose turn it is (0142-out.md).
func (c *compiler) turn() {
	c.Emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.TurnMap),
		asm.LoadMem(asm.R7, asm.R1, state.TurnNow, asm.DWord),
		asm.LoadMem(asm.R8, asm.R1, state.TurnUntil, asm.DWord),
		asm.JEq.Imm(asm.R8, 0, "whose turn"),
		asm.LoadMem(asm.R9, asm.R1, state.TurnThen, asm.DWord),
	)
	c.Jiffies()
	c.Emit(
		asm.JLT.Reg(asm.R0, asm.R8, "whose turn"),
		asm.Mov.Reg(asm.R7, asm.R9),
	)
	c.Label("whose turn")
	c.Emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.GenerationMap),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R7, "own turn"),
		asm.Mov.Imm32(asm.R0, c.PassCode()),
		asm.Return(),
	)
	c.Label("own turn")
}

// markDropped tells the program that notes connections, which runs behind this one whatever it
// says, that the packet does not leave. The code is in R7.
func (c *compiler) markDropped() {
	leaves := c.Fresh("leaves")
	c.Emit(asm.JNE.Imm(asm.R7, c.DropCode(), leaves))
	c.Context(asm.R1)
	c.Emit(
		asm.Mov.Imm32(asm.R2, droppedMark),
		asm.StoreMem(asm.R1, env.SkbMark, asm.R2, asm.Word),
	)
	c.Label(leaves)
}

// addLeaving gives a program the one that judges what leaves, with its maps.
func (p *Program) addLeaving(out *Program, at Point) {
	spec := out.Spec.Programs[ProgramName]
	spec.Name, spec.AttachType = LeavingName, ebpf.AttachTCXEgress
	if spec.Type == ebpf.CGroupSKB {
		spec.AttachType = ebpf.AttachCGroupInetEgress
	}
	name := map[string]string{}
	for _, use := range out.Maps {
		name[use.Name] = use.Name
		if p.Spec.Maps[use.Name] != nil {
			if use.Holds.What.OfBothSides() {
				continue
			}
			name[use.Name] = "out_" + use.Name
		}
		m := out.Spec.Maps[use.Name]
		m.Name = name[use.Name]
		p.Spec.Maps[m.Name] = m
		use.Name = m.Name
		if use.Holds.What == Tables {
			use.Holds.Name = m.Name
		}
		p.Maps = append(p.Maps, use)
	}
	for i := range spec.Instructions {
		if to, ok := name[spec.Instructions[i].Reference()]; ok {
			spec.Instructions[i] = spec.Instructions[i].WithReference(to)
		}
	}
	p.Spec.Programs[LeavingName] = spec
	p.Limits, p.Logs = append(p.Limits, out.Limits...), append(p.Logs, out.Logs...)
	// In front of what notes connections: that sees what this lets go.
	p.Links = append(p.Links, Link{LeavingName, at})
	for _, t := range out.Tables {
		t.For += ", of what leaves"
		p.Tables = append(p.Tables, t)
	}
}
