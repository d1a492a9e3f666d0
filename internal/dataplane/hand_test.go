package dataplane

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/loader"
	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// handPolicy has, besides the built-in slots, one rule: "drop" of frames whose payload starts with
// an odd byte. Both labels are identities across replaces.
func handPolicy(label string, def action.Action) *policy.Policy {
	return &policy.Policy{
		File: "hand.levee",
		Rules: []*policy.Rule{{
			Action: action.Drop, Label: label, ID: label, Text: `drop as "` + label + `"`,
			Pos: policy.Pos{Line: 3, Col: 1},
		}},
		Default:   policy.Default{Action: def, Pos: policy.Pos{Line: 4, Col: 1}},
		Essential: true,
	}
}

// Names of the maps of handProgram. The compiler has others: what a map is says the ledger alone.
const (
	handCounters = "tally"
	handTrace    = "said"
	handTrial    = "until"
	handPrevious = "then"
)

// handProgram is written by hand in the shape that the compiler produces: it judges by handPolicy.
func handProgram(p *policy.Policy, t codegen.Target) *codegen.Program {
	return handProgramOf(p, t, func(b *assembler.Builder) {
		b.Emit(
			asm.Mov.Reg(asm.R1, asm.R7),
			asm.Add.Imm(asm.R1, 15),
			asm.JGT.Reg(asm.R1, asm.R8, "count"),
			asm.LoadMem(asm.R1, asm.R7, 14, asm.Byte),
			asm.And.Imm(asm.R1, 1),
			asm.JEq.Imm(asm.R1, 0, "count"),
		)
	})
}

// handProgramOf is handProgram with another match for the rule. It goes to "count" where the frame
// from R7 to R8 does not match.
func handProgramOf(p *policy.Policy, t codegen.Target,
	match func(*assembler.Builder)) *codegen.Program {
	rows := 1
	for rows < t.CPUs {
		rows *= 2
	}
	slots := p.Slots()
	rowBytes := (len(slots)*codegen.SlotBytes + 63) / 64 * 64
	spec := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{
		handCounters: mmapable(handCounters, rows*rowBytes),
	}, Programs: map[string]*ebpf.ProgramSpec{}}
	ledger := []codegen.MapUse{{Name: handCounters, Holds: codegen.Identity{What: codegen.Counters},
		Lifetime: codegen.Pinned}}
	ps := &ebpf.ProgramSpec{Name: handName(), Type: ebpf.XDP, License: "Dual BSD/GPL"}
	pass, drop := int32(attach.XdpPass), int32(loader.XdpDrop)
	length := asm.FnXdpGetBuffLen.Call()
	data, end := int16(0), int16(4)
	if t.Frags {
		ps.Flags = 1 << 5 // BPF_F_XDP_HAS_FRAGS
	}
	if t.Hook == codegen.TCX {
		ps.Type, pass, drop = ebpf.SchedCLS, -1, loader.TcxDrop
		length = asm.LoadMem(asm.R0, asm.R6, 0, asm.Word) // __sk_buff.len
		data, end = 76, 80
	}
	if p.Default.Action == action.Drop {
		pass = drop
	}
	b := assembler.New()
	b.Emit(asm.Mov.Reg(asm.R6, asm.R1))
	if t.Trial {
		spec.Maps[handTrial] = mmapable(handTrial, 8)
		spec.Maps[handPrevious] = &ebpf.MapSpec{Name: handPrevious, Type: ebpf.ProgramArray,
			KeySize: 4, ValueSize: 4, MaxEntries: 1}
		ledger = append(ledger,
			codegen.MapUse{Name: handTrial, Holds: codegen.Identity{What: codegen.Deadline}},
			codegen.MapUse{Name: handPrevious, Holds: codegen.Identity{What: codegen.Previous},
				Lifetime: codegen.Pinned})
		allow := int32(attach.XdpPass)
		if t.Hook == codegen.TCX {
			allow = -1
		}
		b.Emit(
			asm.FnJiffies64.Call(),
			asm.LoadMapValue(asm.R1, 0, 0).WithReference(handTrial),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.JLT.Reg(asm.R0, asm.R1, "judge"),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, 0).WithReference(handPrevious),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, allow),
			asm.Return(),
		)
		b.Label("judge")
		b.Emit(asm.Mov.Reg(asm.R1, asm.R6))
	}
	b.Emit(
		asm.LoadMem(asm.R7, asm.R6, data, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, end, asm.Word),
		length,
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.Mov.Imm(asm.R6, int32(p.DefaultSlot())),
	)
	match(b)
	b.Emit(asm.Mov.Imm(asm.R6, int32(p.RuleSlot(0))))
	b.Label("count")
	b.Emit(
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(rows-1)),
		asm.Mul.Imm(asm.R0, int32(rowBytes)),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mul.Imm(asm.R1, codegen.SlotBytes),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.JGT.Imm(asm.R0, int32(rows*rowBytes-codegen.SlotBytes), "out"),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(handCounters),
		asm.Add.Reg(asm.R2, asm.R0),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R2, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R2, 8, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R9),
		asm.StoreMem(asm.R2, 8, asm.R1, asm.DWord),
	)
	if t.Trace {
		spec.Maps[handTrace] = mmapable(handTrace, 4)
		ledger = append(ledger, codegen.MapUse{Name: handTrace,
			Holds: codegen.Identity{What: codegen.LastSlot}})
		b.Emit(
			asm.LoadMapValue(asm.R1, 0, 0).WithReference(handTrace),
			asm.StoreMem(asm.R1, 0, asm.R6, asm.Word),
		)
	}
	b.Label("out")
	b.Emit(
		asm.Mov.Imm(asm.R0, drop),
		asm.JEq.Imm(asm.R6, int32(p.RuleSlot(0)), "exit"),
		asm.Mov.Imm(asm.R0, pass),
	)
	b.Label("exit")
	b.Emit(asm.Return())
	ps.Instructions = b.MustFinish()
	spec.Programs[codegen.ProgramName] = ps
	links := []codegen.Link{{Program: codegen.ProgramName, At: codegen.Ingress}}
	return &codegen.Program{Spec: spec, Links: links, Maps: ledger, Slots: slots,
		RowBytes: rowBytes}
}

func mmapable(name string, size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size),
		MaxEntries: 1, Flags: 1 << 10}
}

// handName tells the programs of this test from those of others on the machine, also from what a
// killed test with the same process ID has left there; child processes inherit it.
func handName() string {
	if os.Getenv(nameEnv) == "" {
		os.Setenv(nameEnv, fmt.Sprintf("levee_%08x", rand.Uint32()))
	}
	return os.Getenv(nameEnv)
}

const nameEnv = "LEVEE_TEST_NAME"
