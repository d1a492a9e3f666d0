package codegen

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/cookie"
	"levee/internal/filter/difftest"
	"levee/internal/filter/fragment"
	"levee/internal/filter/greylist"
	"levee/internal/filter/ir"
	"levee/internal/filter/limit"
	"levee/internal/filter/oracle"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// note is an effect that writes its value behind those that were written before. Nothing is listed
// of it, so the compiler may do nothing with rules that have it.
const note = action.Foreign

const (
	notesMap = "notes" // u32: how many, then so many values
	maxNotes = 1 << 12
)

// notes are the notes of a packet. How many there are stands in the place for effects.
var notes = extension{
	effects: map[action.Action]*effect{note: {leaves: true, size: 13,
		emit: func(c *compiler, _ *scope, _ *ir.Rule, e ir.Effect) {
			c.addMap(state.Memory(notesMap, 4+4*maxNotes), Identity{What: "notes"}, Private)
			effects(c, asm.R4)
			c.Emit(
				asm.LoadMem(asm.R2, asm.R4, 0, asm.DWord),
				asm.Mov.Reg(asm.R3, asm.R2),
				asm.And.Imm(asm.R3, maxNotes-1),
				asm.LSh.Imm(asm.R3, 2),
				asm.LoadMapValue(asm.R1, 0, 0).WithReference(notesMap),
				asm.Add.Reg(asm.R3, asm.R1),
				asm.StoreImm(asm.R3, 4, int64(e.Value), asm.Word),
				asm.Add.Imm(asm.R2, 1),
				asm.StoreMem(asm.R4, 0, asm.R2, asm.DWord),
			)
		}}},
	end: func(c *compiler) {
		if !c.AnyEffects {
			return
		}
		effects(c, asm.R1)
		c.Emit(
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.LoadMapValue(asm.R2, 0, 0).WithReference(notesMap),
			asm.StoreMem(asm.R2, 0, asm.R1, asm.Word),
		)
	},
}

// noted gives rules notes, some none, and those with labels none at all.
func noted(p *policy.Policy, seed uint64) ir.Extension {
	r := rand.New(rand.NewPCG(seed, 0x65666665))
	of := map[*policy.Rule][]ir.Effect{}
	value := uint32(0)
	for _, rule := range p.Rules {
		for range r.IntN(4) {
			if rule.Label != "" {
				break
			}
			value++
			of[rule] = append(of[rule], ir.Effect{Action: note, Value: value})
		}
	}
	return func(rule *policy.Rule) []ir.Effect { return of[rule] }
}

// wanted returns the words that effects have to write for a packet, one after the other as it goes
// through the rules.
func wanted(p *policy.Policy, x ir.Extension, res oracle.Result) (out []uint32) {
	met := slices.Sorted(slices.Values(slices.Concat(res.Counted, res.Within)))
	for _, slot := range append(met, res.Slot) {
		if i := slot - p.RuleSlot(0); i >= 0 && i < len(p.Rules) {
			for _, e := range x(p.Rules[i]) {
				out = append(out, e.Value)
			}
		}
	}
	return out
}

// nothingIsTold has the kernel answer nothing of all packets.
func nothingIsTold(t *testing.T, coll *ebpf.Collection) {
	t.Helper()
	b := make([]byte, plan.TraceBytes())
	for _, f := range field.Remembered() {
		binary.NativeEndian.PutUint64(b[plan.TraceAt(f):], f.Info().Absent)
	}
	if err := coll.Maps[plan.TraceMap].Put(uint32(0), b); err != nil {
		t.Fatal(err)
	}
}

// noting runs a program and reads what it wrote.
type noting struct {
	*ebpf.Collection
	hook Hook
}

func (n noting) run(t *testing.T, frame []byte) (got []uint32, ok bool) {
	t.Helper()
	notes := n.Maps[notesMap]
	if _, err := n.Programs[ProgramName].Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); err != nil {
		// it makes an skb, which must hold the header that its EtherType names
		if n.hook == TCX && len(frame) < 54 {
			return nil, false
		}
		t.Fatal(err)
	}
	if notes == nil {
		return nil, true
	}
	var b []byte
	if err := notes.Lookup(uint32(0), &b); err != nil {
		t.Fatal(err)
	}
	for i := range binary.LittleEndian.Uint32(b) {
		got = append(got, binary.LittleEndian.Uint32(b[4+4*i:]))
	}
	return got, true
}

// follows compares what a compiled policy writes with what its rules do one after the other, and
// says how many notes it compared.
func follows(t *testing.T, p *policy.Policy, target Target, seed uint64,
	packets int) (prog *Program, n int) {
	t.Helper()
	x := noted(p, seed)
	target.Clock, target.Trace = true, true
	prog, err := compile(ir.BuildWith(p, x), target, &notes)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	coll, err := ebpf.NewCollection(prog.Spec)
	if err != nil {
		t.Fatalf("seed %d: %+v", seed, err)
	}
	defer coll.Close()
	seedState(t, prog, coll)
	nothingIsTold(t, coll)
	reference := oracle.New(p)
	reference.SetClock(func() time.Time { return time.Unix(0, 0) }) // as the map has it
	for frame := range difftest.Packets(p, seed, packets) {
		if len(frame) < 14 { // the kernel runs no such frame
			continue
		}
		got, ok := noting{coll, target.Hook}.run(t, frame)
		want := wanted(p, x, reference.Eval(frame))
		if ok && !slices.Equal(got, want) {
			t.Fatalf("seed %d: wrote %v, want %v: frame %x", seed, got, want, frame)
		}
		n += len(want)
	}
	return prog, n
}

// seedState does what the loader does with the memories of limits and cookies, for which time
// stands still.
func seedState(t *testing.T, prog *Program, coll *ebpf.Collection) {
	t.Helper()
	for _, use := range prog.Maps {
		memory := make([]byte, prog.Spec.Maps[use.Name].ValueSize)
		switch use.Holds.What {
		case state.HoldsLimit:
			limit.Seed(memory)
		case state.HoldsCookies:
			cookie.Seed(memory, 250)
			cookie.SetClock(memory, 1<<33)
		case state.HoldsGreylist:
			greylist.Seed(memory, 250)
			greylist.SetClock(memory, 1<<33)
		case state.HoldsFragments:
			fragment.Seed(memory, 250)
			fragment.SetClock(memory, 1<<33)
		default:
			continue
		}
		if err := coll.Maps[use.Name].Put(uint32(0), memory); err != nil {
			t.Fatal(err)
		}
	}
}

func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("test.levee", []byte(text),
		func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist })
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// What is not listed of an effect is no effect of a shadow, which only looks.
func TestShadowHasNoEffectThatIsNotListed(t *testing.T) {
	p := parsed(t, "count udp\ndrop tcp port 7\ndefault pass\n")
	emitted := 0
	x := &extension{effects: map[action.Action]*effect{note: {
		emit:   func(*compiler, *scope, *ir.Rule, ir.Effect) { emitted++ },
		record: func(*ir.Rule, ir.Effect) record { emitted++; return record{} },
	}}}
	prog := ir.BuildWith(p, func(*policy.Rule) []ir.Effect { return []ir.Effect{{Action: note}} })
	shadow := plan.Judged{RowBytes: 640, Slots: 30}
	for _, bytecode := range []bool{false, true} {
		if _, err := compile(prog, Target{Shadow: shadow, Bytecode: bytecode}, x); err != nil {
			t.Fatal(err)
		}
	}
	if emitted > 0 {
		t.Errorf("a shadow has %d effects of which nothing is listed", emitted)
	}
	if _, err := compile(prog, Target{}, x); err != nil || emitted == 0 {
		t.Errorf("of a policy in force %d are emitted, %v", emitted, err)
	}
}

// shapes makes rules of which many match a packet.
type shapes struct {
	*rand.Rand
	labels int
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(1, seed)) }

// wide is a match that no rule tree takes.
func (s *shapes) wide() string {
	return []string{
		fmt.Sprintf("len > %d", 20*s.IntN(40)),
		fmt.Sprintf("ttl < %d", 255-s.IntN(128)),
		fmt.Sprintf("udp from %d.0.0.0/2 len > %d", 64*s.IntN(4), s.IntN(200)),
		fmt.Sprintf("tcp port %d-65535 ttl > %d", s.IntN(1000), s.IntN(64)),
	}[s.IntN(4)]
}

// noting are rules that may have notes; a few of them decide.
func (s *shapes) noting(n int) string {
	var b strings.Builder
	for range n {
		action := "count"
		if s.IntN(20) == 0 {
			action = []string{"drop", "pass"}[s.IntN(2)]
		}
		fmt.Fprintf(&b, "%s %s\n", action, s.wide())
	}
	return b.String()
}

func (s *shapes) label() string {
	s.labels++
	return fmt.Sprintf("as \"%d\"", s.labels)
}

// plain are rules without notes.
func (s *shapes) plain(n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "count %s %s\n", s.wide(), s.label())
		if s.IntN(20) == 0 {
			fmt.Fprintf(&b, "drop len %d %s\n", 20+s.IntN(600), s.label())
		}
	}
	return b.String()
}

// tree are rules without notes that become a rule tree. With notes they may not.
func (s *shapes) tree(notes bool) string {
	var b strings.Builder
	for range plan.MinTree + s.IntN(20) {
		label := ""
		if !notes {
			label = s.label()
		}
		fmt.Fprintf(&b, "%s udp from %d.%d.0.0/16 port %d %s\n",
			[]string{"drop", "pass"}[s.IntN(2)], s.IntN(224), s.IntN(256), s.IntN(65536), label)
	}
	return b.String()
}

// Effects happen in the order of the rules, once, and only for packets that come to the rule,
// whatever a program is made of.
func TestEffectsHappenInTheOrderOfTheRules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
	var s *shapes // seeded for each case: their order is random
	has := func(prog *Program, name string) bool {
		return slices.ContainsFunc(prog.Spec.Programs[ProgramName].Instructions,
			func(ins asm.Instruction) bool { return ins.Symbol() == name })
	}
	functions := func(prog *Program) bool { return has(prog, "part_0") }
	bytecode := func(prog *Program) bool { return has(prog, interpreter) }
	trees := func(prog *Program) bool {
		return slices.ContainsFunc(prog.Tables,
			func(t Table) bool {
				return strings.Contains(t.For, " rules, ") && t.Kind != "records in trees"
			})
	}
	for name, c := range map[string]struct {
		text    func() string
		records bool
		made    []func(*Program) bool
	}{
		"straight": {func() string { return s.noting(40) }, false, nil},
		"functions": {func() string { return s.noting(600) }, false,
			[]func(*Program) bool{functions}},
		"rule trees": {func() string {
			return s.noting(10) + s.tree(false) + s.noting(10) + s.tree(true) + s.tree(false) +
				s.noting(5)
		}, false, []func(*Program) bool{trees}},
		"bytecode": {func() string {
			return s.plain(60) + s.noting(10) + s.plain(60) + s.noting(5)
		}, true,
			[]func(*Program) bool{bytecode}},
		"bytecode and functions": {func() string {
			return s.plain(60) + s.noting(300) + s.plain(60) + s.noting(5)
		}, true,
			[]func(*Program) bool{bytecode, functions}},
		"all of it": {func() string {
			return s.noting(20) + s.tree(false) + s.noting(20) + s.plain(1100) + s.noting(300)
		}, false,
			[]func(*Program) bool{bytecode, functions, trees}},
	} {
		for i, target := range []Target{{CPUs: 1}, {CPUs: 2, Frags: true}, {CPUs: 2, Hook: TCX}} {
			target.Bytecode = c.records
			s = &shapes{Rand: seeded(uint64(i))}
			p := parsed(t, c.text()+"default drop\n")
			t.Run(fmt.Sprintf("%s, %d", name, i), func(t *testing.T) {
				prog, n := follows(t, p, target, uint64(i+1), 600)
				for j, made := range c.made {
					if !made(prog) {
						t.Errorf("the program is not made of what is to be tested (%d)", j)
					}
				}
				if n < 600 {
					t.Errorf("only %d notes compared", n)
				}
			})
		}
	}
}

func TestEffectsOfRandomPoliciesHappenInOrder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
	n := 0
	for seed := range uint64(24) {
		p, _, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		target := Target{CPUs: 2, Bytecode: seed%2 == 1, Frags: seed%3 == 1}
		if seed%3 == 2 {
			target.Hook = TCX
		}
		_, k := follows(t, p, target, seed, 300)
		n += k
	}
	if n < 1000 {
		t.Errorf("%d notes compared", n)
	}
}

// Rules whose effects read what earlier ones have left load, and the verifier walks them a few
// times at most: two ways that left something else are the same to it.
func TestEffectsDoNotMultiplyThePathsOfTheVerifier(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to load programs")
	}
	for _, seed := range []uint64{3, 23, 25, 52} { // 23, 25 and 52 did not load
		s := &shapes{Rand: rand.New(rand.NewPCG(seed, 7))}
		for _, text := range []string{
			s.noting(40),
			s.noting(10) + s.tree(false) + s.noting(10) + s.tree(true) + s.tree(false) +
				s.noting(5),
		} {
			p := parsed(t, text+"default drop\n")
			prog, err := compile(ir.BuildWith(p, noted(p, seed)), Target{CPUs: 2}, &notes)
			if err != nil {
				t.Fatal(err)
			}
			coll, err := ebpf.NewCollection(prog.Spec)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				continue
			}
			info, err := coll.Programs[ProgramName].Info()
			if err != nil {
				t.Fatal(err)
			}
			n := len(prog.Spec.Programs[ProgramName].Instructions)
			if walked, ok := info.VerifiedInstructions(); ok && int(walked) > 10*n {
				t.Errorf("seed %d: the verifier walked %d instructions of %d", seed, walked, n)
			}
			coll.Close()
		}
	}
}

// Every effect of the language is emitted, and is bytecode if it may be; nothing else is.
func TestEffectsOfTheLanguageAreEmitted(t *testing.T) {
	for _, info := range action.Table() {
		how := effectsOf[info.Action]
		if !info.Effect {
			if how != nil {
				t.Errorf("%s has no effect, and one is emitted", info.Word)
			}
			continue
		}
		if how == nil || how.emit == nil {
			t.Errorf("the effect of %s is not emitted", info.Word)
		} else if may := info.May&action.MayBeBytecode != 0; may != (how.record != nil) {
			t.Errorf("the effect of %s may be bytecode: %v; it has a record: %v", info.Word, may,
				how.record != nil)
		}
	}
	for a := range effectsOf {
		if a.String() == "" {
			t.Errorf("the effect of action %d is emitted, which the language does not have", a)
		}
	}
}

func TestEffectThatNobodyEmitsIsAnError(t *testing.T) {
	p := parsed(t, "drop udp\ndefault pass\n")
	prog := ir.BuildWith(p, noted(p, 3))
	if !slices.ContainsFunc(prog.Lists[1], func(r ir.Rule) bool { return r.Action.Has(note) }) {
		x := func(*policy.Rule) []ir.Effect { return []ir.Effect{{Action: note}} }
		prog = ir.BuildWith(p, x)
	}
	if _, err := CompileIR(prog, Target{}); err == nil ||
		!strings.Contains(err.Error(), "effect 128") {
		t.Errorf("compiled: %v", err)
	}
}
