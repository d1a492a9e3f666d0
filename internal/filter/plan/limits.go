package plan

import (
	"fmt"

	"levee/internal/filter/prefix"
)

// What the kernel takes, and what of it goes to what is in every program.
const (
	// maxFunctions is BPF_MAX_SUBPROGS of include/linux/bpf_verifier.h.
	maxFunctions = 256
	// maxInstructions is BPF_COMPLEXITY_LIMIT_INSNS of include/linux/bpf.h.
	maxInstructions = 1_000_000
	// maxFunction bounds the instructions of a function of rules, and of rules in the main
	// function: a jump has 16 bits, and the decoder stands before the rules.
	maxFunction = 24_000
	// maxMain is up to how many instructions all rules are in the main function. The verifier walks
	// them once for each way on which a packet comes to them.
	maxMain = 24_000
	// maxBeside is up to how many instructions rules are there beside calls of functions.
	maxBeside = 4_000
	// maxQuestions is the number of questions that a function of rules asks. The verifier keeps a
	// way open for each while it walks a function, 8,192 at most (BPF_COMPLEXITY_LIMIT_JMP_SEQ of
	// kernel/bpf/verifier.c), and what it keeps makes it slow.
	maxQuestions = 500
	// maxMainQuestions is the same for the main function, which is walked on fewer ways.
	maxMainQuestions = 3_000
	// maxTreesInPlace is the number of trees, of all look-ups together, that have their first walks
	// in place: they have the verifier walk some 400,000 instructions, of the million that it
	// takes. Further look-ups cost it next to nothing, and a packet 10 to 40 ns more.
	maxTreesInPlace = 48
	// maxRuleTrees is the largest number of rule trees that a chain may have with other rules
	// between them; where there would be more, all of its rules become bytecode.
	maxRuleTrees = 8
)

// SlotBytes is the size of one counter: packets and bytes, 64 bits each.
const SlotBytes = 16

// RowBytes returns the size of one CPU's row of counters: a counter for each slot, and behind them
// 16 bytes for who captures: u32, the place in the array of programs to go to, or 0; u32, 1 where a
// shadow gets what leaves; u32 each the slot that decided and what the program returns.
func RowBytes(slots int) int { return ((slots+1)*SlotBytes + 63) &^ 63 }

// checkCounters refuses what no program can address.
func (p *planner) checkCounters() error {
	if size := p.CPUs * p.RowBytes; size >= prefix.MaxBytes {
		return p.errorf("counters for %d CPUs take %d bytes, a program can address %d: use sets "+
			"instead of many rules", p.CPUs, size, prefix.MaxBytes)
	}
	return nil
}

func (p *planner) errorf(format string, args ...any) error {
	return fmt.Errorf("compiling %s: "+format, append([]any{p.Program.Policy.File}, args...)...)
}
