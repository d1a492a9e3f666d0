package codegen_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"levee/internal/filter/codegen"
)

// maxLivenessCalls is the number of calls with memory of a stack that Linux 7.3 follows: each way
// that leads to a function counts (analyze_subprog, kernel/bpf/liveness.c).
const maxLivenessCalls = 10000

// What a register or a slot of the stack holds.
const (
	number  = iota
	address // of a stack, at a place that is known
	vague   // of a stack, at a place that is not known; or what was loaded from there
)

// stack holds the kinds of values in the registers and the slots of a function's stack.
type stack struct {
	regs  [asm.R10 + 1]byte
	slots map[int16]byte
}

func (s *stack) clone() stack { return stack{s.regs, maps.Clone(s.slots)} }

// join adds what is known on another way, and reports whether that changed anything.
func (s *stack) join(o stack) (changed bool) {
	one := func(a, b byte) byte {
		if a != b {
			changed = changed || a != vague
			return vague
		}
		return a
	}
	for r := range s.regs {
		s.regs[r] = one(s.regs[r], o.regs[r])
	}
	for at := range maps.Clone(s.slots) {
		s.slots[at] = one(s.slots[at], o.slots[at])
	}
	for at, v := range o.slots {
		s.slots[at] = one(s.slots[at], v)
	}
	return changed
}

// step is arg_track_xfer of that file.
func (s *stack) step(in asm.Instruction) {
	op := in.OpCode
	class, register := op.Class(), op.Source() == asm.RegSource
	switch {
	case op.JumpOp() == asm.Call:
		for r := range asm.R6 {
			s.regs[r] = number
		}
	case class == asm.ALUClass:
		s.regs[in.Dst] = number
	case class == asm.ALU64Class && op.ALUOp() == asm.Mov && register:
		s.regs[in.Dst] = s.regs[in.Src]
	case class == asm.ALU64Class && op.ALUOp() == asm.Mov, class == asm.LdClass:
		s.regs[in.Dst] = number
	case class == asm.ALU64Class && register:
		if s.regs[in.Dst] != number || s.regs[in.Src] != number {
			s.regs[in.Dst] = vague
		}
	case class == asm.ALU64Class:
		if s.regs[in.Dst] != number && op.ALUOp() != asm.Add && op.ALUOp() != asm.Sub {
			s.regs[in.Dst] = vague
		}
	case class == asm.LdXClass:
		switch {
		case op.Size() != asm.DWord:
			s.regs[in.Dst] = number
		case in.Src == asm.R10:
			s.regs[in.Dst] = s.slots[in.Offset]
		case s.regs[in.Src] == number:
			s.regs[in.Dst] = number
		default:
			s.regs[in.Dst] = vague
		}
	case class == asm.StXClass && in.Dst == asm.R10 && op.Mode() == asm.MemMode:
		s.slots[in.Offset] = s.regs[in.Src]
	}
}

// arguments holds the kinds of values in R1 to R5.
type arguments [5]byte

// livenessCalls counts what that kernel counts.
func livenessCalls(t *testing.T, ins asm.Instructions) int {
	t.Helper()
	f := flowOf(t, ins)
	symbols, err := ins.SymbolOffsets()
	if err != nil {
		t.Fatal(err)
	}
	type call struct {
		to   int
		args arguments
	}
	type given struct {
		function int
		args     arguments
	}
	calls := map[given][]call{}
	callsOf := func(g given) []call {
		if out, ok := calls[g]; ok {
			return out
		}
		first := stack{slots: map[int16]byte{}}
		copy(first.regs[asm.R1:], g.args[:])
		first.regs[asm.R10] = address
		before := map[int]*stack{g.function: &first}
		for todo := []int{g.function}; len(todo) > 0; {
			i := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			s := before[i].clone()
			s.step(ins[i])
			for _, n := range f.next[i] {
				if at := before[n]; at == nil {
					c := s.clone()
					before[n] = &c
				} else if !at.join(s) {
					continue
				}
				todo = append(todo, n)
			}
		}
		out := []call{}
		for i, s := range before {
			args, ref := arguments(s.regs[asm.R1:asm.R6]), ins[i].Reference()
			if ins[i].IsBuiltinCall() && ins[i].Constant == int64(asm.FnLoop) {
				args = arguments{1: s.regs[asm.R3]} // what the function gets of all rounds
				for j := i; ref == ""; j-- {
					if ins[j].IsLoadOfFunctionPointer() {
						ref = ins[j].Reference()
					}
				}
			} else if !ins[i].IsFunctionCall() {
				continue
			}
			if args != (arguments{}) {
				out = append(out, call{symbols[ref], args})
			}
		}
		calls[g] = out
		return out
	}
	counted := map[given]int{}
	var count func(g given) int
	count = func(g given) int {
		n, ok := counted[g]
		if !ok {
			n = 1
			for _, c := range callsOf(g) {
				n += count(given{c.to, c.args})
			}
			counted[g] = n
		}
		return n
	}
	total := count(given{0, arguments{}})
	for _, i := range f.first[1:] {
		if btf.FuncMetadata(&ins[i]).Linkage == btf.GlobalFunc {
			total += count(given{i, arguments{}})
		}
	}
	return total
}

// Linux 7.3 refuses programs in which functions that are given memory are called in more ways than
// it follows. It was seen with 800 rules that each have a static set of endpoints.
func TestCallsAreNoMoreThanNewerVerifiersFollow(t *testing.T) {
	texts := map[string]string{}
	for _, w := range walls {
		texts[w.name] = w.policy(*wallRules)
	}
	g := &wallGenerator{Rand: rand.New(rand.NewPCG(1, 1))}
	services := []string{"tcp/443", "udp/4000-5000", "tcp", "gre", "icmp6"}
	long := lines(800, func(i int) string {
		endpoint := func(int) string {
			return six(g.IntN(1<<30)) + " " + services[g.IntN(len(services))]
		}
		fmt.Fprintf(&g.sets, "set s%d = %s\n", i, list(100, endpoint))
		return fmt.Sprintf("drop from s%d ttl %d", i, i%250+1)
	})
	texts["a long set of IPv6 endpoints each"] = g.sets.String() + long + "default pass\n"
	for name, text := range texts {
		p, err := codegen.Compile(resolved(t, text), codegen.Target{CPUs: 2, Trace: true})
		if err != nil {
			t.Fatal(err)
		}
		n := livenessCalls(t, slices.Clone(p.Spec.Programs[codegen.ProgramName].Instructions))
		t.Logf("%s: %d", name, n)
		if n > maxLivenessCalls {
			t.Errorf("%s: %d calls, and Linux follows %d", name, n, maxLivenessCalls)
		}
	}
}
