package codegen

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"levee/internal/filter/assembler"
	"levee/internal/filter/difftest"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// A program has the blocks, the functions and the maps that its plan states, and no part of it more
// instructions.
func TestProgramsAreWhatPlansState(t *testing.T) {
	files, err := filepath.Glob("../../../test/policy/valid/*.levee")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	for _, file := range files {
		p, diags, err := resolve.Load(file)
		if p == nil {
			t.Fatal(err, diags.Err())
		}
		for _, target := range []Target{
			{}, {CPUs: 3, Frags: true, Trace: true}, {CPUs: 2, Hook: TCX, Trial: true},
			{CPUs: 2, Bytecode: true}, {Plain: true},
		} {
			asPlanned(t, fmt.Sprintf("%s, %+v", filepath.Base(file), target), p, target)
		}
	}
	for seed := range uint64(24) {
		p, _, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		asPlanned(t, fmt.Sprint("seed ", seed), p, Target{CPUs: 2, Bytecode: seed%4 == 3})
	}
	s := &shapes{Rand: seeded(7)}
	for name, text := range map[string]string{
		"functions":  s.plain(900),
		"bytecode":   s.plain(1500),
		"rule trees": s.tree(false) + s.plain(60) + s.tree(false),
	} {
		asPlanned(t, name, parsed(t, text+"default drop\n"), Target{CPUs: 2})
	}
}

func asPlanned(t *testing.T, name string, p *policy.Policy, target Target) {
	t.Helper()
	made, err := plan.New(ir.Build(p), target)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if out := made.Out; out != nil {
		made.Out = nil // each is a program of its own
		sideAsPlanned(t, name+", what leaves", out)
	}
	sideAsPlanned(t, name, made)
}

func sideAsPlanned(t *testing.T, name string, made *plan.Plan) {
	t.Helper()
	emitted := map[plan.ID]bool{}
	prog, err := emit(made, &extension{emitted: func(b plan.Block, n int) {
		about := b.About()
		if _, call := b.(*plan.Bytecode); emitted[about.ID] && !call {
			t.Errorf("%s: %s %s is there twice", name, b.Kind(), about.ID)
		}
		emitted[about.ID] = true
		if n > bound(b) {
			t.Errorf("%s: %s %s, %s: %d instructions, the plan states %d",
				name, b.Kind(), about.ID, about.What, n, bound(b))
		}
	}})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	planned := map[plan.ID]bool{}
	var list func(b plan.Block)
	list = func(b plan.Block) {
		planned[b.About().ID] = true
		for _, in := range b.Blocks() {
			list(in)
		}
	}
	for _, c := range slices.Concat(made.Chains, made.Within) {
		list(c)
	}
	if !maps.Equal(emitted, planned) {
		t.Errorf("%s: %d blocks are emitted, %d planned", name, len(emitted), len(planned))
	}
	asLedger(t, name, prog, &made.Ledger)
}

// bound returns the largest number of instructions that a block may take. Of bytecode only the call
// is instructions.
func bound(b plan.Block) int {
	const call = 6
	if _, ok := b.(*plan.Bytecode); ok {
		return call
	}
	return b.About().Cost.Instructions
}

// asLedger compares the whole program with the ledger.
func asLedger(t *testing.T, name string, prog *Program, l *plan.Ledger) {
	t.Helper()
	ins := prog.Spec.Programs[ProgramName].Instructions
	functions := 0
	for i := range ins {
		if btf.FuncMetadata(&ins[i]) != nil {
			functions++
		}
	}
	if functions != l.Functions {
		t.Errorf("%s: %d functions, the plan states %d", name, functions, l.Functions)
	}
	if n := assembler.Length(ins); n > l.Instructions {
		t.Errorf("%s: %d instructions, the plan states %d", name, n, l.Instructions)
	}
	var got, want []string
	for _, m := range prog.Maps {
		spec, size := prog.Spec.Maps[m.Name], 0
		// the ring of events is of who watches
		if spec.InnerMap != nil && m.Holds.What != state.HoldsEvents {
			size = int(spec.MaxEntries * spec.InnerMap.ValueSize)
		} else if size = int(spec.ValueSize); m.Holds.What == Tables {
			size = 0
		} else if m.Holds.What == state.HoldsCapture ||
			m.Holds.What == state.HoldsRingSockets {
			size *= int(spec.MaxEntries)
		}
		got = append(got, fmt.Sprint(m, size))
	}
	for _, m := range l.Maps {
		size := m.Bytes
		if m.Holds.What == Tables {
			if n := int(prog.Spec.Maps[m.Name].ValueSize); n > size {
				t.Errorf("%s: %d bytes of tables, the plan states %d", name, n, size)
			}
			size = 0
		}
		want = append(want, fmt.Sprint(MapUse{m.Name, m.Holds, m.Lifetime}, size))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: maps\n%s\nthe plan states\n%s", name,
			strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
