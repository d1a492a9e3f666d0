package codegen

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/policy"
)

// compiler holds what the pieces of one program share.
type compiler struct {
	*env.Code
	extension      *extension
	anyLooks       bool // a rule looks at the packet
	bytecodeCounts bool // a rule of bytecode counts
	called         bool // blocks are functions or bytecode, which are given the environment
	maps           map[string]*ebpf.MapSpec
	ledger         []MapUse // of maps
	tables         []Table
	packed         int                 // bytes of tables, see constant
	fills          []func([]byte)      // put them where they lie
	packs          int                 // maps of tables that are full
	tableAt        map[string]location // by name
	failed         error               // a table is too large
	bytecode       *bytecode
	behind         []string // what follows each call of the interpreter
	inArms         bool     // of the interpreter, now
}

// Compile makes the program of a policy for a target.
func Compile(p *policy.Policy, t Target) (*Program, error) {
	return CompileIR(ir.Build(p), t)
}

// CompileIR makes the program of an already lowered policy.
func CompileIR(prog *ir.Program, t Target) (*Program, error) {
	return compile(prog, t, &extension{})
}

// compile makes the program of an already lowered policy whose rules may ask extra questions, and
// have effects that the language does not have.
func compile(prog *ir.Program, t Target, x *extension) (*Program, error) {
	made, err := plan.NewWith(prog, t, x.planned())
	if err != nil {
		return nil, err
	}
	return emit(made, x)
}

// Emit makes the program of a plan.
func Emit(p *plan.Plan) (*Program, error) { return emit(p, &extension{}) }

func emit(p *plan.Plan, x *extension) (*Program, error) {
	c := newCompiler(p, x)
	if err := c.addMaps(); err != nil {
		return nil, err
	}
	if err := c.generate(); err != nil {
		return nil, err
	}
	if c.failed != nil {
		return nil, c.failed
	}
	c.flushTables()
	instructions, err := c.Finish()
	if err != nil {
		return nil, err
	}
	if assembler.FarJump(instructions) {
		return nil, c.errorf("a jump does not reach its label")
	}
	if err := c.locate(instructions); err != nil {
		return nil, err
	}
	out := &Program{
		Spec: &ebpf.CollectionSpec{
			Maps:     c.maps,
			Programs: map[string]*ebpf.ProgramSpec{ProgramName: c.spec(instructions)},
		},
		Link:      c.Target.Link,
		Links:     []Link{{ProgramName, Ingress}},
		Slots:     p.Slots,
		Plain:     c.Target.Plain,
		RowBytes:  p.RowBytes,
		Tables:    c.tables,
		Limits:    p.Limits,
		Logs:      p.Logs,
		Cookies:   p.Cookies,
		Greylists: p.Greylists,
		Echoes:    p.Echoes,
		Senders:   p.Program.Policy.Senders,
		Names:     p.Target.Names,
	}
	if err := out.addBeside(p.State); err != nil {
		return nil, err
	}
	c.dynamicSets(out)
	out.Maps = c.ledger
	if p.Out == nil {
		return out, nil
	}
	leaving, err := Emit(p.Out)
	if err != nil {
		return nil, err
	}
	at := Egress
	if p.Out.Target.Handed() {
		at = state.Behind
	}
	out.addLeaving(leaving, at)
	return out, nil
}

// spec returns the main program for the loader: its type and attach type are those of the target.
func (c *compiler) spec(instructions asm.Instructions) *ebpf.ProgramSpec {
	spec := &ebpf.ProgramSpec{
		Name:         ProgramName,
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP,
		Instructions: instructions,
		License:      "Dual BSD/GPL",
	}
	if c.Target.Frags {
		spec.Flags = xdpHasFrags
	}
	if c.Target.Called {
		spec.AttachType = ebpf.AttachNone
	}
	switch c.Target.Hook {
	case TCX:
		spec.Type, spec.AttachType = ebpf.SchedCLS, ebpf.AttachTCXIngress
	case plan.CGroup:
		spec.Type, spec.AttachType = ebpf.CGroupSKB, ebpf.AttachCGroupInetIngress
	case plan.Socket:
		spec.Type, spec.AttachType = ebpf.SocketFilter, ebpf.AttachNone
	}
	return spec
}

// addBeside adds the programs that memories have at other hooks.
func (p *Program) addBeside(use *state.Use) error {
	for _, row := range use.In() {
		b := row.Beside
		if b == nil {
			continue
		}
		spec, err := b.Spec(use)
		if err != nil {
			return err
		}
		if spec == nil {
			continue
		}
		p.Spec.Programs[b.Name] = spec
		p.Links = append(p.Links, Link{b.Name, b.At})
	}
	return nil
}

// newCompiler begins the program of a plan.
func newCompiler(p *plan.Plan, x *extension) *compiler {
	c := &compiler{
		Code:      &env.Code{Builder: assembler.New(), Plan: p, Target: p.Target},
		extension: x,
		maps:      map[string]*ebpf.MapSpec{},
		tableAt:   map[string]location{},
		bytecode:  newBytecode(),
	}
	if p.Target.Clock {
		c.Clock = plan.ClockMap
	}
	for _, rules := range append(p.Program.Lists[:], p.Program.Malformed) {
		c.anyLooks = c.anyLooks || x.looks(rules)
		c.AnyEffects = c.AnyEffects || x.leaves(rules)
	}
	c.anyLooks = c.anyLooks || p.Tracks() || p.AsksKernel() // for the kernel to be asked
	for _, ch := range p.Chains {
		c.called = c.called || ch.Calls
	}
	for _, b := range p.Bytecodes {
		c.bytecodeCounts = c.bytecodeCounts || slices.ContainsFunc(b.Rules, env.Counts)
	}
	counting := slices.ContainsFunc(p.Functions, (*plan.Function).Counts)
	c.RowInEnv = p.CPUs > 1 && (c.bytecodeCounts || counting)
	return c
}

// xdpHasFrags is BPF_F_XDP_HAS_FRAGS of include/uapi/linux/bpf.h.
const xdpHasFrags = 1 << 5

// generate emits the whole program: decoding, then the rules of each class, then the verdict, then
// functions, and the careful decoder.
func (c *compiler) generate() error {
	careful, err := env.Decoder(c.Target)
	if err != nil {
		return err
	}
	c.placeTables()
	c.placeNames()
	for _, b := range c.Plan.Bytecodes {
		c.walk(b) // before its number is known to the main function
	}
	c.describe()
	c.Global(ProgramName, c.ContextParam())
	c.Emit(asm.Mov.Reg(env.RegCtx, asm.R1))
	if c.Target.Trial {
		c.trial()
	}
	if c.Target.TakesTurns() {
		c.ownAnswers()
		c.turn()
	}
	c.Emit(asm.StoreMem(asm.R10, env.MainCtx, env.RegCtx, asm.DWord))
	if c.Target.IsShadow() && !c.Target.Leaves { // nothing that leaves has become an answer
		c.beginShadow()
	}
	c.beginEnv()
	c.fastPath()
	if c.Target.Plain {
		c.plainPath()
	} else {
		c.slowPath()
		c.malformed()
	}
	for _, ch := range c.Plan.Chains {
		c.measured(ch, func() { c.emitChain(ch) })
	}
	c.interpret()
	c.decided()
	c.verdict()
	for _, f := range c.Plan.Functions {
		c.measured(f, func() { c.emitFunction(f) })
	}
	for _, row := range c.Plan.State.In() {
		if row.Emit == nil {
			continue
		}
		err := row.Emit(&state.Emission{Builder: c.Builder, Use: c.Plan.State,
			Context: c.ContextParam(), Key: assembler.Memory("key", int(env.KeySize))})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(c.EmitTelling(), c.emitInside()); err != nil {
		return err
	}
	c.emitSetFunctions()
	c.EmitSearches()
	c.emitTableFunctions()
	c.emitArms()
	c.emitBytecode()
	c.emitPools()
	if err := c.emitNames(); err != nil {
		return err
	}
	if c.Target.Plain {
		return nil
	}
	c.emitDecoder(careful)
	return nil
}

// emitDecoder emits the careful decoder. Where the environment is all written it is a global
// function, which the verifier walks once, and not for each of the ways that lead there.
func (c *compiler) emitDecoder(careful asm.Instructions) {
	name, _ := env.DecoderName(c.Target)
	if !c.clears() {
		c.Static(name, assembler.Pointer("env"), assembler.Pointer("ctx"))
		c.Emit(careful...)
		return
	}
	c.Global(name, assembler.Memory("env", c.EnvBytes()), c.ContextParam())
	c.Given()
	c.Emit(careful...)
}

// clears tells whether the environment is all written before the packet is decoded.
func (c *compiler) clears() bool { return c.called || c.Plan.Fragments }

// beginEnv clears what nobody else fills of the environment.
func (c *compiler) beginEnv() {
	switch {
	case c.clears():
		c.ClearEnv()
	case c.AnyEffects:
		c.ClearEffects()
	}
	if !c.clears() {
		c.NoPort()
	}
	c.NoStranger()
	if c.RowInEnv {
		c.RowOffset()
		c.Emit(asm.StoreMem(asm.R10, env.RowAt, asm.R0, asm.Word))
	}
}

// trial judges by the policy only until the deadline; then by the program that ran before, or, if
// there was none, not at all. The kernel does this by itself, so that a rollback needs no process.
func (c *compiler) trial() {
	c.Jiffies()
	c.Emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.TrialMap),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JLT.Reg(asm.R0, asm.R1, "judge"),
		asm.Mov.Reg(asm.R1, env.RegCtx),
		asm.LoadMapPtr(asm.R2, 0).WithReference(plan.PreviousMap),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm32(asm.R0, c.PassCode()),
		asm.Return(),
	)
	c.Label("judge")
}

// malformed decides a frame whose reason code is in R0.
func (c *compiler) malformed() {
	c.Label("malformed")
	c.noFragment()
	c.Emit(asm.Mov.Reg32(asm.R6, asm.R0))
	c.BeginCounts(c.Plan.Program.Malformed)
	for i := range c.Plan.Program.Malformed {
		r := &c.Plan.Program.Malformed[i]
		next := c.Fresh("next")
		c.emitExtras(r, next)
		c.emitEffects(r)
		if r.Action.Decides() {
			c.decide(c.response(r))
			if !slices.ContainsFunc(c.extension.of(r), asks) {
				return
			}
		}
		c.Label(next)
	}
	c.Emit(
		asm.Sub.Imm(asm.R6, 1),
		asm.JLE.Imm(asm.R6, int32(len(policy.Malformed)-1), "reason"),
		asm.Mov.Imm(asm.R6, int32(len(policy.Malformed)-1)),
	)
	c.Label("reason")
	c.Emit(asm.Mov.Reg(asm.R0, asm.R6))
	if first := c.Plan.Program.Policy.MalformedSlot(0); first > 0 {
		c.Emit(asm.Add.Imm(asm.R0, int32(first)))
	}
	c.Emit(asm.Ja.Label("drop"))
}

// decide ends the judging: R0 is the slot of the rule that decided.
func (c *compiler) decide(r plan.Response) {
	to := "drop"
	switch r.Verdict {
	case ir.Pass:
		to = "pass"
	case ir.Answer:
		to = "answer"
	case ir.Redirect:
		to = "redirect"
	}
	c.Emit(asm.Mov.Imm32(asm.R0, int32(r.Slot)), asm.Ja.Label(to))
}

// decided returns the place to which the main function goes with the word of a response in R0.
func (c *compiler) decided() {
	if !c.Referenced("decided") {
		return
	}
	last := int32(len(c.Plan.Slots) - 1)
	c.Label("decided")
	c.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, 1<<plan.VerdictBits-1),
		asm.RSh.Imm(asm.R0, plan.VerdictBits),
		asm.JGT.Imm(asm.R0, last, "impossible"), // never: for the verifier
		asm.JEq.Imm(asm.R1, plan.PassWord, "pass"),
	)
	if len(c.Plan.Cookies) > 0 {
		c.Emit(asm.JEq.Imm(asm.R1, plan.AnswerWord, "answer"))
	}
	if len(c.Plan.Program.Policy.Rings()) > 0 {
		c.Emit(asm.JEq.Imm(asm.R1, plan.RedirectWord, "redirect"))
	}
	c.Emit(
		asm.Ja.Label("drop"),
	)
}

// verdict counts the packet for the rule that decided, whose slot is in R0, and ends the program.
func (c *compiler) verdict() {
	// The verifier refuses code that no jump reaches: a policy may pass all, or drop all.
	if c.Referenced("impossible") {
		c.Label("impossible")
		c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Ja.Label("drop"))
	}
	if c.Referenced("pass") {
		c.Label("pass")
		c.Emit(asm.Mov.Imm32(asm.R7, c.PassCode()), asm.Ja.Label("count"))
	}
	if c.Referenced("answer") {
		c.Label("answer")
		c.Emit(asm.Mov.Imm32(asm.R7, c.AnswerCode()), asm.Ja.Label("count"))
	}
	if c.Referenced("redirect") {
		c.Label("redirect")
		c.Emit(asm.Mov.Imm32(asm.R7, env.RedirectCode), asm.Ja.Label("count"))
	}
	if c.Referenced("drop") {
		c.Label("drop")
		c.Emit(asm.Mov.Imm32(asm.R7, c.DropCode()))
	}
	c.Label("count")
	c.Emit(asm.Mov.Reg32(asm.R6, asm.R0))
	c.noteFragment()
	c.NoteStranger()
	c.Row()
	c.Emit(
		asm.Mov.Reg(asm.R9, asm.R1),
		asm.Mov.Reg(asm.R2, asm.R6), asm.LSh.Imm(asm.R2, env.SlotLog), asm.Add.Reg(asm.R1, asm.R2),
	)
	c.Bump(0)
	if c.Target.Trace {
		c.Emit(
			asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.TraceMap),
			asm.StoreMem(asm.R1, 0, asm.R6, asm.Word),
		)
	}
	if c.extension.end != nil {
		c.extension.end(c)
	}
	if c.Target.IsShadow() {
		c.shadow()
	}
	c.capture()
	if c.Target.Leaves && c.Target.Hook == plan.CGroup {
		c.markDropped()
	}
	c.Emit(asm.Mov.Reg32(asm.R0, asm.R7), asm.Return())
}

// capture hands the packet, with the slot in R6 and the verdict in R7, to the program that
// captures or takes samples, where there is one, and at egress to that of a shadow. R9 is this
// CPU's row of counters: behind them stands which of them there are, as a place in the array of
// programs (state.CaptureEntries), and then what it is told (plan.RowBytes). The program returns
// the verdict.
func (c *compiler) capture() {
	if c.Target.Plain || c.Target.Leaves && !c.Target.HandsOn() || c.Target.Hook.OfService() {
		return
	}
	array, word := state.CaptureMap, int16(0)
	if c.Target.Leaves {
		array, word = plan.BehindMap, 4
	}
	off := c.Fresh("no_capture")
	at := len(c.Plan.Slots) * SlotBytes
	if at > math.MaxInt16-SlotBytes {
		c.Emit(asm.Add.Imm(asm.R9, int32(at)))
		at = 0
	}
	c.Emit(
		asm.LoadMem(asm.R3, asm.R9, int16(at)+word, asm.Word),
		asm.JEq.Imm(asm.R3, 0, off),
		asm.StoreMem(asm.R9, int16(at)+8, asm.R6, asm.Word),
		asm.StoreMem(asm.R9, int16(at)+12, asm.R7, asm.Word),
		asm.LoadMem(asm.R1, asm.R10, env.MainCtx, asm.DWord),
		asm.LoadMapPtr(asm.R2, 0).WithReference(array),
	)
	if c.Target.Leaves {
		c.Emit(asm.Mov.Imm(asm.R3, 0))
	}
	c.Emit(
		asm.FnTailCall.Call(),
		// The program has gone.
		asm.StoreImm(asm.R9, int16(at)+word, 0, asm.Word),
	)
	c.Label(off)
}

func (c *compiler) errorf(format string, args ...any) error {
	return fmt.Errorf("compiling %s: "+format,
		append([]any{c.Plan.Program.Policy.File}, args...)...)
}
