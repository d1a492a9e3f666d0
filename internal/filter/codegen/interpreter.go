package codegen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen/env"
	"levee/internal/filter/plan"
)

// interpreter names the function that runs bytecode. It takes the environment and the number of the
// first record, and returns the response word of the rule that decided, or 0.
const interpreter = "interpreter"

// What the interpreter keeps on its stack, for the function that bpf_loop calls: offsets from stAt.
// It takes no more, for those that it calls. Numbers that grow do not lie on multiples of 8 bytes,
// where the verifier would remember what was stored and see a new state of the loop in each round.
const (
	stEnv    = 0  // u64: address of the environment
	stRecord = 12 // u32: number of the next record
	stEntry  = 20 // u32: of the next entry of the list
	stThen   = 28 // u32: number of the record behind the list
	stBest   = 32 // u64: slot << 32 | response of the rule that has decided
	stRow    = 40 // u64: address of this CPU's row of counters
	stCtx    = 48 // u64: context, if a rule looks at the packet
	stAt     = -56
)

// undecided is above what stands for any rule, and below endOfList.
const undecided = -2

// stepsPerCall is the number of records that one call of bpf_loop's function walks; the verifier
// walks so many at each look at it. maxCalls is BPF_MAX_LOOPS of kernel/bpf/bpf_iter.c. Records
// lead forward only, so a packet walks each once at most.
const (
	stepsPerCall = 16
	maxCalls     = 1 << 23
)

// emitBytecode emits the interpreter and what it calls, if a chain has parts for it.
func (c *compiler) emitBytecode() {
	if len(c.Plan.Bytecodes) == 0 {
		return
	}
	c.bytecode.place(c)
	c.InFunction = true
	defer func() { c.InFunction = false }()
	c.emitInterpreter()
	c.emitSteps()
	c.emitSearch("interpreter_search", boundsTable, c.bytecode.bounds.n, false)
	c.emitSearch("interpreter_search_wide", wideTable, c.bytecode.wide.n/2, true)
}

func (c *compiler) emitInterpreter() {
	params := []assembler.Param{assembler.Memory("env", c.EnvBytes()), assembler.Number("record")}
	if c.anyLooks {
		params = append(params, c.ContextParam())
	}
	c.Global(interpreter, params...)
	c.Emit(
		asm.JNE.Imm(asm.R1, 0, "interpreter_env"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	c.Label("interpreter_env")
	c.Emit(
		asm.StoreMem(asm.R10, stAt+stEnv, asm.R1, asm.DWord),
		asm.StoreMem(asm.R10, stAt+stRecord, asm.R2, asm.Word),
		asm.StoreMem(asm.R10, stAt+stEntry, asm.R2, asm.Word),
		asm.StoreMem(asm.R10, stAt+stThen, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R1, undecided),
		asm.StoreMem(asm.R10, stAt+stBest, asm.R1, asm.DWord),
	)
	if c.anyLooks {
		c.Emit(asm.StoreMem(asm.R10, stAt+stCtx, asm.R3, asm.DWord))
	}
	if c.bytecodeCounts {
		c.Emit(asm.LoadMem(asm.R1, asm.R10, stAt+stEnv, asm.DWord))
		c.RowBy()
		c.Emit(asm.StoreMem(asm.R10, stAt+stRow, asm.R1, asm.DWord))
	}
	c.Loop(maxCalls, "interpreter_steps", stAt)
	c.Emit(
		asm.LoadMem(asm.R0, asm.R10, stAt+stBest, asm.DWord),
		asm.JEq.Imm(asm.R0, undecided, "interpreter_undecided"),
		asm.Mov.Reg32(asm.R0, asm.R0),
		asm.Return(),
	)
	c.Label("interpreter_undecided")
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// maxNumber has all bits of any number of a record, an entry or a bound. Numbers that grow are cut
// to it: the verifier then forgets that they have grown, and sees one state of the loop instead of
// one for each round.
const maxNumber = 1<<30 - 1

// Registers of the function that bpf_loop calls, and where it keeps what outlives calls.
const (
	mEnv    = asm.R6
	mRecord = asm.R7
	mSteps  = asm.R8
	mEntry  = asm.R9
	mState  = -8  // address of the interpreter's state
	mNot    = -16 // whether the question is to be answered no
)

// emitSteps emits the function that walks some records. It is static, as bpf_loop wants it.
func (c *compiler) emitSteps() {
	c.Static("interpreter_steps", assembler.Number("call"), assembler.Pointer("state"))
	c.Emit(
		asm.StoreMem(asm.R10, mState, asm.R2, asm.DWord),
		asm.LoadMem(mEnv, asm.R2, stEnv, asm.DWord),
		asm.LoadMem(mRecord, asm.R2, stRecord, asm.Word),
		asm.LoadMem(mEntry, asm.R2, stEntry, asm.Word),
		asm.Mov.Imm(mSteps, stepsPerCall),
	)
	c.Label("interpreter_step")
	c.Emit(
		asm.JLT.Imm(mSteps, 1, "interpreter_pause"),
		asm.Sub.Imm(mSteps, 1),
		// never: for the verifier
		asm.JGE.Imm(mRecord, int32(c.bytecode.records.n), "interpreter_end"),
		asm.Mov.Reg(asm.R2, mRecord),
		asm.LSh.Imm(asm.R2, 5),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(recordsTable),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.Mov.Reg(asm.R5, asm.R2),
		asm.And.Imm(asm.R5, 0xff),
		asm.JGE.Imm(asm.R5, int32(opDecide), "interpreter_other"),
	)
	c.emitQuestion()
	c.emitOthers()
	c.Label("interpreter_pause")
	c.Emit(
		asm.LoadMem(asm.R2, asm.R10, mState, asm.DWord),
		asm.StoreMem(asm.R2, stRecord, mRecord, asm.Word),
		asm.StoreMem(asm.R2, stEntry, mEntry, asm.Word),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	c.Label("interpreter_end")
	c.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
}

// emitQuestion reads the field of the record at R1, whose first word is in R2 and op in R5, and
// asks.
func (c *compiler) emitQuestion() {
	c.Emit(
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 8),
		asm.And.Imm(asm.R3, 0xff),
		asm.JGT.Imm(asm.R3, int32(env.KeySize)-8, "interpreter_end"), // never: for the verifier
		asm.Mov.Reg(asm.R4, mEnv),
		asm.Add.Reg(asm.R4, asm.R3),
		asm.LoadMem(asm.R4, asm.R4, 0, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.RSh.Imm(asm.R0, 16),
		asm.And.Imm(asm.R0, 63),
		asm.RSh.Reg(asm.R4, asm.R0),
		asm.LoadMem(asm.R0, asm.R1, 8, asm.DWord),
		asm.And.Reg(asm.R4, asm.R0),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R2, 24),
		asm.And.Imm(asm.R2, 1),
		asm.LoadMem(asm.R0, asm.R1, 16, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, 24, asm.DWord),
		asm.JNE.Imm(asm.R5, int32(opTest), "interpreter_no_test"),
		asm.Sub.Reg(asm.R4, asm.R0),
		asm.JGT.Reg(asm.R4, asm.R1, "interpreter_outside"),
		asm.Xor.Imm(asm.R2, 1),
	)
	c.Label("interpreter_outside")
	c.Emit(
		asm.JNE.Imm(asm.R2, 0, "interpreter_on"),
		asm.RSh.Imm(asm.R3, 32),
		asm.JEq.Imm(asm.R3, 0, "interpreter_next"),
		asm.Add.Reg(mRecord, asm.R3),
		asm.Mov.Reg32(mRecord, mRecord),
		asm.Ja.Label("interpreter_step"),
	)
	c.Label("interpreter_on")
	c.Emit(
		asm.Add.Imm(mRecord, 1),
		asm.And.Imm(mRecord, maxNumber),
		asm.Ja.Label("interpreter_step"),
	)
	c.Label("interpreter_no_test")
	c.Emit(
		asm.JNE.Imm(asm.R5, int32(opCut), "interpreter_no_cut"),
		asm.JLT.Reg(asm.R4, asm.R0, "interpreter_below"),
		asm.RSh.Imm(asm.R1, 32),
	)
	c.Label("interpreter_below")
	c.Emit(asm.Mov.Reg32(mRecord, asm.R1), asm.Ja.Label("interpreter_step"))
	c.Label("interpreter_no_cut")
	c.emitCalls()
}

// emitCalls asks what takes a function: of the field in R4, the word behind it in struct key, and
// the operands in R0 and R1. The first word of the record is in R3.
func (c *compiler) emitCalls() {
	c.Emit(
		asm.StoreMem(asm.R10, mNot, asm.R2, asm.DWord),
		asm.JNE.Imm(asm.R5, int32(opSearch), "interpreter_no_search"),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R4),
		asm.Call.Label("interpreter_search"),
		asm.Ja.Label("interpreter_answer"),
	)
	c.Label("interpreter_no_search")
	c.Emit(
		asm.RSh.Imm(asm.R3, 8),
		asm.And.Imm(asm.R3, 0xff),
		asm.JGT.Imm(asm.R3, int32(env.KeySize)-16, "interpreter_end"), // never: for the verifier
		asm.Add.Reg(asm.R3, mEnv),
		asm.LoadMem(asm.R2, asm.R3, 8, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R0, asm.R1),
		asm.Mov.Reg(asm.R1, asm.R4),
		asm.Mov.Reg(asm.R4, asm.R0),
		asm.JNE.Imm(asm.R5, int32(opWide), "interpreter_no_wide"),
		asm.Call.Label("interpreter_search_wide"),
		asm.Ja.Label("interpreter_answer"),
	)
	c.Label("interpreter_no_wide")
	c.Emit(asm.JEq.Imm(asm.R5, int32(opEndpoint), "interpreter_endpoint"))
	c.oneOf(asm.R3, 0, len(c.Plan.Interpreter.Lookups), "interpreter_end", c.lookup)
	c.Label("interpreter_endpoint")
	c.emitService()
	c.oneOf(asm.R3, 0, len(c.Plan.Interpreter.Endpoints), "interpreter_end", c.lookupEndpoint)
	c.Label("interpreter_answer")
	c.Emit(
		asm.LoadMem(asm.R2, asm.R10, mNot, asm.DWord),
		asm.JEq.Reg(asm.R0, asm.R2, "interpreter_next"),
		asm.Ja.Label("interpreter_on"),
	)
}

// oneOf emits a jump by the number in a register: to the code that do emits for it, if lo <= number
// < hi, else to none.
func (c *compiler) oneOf(number asm.Register, lo, hi int, none string, do func(int)) {
	switch hi - lo {
	case 0:
		c.Emit(asm.Ja.Label(none))
		return
	case 1:
		do(lo)
		return
	}
	mid := (lo + hi) / 2
	upper := c.Fresh("upper")
	c.Emit(asm.JGE.Imm(number, int32(mid), upper))
	c.oneOf(number, lo, mid, none, do)
	c.Label(upper)
	c.oneOf(number, mid, hi, none, do)
}

// lookup calls function i of opLookup with the address in R1 and R2, or with the environment and
// the context, and with the number in R4 if it takes one.
func (c *compiler) lookup(i int) {
	l := c.Plan.Interpreter.Lookups[i]
	switch {
	case l.Arms:
		c.Emit(asm.Mov.Reg(asm.R1, mEnv))
		if c.anyLooks {
			c.Emit(asm.LoadMem(asm.R3, asm.R10, mState, asm.DWord),
				asm.LoadMem(asm.R3, asm.R3, stCtx, asm.DWord))
		}
		c.Emit(asm.Mov.Reg(asm.R2, asm.R4), asm.Call.Label(armsLabel(l.First)))
	case l.Table != nil:
		c.Emit(asm.Call.Label(tableLabel(l.Table)))
	default:
		if c.Plan.Shared() {
			c.Emit(asm.Mov.Reg(numberOf(l.IPv4), asm.R4))
		}
		c.Emit(asm.Call.Label(c.setLabel(l.Set)))
	}
	c.Emit(asm.Ja.Label("interpreter_answer"))
}

// armsLabel returns the function of the environment that has an arm.
func armsLabel(arm int) string { return fmt.Sprintf("arms_%d", arm/plan.ArmsEach) }

func armLabel(arm int) string { return fmt.Sprintf("arm_%d", arm) }

// emitArms emits the functions of the environment and the number of an arm.
func (c *compiler) emitArms() {
	c.InFunction, c.inArms = true, true
	defer func() { c.InFunction, c.inArms = false, false }()
	arms := c.Plan.Interpreter.Arms
	for first := 0; first < len(arms); first += plan.ArmsEach {
		last := min(first+plan.ArmsEach, len(arms))
		c.BeginFunction(armsLabel(first), c.anyLooks, assembler.Number("arm"))
		c.oneOf(asm.R2, first, last, "", func(arm int) { c.Emit(asm.Ja.Label(armLabel(arm))) })
		for _, a := range arms[first:last] {
			c.arm(a)
		}
	}
}

// arm emits the code of one arm: a jump to the label no means no, falling through means yes.
func (c *compiler) arm(a *plan.Arm) {
	program := c.Builder
	c.Builder = program.Aside()
	no := c.Fresh("no")
	c.Label(armLabel(a.Number))
	if a.Lookup == nil {
		c.extension.of(a.Rule)[a.Extra].emit(c, no)
	} else {
		in := &scope{family: a.Class.Family}
		in.holds.Ask(a.Lookup.Cond)
		c.loadRegs(&in.holds)
		c.endpoint(in, &plan.Question{Cond: a.Lookup.Cond, By: plan.InTable, Lookup: a.Lookup}, no)
	}
	c.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	if c.Referenced(no) { // the verifier refuses code that no jump reaches
		c.Label(no)
		c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	}
	part := c.Builder
	c.Builder = program
	c.Append(part)
}

// lookupEndpoint calls function i of opEndpoint with the address in R1 and R2, the service in R5
// and the number of the set in R4. Behind an IPv4 address R2 is anything: its entries count none of
// it.
func (c *compiler) lookupEndpoint(i int) {
	key := c.Plan.Interpreter.Endpoints[i]
	if key.IPv4 {
		c.Emit(asm.LSh.Imm(asm.R1, 32))
	}
	c.Emit(asm.Mov.Reg(asm.R3, asm.R5), asm.Call.Label(c.setLabel(key)),
		asm.Ja.Label("interpreter_answer"))
}

// emitService turns the operand in R4 (see serviceOperand) into protocol<<16 | port in R5, and the
// number of the set in R4 where sets share maps.
func (c *compiler) emitService() {
	c.Emit(
		asm.Mov.Reg(asm.R5, asm.R4),
		asm.RSh.Imm(asm.R5, 32),
		asm.And.Imm(asm.R5, 0xff),
		asm.JGT.Imm(asm.R5, int32(env.KeySize)-8, "interpreter_end"), // never: for the verifier
		asm.Add.Reg(asm.R5, mEnv),
		asm.LoadMem(asm.R5, asm.R5, 0, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 40),
		asm.And.Imm(asm.R0, 63),
		asm.RSh.Reg(asm.R5, asm.R0),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.And.Imm(asm.R0, 1<<24-1),
		asm.And.Reg(asm.R5, asm.R0),
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 24),
		asm.And.Imm(asm.R0, 0xff),
		asm.LSh.Imm(asm.R0, 16),
		asm.Or.Reg(asm.R5, asm.R0),
	)
	if c.Plan.Shared() {
		c.Emit(asm.RSh.Imm(asm.R4, 48))
	}
}

// emitOthers does what is no question, and goes to the next entry of the list.
func (c *compiler) emitOthers() {
	c.Label("interpreter_other")
	c.Emit(
		asm.LoadMem(asm.R3, asm.R1, 8, asm.DWord),
		asm.LoadMem(asm.R2, asm.R10, mState, asm.DWord),
		asm.JEq.Imm(asm.R5, int32(opList), "interpreter_list"),
	)
	if c.bytecodeCounts {
		c.Emit(asm.JEq.Imm(asm.R5, int32(opCount), "interpreter_count"))
	}
	c.Emit(
		asm.JNE.Imm(asm.R5, int32(opDecide), "interpreter_end"),
		asm.StoreMem(asm.R2, stBest, asm.R3, asm.DWord),
		asm.LoadMem(mRecord, asm.R2, stThen, asm.Word),
		asm.Ja.Label("interpreter_step"),
	)
	if c.bytecodeCounts {
		c.Label("interpreter_count")
		c.Emit(
			// never: for the verifier
			asm.JGT.Imm(asm.R3, int32(c.Plan.RowBytes-SlotBytes), "interpreter_end"),
		)
		if c.Target.Hook.OfService() {
			c.Emit(asm.And.Imm(asm.R3, -SlotBytes)) // it is: atomic additions ask for it
		}
		c.Emit(
			asm.LoadMem(asm.R1, asm.R2, stRow, asm.DWord),
			asm.Add.Reg(asm.R1, asm.R3),
			asm.LoadMem(asm.R2, mEnv, env.KeyBytes-env.At, asm.Word),
		)
		c.BumpBy(0)
		c.Emit(asm.Ja.Label("interpreter_next"))
	}
	c.Label("interpreter_list")
	c.Emit(
		asm.LoadMem(asm.R4, asm.R1, 16, asm.DWord),
		asm.StoreMem(asm.R2, stThen, asm.R4, asm.Word),
		asm.Mov.Reg(mEntry, asm.R3),
	)
	c.Label("interpreter_next")
	c.Emit(
		// never: for the verifier
		asm.JGE.Imm(mEntry, int32(max(1, c.bytecode.lists.n)), "interpreter_end"),
		asm.Mov.Reg(asm.R2, mEntry),
		asm.LSh.Imm(asm.R2, 3),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(listsTable),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R3, asm.R1, 0, asm.DWord),
		asm.Add.Imm(mEntry, 1),
		asm.And.Imm(mEntry, maxNumber),
		asm.LoadMem(asm.R2, asm.R10, mState, asm.DWord),
		asm.LoadMem(asm.R4, asm.R2, stBest, asm.DWord),
		// the end, or a rule that stands behind the one that decided
		asm.JGT.Reg(asm.R3, asm.R4, "interpreter_leave"),
		asm.Mov.Reg32(mRecord, asm.R3),
		asm.Ja.Label("interpreter_step"),
	)
	c.Label("interpreter_leave")
	c.Emit(asm.LoadMem(mRecord, asm.R2, stThen, asm.Word), asm.Ja.Label("interpreter_step"))
}

// maxHalvings is enough for as many bounds as a table can hold.
const maxHalvings = 27

// emitSearch emits a function that says whether an odd number of n bounds, in ascending order from
// number at on, is at or below a value: (value, at, n), or with two words (upper, lower, at, n).
// The loop is written out: the verifier finds two rounds of one place the same where it cannot for
// rounds of a loop.
func (c *compiler) emitSearch(label, table string, total int, wide bool) {
	s := search{c, label, table, total, asm.R2, asm.R3, asm.R4, wide}
	params := []assembler.Param{assembler.Number("value")}
	if wide {
		params = []assembler.Param{assembler.Number("upper"), assembler.Number("lower")}
		s.at, s.n, s.half = asm.R3, asm.R4, asm.R0
	}
	c.Global(label, append(params, assembler.Number("at"), assembler.Number("n"))...)
	c.Emit(
		asm.Mov.Reg32(s.n, s.n),
		asm.Mov.Reg32(s.at, s.at),
		asm.Mov.Reg(asm.R6, s.at),
	)
	for range maxHalvings {
		s.halve()
	}
	c.Label(label + "_done")
	c.Emit(
		asm.Mov.Reg(asm.R0, s.at),
		asm.Sub.Reg(asm.R0, asm.R6),
		asm.And.Imm(asm.R0, 1),
		asm.Return(),
	)
}

// search holds the registers and labels that the rounds of a search share. The value is in R1, and
// in R2 too if it is wide.
type search struct {
	*compiler
	label, table string
	total        int // bounds in the table
	at, n, half  asm.Register
	wide         bool
}

// halve compares with the bound in the middle.
func (s *search) halve() {
	const value, bound = asm.R1, asm.R5
	above, below := s.Fresh("interpreter_above"), s.Fresh("interpreter_below")
	on := s.Fresh("interpreter_on")
	shift := int32(3)
	if s.wide {
		shift = 4
	}
	s.Emit(
		asm.JLT.Imm(s.n, 1, s.label+"_done"),
		asm.Mov.Reg(s.half, s.n),
		asm.RSh.Imm(s.half, 1),
		asm.Mov.Reg(asm.R7, s.at),
		asm.Add.Reg(asm.R7, s.half),
		asm.JGE.Imm(asm.R7, int32(max(1, s.total)), s.label+"_done"), // never: for the verifier
		asm.Mov.Reg(bound, asm.R7),
		asm.LSh.Imm(bound, shift),
		asm.LoadMapValue(asm.R8, 0, 0).WithReference(s.table),
		asm.Add.Reg(asm.R8, bound),
		asm.LoadMem(bound, asm.R8, 0, asm.DWord),
		asm.JGT.Reg(bound, value, above),
	)
	if s.wide {
		s.Emit(
			asm.JNE.Reg(bound, value, below),
			asm.LoadMem(bound, asm.R8, 8, asm.DWord),
			asm.JGT.Reg(bound, asm.R2, above),
		)
		s.Label(below)
	}
	s.Emit(
		asm.Mov.Reg(s.at, asm.R7),
		asm.Add.Imm(s.at, 1),
		asm.And.Imm(s.at, maxNumber),
		asm.Sub.Reg(s.n, s.half),
		asm.Sub.Imm(s.n, 1),
		asm.Mov.Reg32(s.n, s.n),
		asm.Ja.Label(on),
	)
	s.Label(above)
	s.Emit(asm.Mov.Reg(s.n, s.half))
	s.Label(on)
}
