package pattern

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
)

// subsets makes a deterministic automaton of an expression's: a state is a set of instructions, the
// possible positions of the expression's automaton. Which it is at depends for some on the next
// byte, such as behind \b: these wait in the set.
type subsets struct {
	*builder
	prog   *syntax.Prog
	number map[string]uint32 // of a set, by its key
	sets   [][]uint32        // of states from fresh on
	before []int             // and what stood before, if something waits there
	seen   []uint32          // round in which an instruction was reached last
	round  uint32
	work   int
	lines  bool // a match may begin behind a newline, where no other may
	key    []byte
}

const (
	pastOps   = syntax.EmptyBeginLine | syntax.EmptyBeginText
	futureOps = ^pastOps
	wordOps   = syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
)

// compileExpression makes the automaton that finds an expression anywhere, and adds the steps that
// it takes.
func compileExpression(re *syntax.Regexp, steps *int) (*Machine, error) {
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > maxProgram {
		*steps += maxWork
		return nil, &LargeError{States: maxProgram}
	}
	s := &subsets{prog: prog, number: map[string]uint32{}, seen: make([]uint32, len(prog.Inst)),
		builder: newBuilder(signatures(prog))}
	s.lines = slices.ContainsFunc(prog.Inst, func(in syntax.Inst) bool {
		return in.Op == syntax.InstEmptyWidth && syntax.EmptyOp(in.Arg)&syntax.EmptyBeginLine != 0
	})
	defer func() { *steps += s.work + classes*len(prog.Inst) }()
	s.round++
	start, err := s.state(s.reach([]uint32{}, uint32(prog.Start), end, unknown), end)
	if err != nil {
		return nil, err
	}
	for n := 0; n < len(s.sets); n++ {
		for class := range s.stride {
			next := end
			if class < len(s.first) {
				next = int(s.first[class])
			}
			to, err := s.step(n, next)
			if err != nil {
				return nil, err
			}
			s.set(uint32(n+fresh), class, to)
		}
	}
	return s.finish(start)
}

// signatures tell bytes apart that any instruction does.
func signatures(prog *syntax.Prog) func(c byte) string {
	return func(c byte) string {
		var sig []byte
		lines, words := false, false
		for i := range prog.Inst {
			in := &prog.Inst[i]
			switch in.Op {
			case syntax.InstEmptyWidth:
				op := syntax.EmptyOp(in.Arg)
				lines = lines || op&(syntax.EmptyBeginLine|syntax.EmptyEndLine) != 0
				words = words || op&wordOps != 0
			case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
				sig = append(sig, bit(takes(in, c)))
			}
		}
		return string(append(sig, bit(lines && c == '\n'), bit(words && isWord(int(c)))))
	}
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// takes tells whether an instruction goes on with a byte.
func takes(in *syntax.Inst, c byte) bool {
	switch in.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return c != '\n'
	case syntax.InstRune, syntax.InstRune1:
		return in.MatchRune(rune(c))
	}
	return false
}

// isWord tells whether what stands somewhere is a byte of a word; -1 stands for an end of the
// input.
func isWord(c int) bool { return c >= 0 && syntax.IsWordChar(rune(c)) }

// What may stand beside a place besides a byte.
const (
	end     = -1 // of the input, or its beginning
	unknown = -2 // a byte, or the end, that was not read yet
)

// reach adds to a set what an instruction leads to between two bytes; nil is a match. Where the
// next byte is unknown, what depends on it is added as it is.
func (s *subsets) reach(set []uint32, pc uint32, before, next int) []uint32 {
	stack := []uint32{pc}
	for len(stack) > 0 {
		pc, stack = stack[len(stack)-1], stack[:len(stack)-1]
		if s.seen[pc] == s.round {
			continue
		}
		s.seen[pc] = s.round
		s.work++
		in := &s.prog.Inst[pc]
		switch in.Op {
		case syntax.InstMatch:
			return nil
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			op := syntax.EmptyOp(in.Arg)
			if op&pastOps&^holding(before, unknown) != 0 {
				continue
			}
			switch {
			case op&futureOps == 0, next != unknown && op&^holding(before, next) == 0:
				stack = append(stack, in.Out)
			case next == unknown:
				set = append(set, pc)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			set = append(set, pc)
		}
	}
	return set
}

// holding returns which assertions hold between two bytes.
func holding(before, next int) (op syntax.EmptyOp) {
	if before == end {
		op |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	}
	if before == '\n' {
		op |= syntax.EmptyBeginLine
	}
	if next == end {
		op |= syntax.EmptyEndText | syntax.EmptyEndLine
	}
	if next == '\n' {
		op |= syntax.EmptyEndLine
	}
	if isWord(before) != isWord(next) {
		return op | syntax.EmptyWordBoundary
	}
	return op | syntax.EmptyNoWordBoundary
}

// like is something before a place of which assertions tell no more than of another.
func like(before int) int {
	switch {
	case before == end || before == '\n':
		return before
	case isWord(before):
		return 'a'
	}
	return 0
}

// state returns the number of the state with a set of instructions, behind a byte. A nil set is a
// match.
func (s *subsets) state(set []uint32, before int) (uint32, error) {
	switch {
	case set == nil:
		return accept, nil
	case len(set) == 0 && !s.lines:
		return dead, nil
	case s.work > maxWork:
		return 0, &LargeError{States: s.states()}
	}
	slices.Sort(set)
	s.key = s.key[:0]
	waits := false
	for _, pc := range set {
		s.key = binary.LittleEndian.AppendUint32(s.key, pc)
		waits = waits || s.prog.Inst[pc].Op == syntax.InstEmptyWidth
	}
	if before = like(before); !waits {
		before = 0
	}
	s.key = append(s.key, byte(before))
	if n, ok := s.number[string(s.key)]; ok {
		return n, nil
	}
	n, err := s.row()
	if err != nil {
		return 0, err
	}
	s.number[string(s.key)] = n
	s.sets, s.before = append(s.sets, set), append(s.before, before)
	return n, nil
}

// step returns the state that set number n goes to by a byte, or -1 for the end.
func (s *subsets) step(n, next int) (uint32, error) {
	now := make([]uint32, 0, len(s.sets[n]))
	s.round++
	for _, pc := range s.sets[n] {
		in := &s.prog.Inst[pc]
		if in.Op != syntax.InstEmptyWidth {
			now = append(now, pc)
			continue
		}
		if now = s.reach(now, pc, s.before[n], next); now == nil {
			return accept, nil
		}
	}
	if next == end {
		return dead, nil
	}
	to := []uint32{}
	s.round++
	for _, pc := range now {
		s.work++
		if in := &s.prog.Inst[pc]; takes(in, byte(next)) {
			if to = s.reach(to, in.Out, next, unknown); to == nil {
				return accept, nil
			}
		}
	}
	if to = s.reach(to, uint32(s.prog.Start), next, unknown); to == nil {
		return accept, nil
	}
	return s.state(to, next)
}
