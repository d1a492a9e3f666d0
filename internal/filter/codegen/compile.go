package codegen

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/ir"
	"levee/internal/filter/prefix"
	"levee/internal/filter/ruletree"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Registers of the generated program. Until the packet is decoded R6 is the context, R7 and R8
// the bounds of the frame and R9 its length; where the rules of a class begin they hold the fields that
// rules ask for most, and all else is read from struct key on the stack. R0 to R5 are scratch.
const (
	regCtx   = asm.R6
	regData  = asm.R7
	regEnd   = asm.R8
	regBytes = asm.R9

	regSrc     = asm.R6 // IPv4 address, or upper half of the IPv6 address, host order
	regDst     = asm.R7
	regDstPort = asm.R8 // or ICMP type << 8 | code
	regSrcPort = asm.R9
)

// compiler holds what the pieces of one program share.
type compiler struct {
	builder
	target       Target
	extension    *extension
	anyLooks     bool // a rule looks at the packet
	anyEffects   bool // a rule leaves effects
	anyCounts    bool // a rule of a list counts and goes on
	prog         *ir.Program
	cpus         int
	rowBytes     int
	maps         map[string]*ebpf.MapSpec
	ledger       []MapUse // of maps
	tables       []Table
	bitmaps      map[string]string    // contents of a port bitmap to its map's name
	statics      map[ir.ListID]static // prefix tables
	pairs        map[ir.ListID]*ruletree.Table
	ethernet     map[string]static // tables of Ethernet addresses, by their ranges
	packed       int               // bytes of tables, see constant
	fills        []func([]byte)    // put them where they lie
	packs        int               // maps of tables that are full
	places       map[string]place  // of tables, by name
	failed       error             // a table is too large
	chains       []*chain
	chainOf      [ir.NumClasses]*chain
	parts        []*chain // of chains, that are functions
	walked       []*chain // of chains, that are records
	all          bool     // all rules become records
	interprets   bool     // some do
	machine      *machine
	separate     bool               // chains are functions
	inFunction   bool               // in one of them now
	pools        [ir.IPv6 + 1]*pool // tables of runs of rules
	treesInPlace int                // of their look-ups
	runs         []runTable
	lookups      []*assembler.Builder // functions that rules call, two each
	tableLookups []*assembler.Builder // functions that search a static set
	lookupOf     map[lookupKey]string
	setPlaces    map[*policy.Set]SetPlace // of all dynamic sets
}

// Compile makes the program of a policy for a target.
func Compile(p *policy.Policy, t Target) (*Program, error) {
	return CompileIR(ir.Build(p), t)
}

// CompileIR makes the program of an already lowered policy.
func CompileIR(prog *ir.Program, t Target) (*Program, error) { return compile(prog, t, &extension{}) }

// compile makes the program of an already lowered policy whose rules may have blocks, and effects that
// the language does not have.
func compile(prog *ir.Program, t Target, x *extension) (*Program, error) {
	if asks := prog.Policy.Ethernet(); t.Link == packet.L3 && len(asks) > 0 {
		return nil, fmt.Errorf("line %d asks for %s, which packets without an Ethernet header lack",
			asks[0].Rule.Pos.Line, asks[0].Term.Field.Info().Name)
	}
	slots := prog.Policy.Slots()
	c, instructions, err := assemble(prog, t, x, len(slots))
	if err != nil {
		return nil, err
	}
	spec := &ebpf.ProgramSpec{
		Name:         ProgramName,
		Type:         ebpf.XDP,
		AttachType:   ebpf.AttachXDP,
		Instructions: instructions,
		License:      "Dual BSD/GPL",
	}
	if t.Frags {
		spec.Flags = xdpHasFrags
	}
	if t.Hook == TCX {
		spec.Type, spec.AttachType = ebpf.SchedCLS, ebpf.AttachTCXIngress
	}
	out := &Program{
		Spec: &ebpf.CollectionSpec{
			Maps:     c.maps,
			Programs: map[string]*ebpf.ProgramSpec{ProgramName: spec},
		},
		Link:     t.Link,
		Links:    []Link{{ProgramName, Ingress}},
		Slots:    slots,
		Plain:    t.Plain,
		RowBytes: c.rowBytes,
		Tables:   c.tables,
	}
	if err := c.dynamicSets(out); err != nil {
		return nil, err
	}
	out.Maps = c.ledger
	return out, nil
}

// assemble generates the program with the rules of all classes in one function or, where that would be
// too long for the 16 bits of a jump, in functions. Where these are too many, or one too long, all rules become records
// (see machine.go).
func assemble(prog *ir.Program, t Target, x *extension, slots int) (*compiler, asm.Instructions, error) {
	for c := newCompiler(prog, t, x, slots, t.Records); ; {
		if size := c.cpus * c.rowBytes; size >= prefix.MaxBytes {
			return nil, nil, c.errorf("counters for %d CPUs take %d bytes, a program can address %d: use sets instead of many rules", c.cpus, size, prefix.MaxBytes)
		}
		if err := c.generate(); err != nil {
			return nil, nil, err
		}
		if c.failed != nil {
			return nil, nil, c.failed
		}
		c.flushTables()
		ins, err := c.Finish()
		if err != nil {
			return nil, nil, err
		}
		switch n := len(c.parts) + 2*len(c.lookups) + len(c.tableLookups) + (len(c.machine.arms)+armsEach-1)/armsEach; {
		case n <= maxFunctions && assembler.Length(ins) <= maxInstructions && !assembler.FarJump(ins):
			return c, ins, c.locate(ins)
		case c.all:
			return nil, nil, c.errorf("the rules take %d functions and %d instructions, the kernel takes %d and %d: put what they share into sets", n, assembler.Length(ins), maxFunctions, maxInstructions)
		case c.separate || n > maxFunctions || assembler.Length(ins) > maxInstructions:
			c = newCompiler(prog, t, x, slots, true)
		default:
			c = newCompiler(prog, t, x, slots, false)
			c.separate = true
		}
	}
}

// maxFunctions is BPF_MAX_SUBPROGS of the kernel, 256, less the main function, the decoder, the four functions
// of the machine and those that walk tables of rules, two a family.
const maxFunctions = 246

// maxInstructions is BPF_COMPLEXITY_LIMIT_INSNS of include/linux/bpf.h.
const maxInstructions = 1_000_000

// newCompiler begins a compilation; all makes records of all rules.
func newCompiler(prog *ir.Program, t Target, x *extension, slots int, all bool) *compiler {
	c := &compiler{
		builder: builder{assembler.New()},
		target:  t,
		prog:    prog,

		extension: x,

		cpus:     1 << bits.Len(uint(max(t.CPUs, 1)-1)),
		rowBytes: (slots*SlotBytes + 63) &^ 63,
		maps:     map[string]*ebpf.MapSpec{},
		bitmaps:  map[string]string{},
		statics:  map[ir.ListID]static{},
		ethernet: map[string]static{},
		pairs:    map[ir.ListID]*ruletree.Table{},
		places:   map[string]place{},
		lookupOf: map[lookupKey]string{},

		setPlaces: placesOf(prog.Policy),

		all:     all,
		machine: newMachine(),
	}
	c.addMap(memory(countersMap, c.cpus*c.rowBytes), Identity{What: Counters}, Pinned)
	for _, rules := range append(prog.Lists[:], prog.Malformed) {
		c.anyLooks = c.anyLooks || x.looks(rules)
		c.anyEffects = c.anyEffects || x.leaves(rules)
	}
	for _, rules := range prog.Lists {
		c.anyCounts = c.anyCounts || slices.ContainsFunc(rules, counts)
	}
	c.shareChains()
	for _, ch := range c.chains {
		ch.pieces = c.pieces(ch)
		c.interprets = c.interprets || slices.ContainsFunc(ch.pieces, func(p piece) bool { return p.records })
	}
	c.separate = c.interprets || c.chainLength() > maxInline
	return c
}

// xdpHasFrags is BPF_F_XDP_HAS_FRAGS of include/uapi/linux/bpf.h.
const xdpHasFrags = 1 << 5

// mmapable is BPF_F_MMAPABLE: user space reads and writes the value without a system call.
const mmapable = 1 << 10

// memory is a map that is one piece of zeroed memory, addressed directly by the program.
func memory(name string, size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1, Flags: mmapable,
	}
}

// generate emits the whole program: decoding, then the rules of each class, then the verdict, then
// the careful decoder.
func (c *compiler) generate() error {
	careful, err := decoder(c.target)
	if err != nil {
		return err
	}
	c.Global(ProgramName, assembler.Pointer("ctx"))
	c.emit(asm.Mov.Reg(regCtx, asm.R1))
	if c.target.Trial {
		c.trial()
	}
	if c.anyLooks {
		c.emit(asm.StoreMem(asm.R10, mainCtx, regCtx, asm.DWord))
	}
	if c.separate {
		return c.generateFunctions(careful)
	}
	if c.anyEffects {
		c.clearEffects()
	}
	c.fastPath()
	c.otherPaths()
	for _, ch := range c.chains {
		c.emitChain(ch)
	}
	c.verdict()
	c.emitRest(careful)
	return nil
}

// generateFunctions is generate where chains are functions: they are made first, for their number.
func (c *compiler) generateFunctions(careful asm.Instructions) error {
	main := c.builder
	functions := main.Aside()
	c.builder = builder{functions}
	for _, ch := range c.chains {
		c.emitFunctions(ch)
	}
	c.builder = main
	c.clearEnv()
	if c.rowInEnv() {
		c.rowOffset()
		c.emit(asm.StoreMem(asm.R10, rowAt, asm.R0, asm.Word))
	}
	c.fastPath()
	c.otherPaths()
	c.label("decided")
	c.leave()
	c.verdict()
	c.Append(functions)
	c.emitRest(careful)
	return nil
}

// otherPaths emits what becomes of packets that the fast path does not know.
func (c *compiler) otherPaths() {
	if c.target.Plain {
		c.plainPath()
		return
	}
	c.slowPath()
	c.malformed()
}

// emitRest emits the functions that rules and the slow path call.
func (c *compiler) emitRest(careful asm.Instructions) {
	for _, code := range c.lookups {
		c.Append(code)
	}
	for _, code := range c.tableLookups {
		c.Append(code)
	}
	c.emitArms()
	c.emitMachine()
	c.emitPools()
	if c.target.Plain {
		return
	}
	name, _ := decoderName(c.target)
	c.Static(name, assembler.Pointer("env"), assembler.Pointer("ctx"))
	c.emit(careful...)
}

// trial judges by the policy only until the deadline; then by the program that ran before, or, if
// there was none, not at all. The kernel does this by itself, so that a rollback needs no process.
func (c *compiler) trial() {
	c.addMap(memory(trialMap, 8), Identity{What: Deadline}, Private)
	previous := &ebpf.MapSpec{Name: previousMap, Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	c.addMap(previous, Identity{What: Previous}, Pinned) // the kernel empties it when no user holds it
	c.emit(
		asm.FnJiffies64.Call(),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(trialMap),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JLT.Reg(asm.R0, asm.R1, "judge"),
		asm.Mov.Reg(asm.R1, regCtx),
		asm.LoadMapPtr(asm.R2, 0).WithReference(previousMap),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm32(asm.R0, c.passCode()),
		asm.Return(),
	)
	c.label("judge")
}

// Verdicts: include/uapi/linux/bpf.h enum xdp_action, enum tcx_action_base.
func (c *compiler) passCode() int32 {
	if c.target.Hook == TCX {
		return -1 // TCX_NEXT: what else is attached has its say
	}
	return 2 // XDP_PASS
}

func (c *compiler) dropCode() int32 {
	if c.target.Hook == TCX {
		return 2 // TCX_DROP
	}
	return 1 // XDP_DROP
}

// malformed decides a frame whose reason code, 1 to 10, is in R0.
func (c *compiler) malformed() {
	c.label("malformed")
	c.emit(asm.Mov.Reg32(asm.R6, asm.R0))
	c.beginCounts(c.prog.Malformed)
	for i := range c.prog.Malformed {
		r := &c.prog.Malformed[i]
		next := c.fresh("next")
		c.emitBlocks(r, next)
		c.emitEffects(r)
		if r.Action.Decides() {
			c.decide(r)
			if !slices.ContainsFunc(c.extension.of(r), asks) {
				return
			}
		}
		c.label(next)
	}
	c.emit(
		asm.Sub.Imm(asm.R6, 1),
		asm.JLE.Imm(asm.R6, int32(len(policy.Malformed)-1), "reason"),
		asm.Mov.Imm(asm.R6, int32(len(policy.Malformed)-1)),
	)
	c.label("reason")
	c.emit(
		asm.LSh.Imm(asm.R6, 4),
		asm.Mov.Reg(asm.R0, asm.R6),
		asm.Ja.Label("drop"),
	)
}

// decide ends a rule: R0 is the offset of its counter.
func (c *compiler) decide(r *ir.Rule) {
	to := "drop"
	if r.Action.Verdict == ir.Pass {
		to = "pass"
	}
	c.emit(asm.Mov.Imm32(asm.R0, int32(r.Slot*SlotBytes)), asm.Ja.Label(to))
}

// leave ends with a result (see there) in R0.
func (c *compiler) leave() {
	last := int32((len(c.prog.Policy.Slots()) - 1) * SlotBytes)
	c.emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, 1),
		asm.And.Imm(asm.R0, -SlotBytes),
		asm.JGT.Imm(asm.R0, last, "impossible"), // never: for the verifier
		asm.JNE.Imm(asm.R1, 0, "pass"),
		asm.Ja.Label("drop"),
	)
}

// verdict counts the packet for the rule that decided, whose counter's offset is in R0, and ends
// the program.
func (c *compiler) verdict() {
	// The verifier refuses code that nothing leads to: a policy may pass all, or drop all.
	if c.Referenced("impossible") {
		c.label("impossible")
		c.emit(asm.Mov.Imm(asm.R0, 0), asm.Ja.Label("drop"))
	}
	if c.Referenced("pass") {
		c.label("pass")
		c.emit(asm.Mov.Imm32(asm.R7, c.passCode()), asm.Ja.Label("count"))
	}
	if c.Referenced("drop") {
		c.label("drop")
		c.emit(asm.Mov.Imm32(asm.R7, c.dropCode()))
	}
	c.label("count")
	c.emit(asm.Mov.Reg32(asm.R6, asm.R0))
	c.row()
	c.emit(asm.Add.Reg(asm.R1, asm.R6))
	c.bump(0)
	if c.target.Trace {
		c.addMap(memory(traceMap, 8), Identity{What: LastSlot}, Private)
		c.emit(
			asm.LoadMapValue(asm.R1, 0, 0).WithReference(traceMap),
			asm.RSh.Imm(asm.R6, 4),
			asm.StoreMem(asm.R1, 0, asm.R6, asm.Word),
		)
	}
	if c.extension.end != nil {
		c.extension.end(c)
	}
	c.emit(asm.Mov.Reg32(asm.R0, asm.R7), asm.Return())
}

// count counts the packet for a rule that decides nothing, in the row that beginCounts found.
func (c *compiler) count(slot int) {
	at := slot * SlotBytes
	c.emit(asm.LoadMem(asm.R1, asm.R10, c.rowSlot(), asm.DWord))
	if at > math.MaxInt16-SlotBytes {
		c.emit(asm.Add.Imm(asm.R1, int32(at)))
		at = 0
	}
	c.bump(int16(at))
}

// beginCounts keeps the address of this CPU's row of counters for the rules that only count: finding it
// takes a call, and the kernel rewrites the whole program for each of them while it loads.
func (c *compiler) beginCounts(rules []ir.Rule) {
	if slices.ContainsFunc(rules, counts) {
		c.row()
		c.emit(asm.StoreMem(asm.R10, c.rowSlot(), asm.R1, asm.DWord))
	}
}

// row leaves the address of this CPU's row of counters in R1.
func (c *compiler) row() {
	if c.cpus == 1 {
		c.emit(asm.LoadMapValue(asm.R1, 0, 0).WithReference(countersMap))
		return
	}
	if c.rowInEnv() {
		there := c.fresh("row")
		c.field(asm.R0, rowAt, asm.Word)
		c.emit(
			asm.JLE.Imm(asm.R0, int32((c.cpus-1)*c.rowBytes), there),
			asm.Mov.Imm(asm.R0, 0), // never: for the verifier
		)
		c.label(there)
	} else {
		c.rowOffset()
	}
	c.emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(countersMap),
		asm.Add.Reg(asm.R1, asm.R0),
	)
}

// rowOffset leaves where this CPU's row of counters begins in R0.
func (c *compiler) rowOffset() {
	c.emit(
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(c.cpus-1)),
		asm.Mul.Imm(asm.R0, int32(c.rowBytes)),
	)
}

// rowInEnv reports whether the main function finds the row of counters for all functions.
func (c *compiler) rowInEnv() bool { return c.separate && c.anyCounts && c.cpus > 1 }

func counts(r ir.Rule) bool { return r.Action.Has(action.Count) }

// bump adds the packet to the counter at R1 plus at. Programs of this hook do not interrupt each
// other on a CPU, so plain additions are exact.
func (c *compiler) bump(at int16) {
	c.field(asm.R2, keyBytes, asm.Word)
	c.bumpBy(at)
}

// bumpBy adds a packet with as many bytes as R2 says.
func (c *compiler) bumpBy(at int16) {
	c.emit(
		asm.LoadMem(asm.R3, asm.R1, at, asm.DWord),
		asm.Add.Imm(asm.R3, 1),
		asm.StoreMem(asm.R1, at, asm.R3, asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, at+8, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R2),
		asm.StoreMem(asm.R1, at+8, asm.R3, asm.DWord),
	)
}

// table notes a choice for `levee check --explain-compile`.
func (c *compiler) table(what, kind string, bytes int, why string) {
	c.tables = append(c.tables, Table{For: what, Kind: kind, Bytes: bytes, Why: why})
}

func (c *compiler) errorf(format string, args ...any) error {
	return fmt.Errorf("compiling %s: "+format, append([]any{c.prog.Policy.File}, args...)...)
}
