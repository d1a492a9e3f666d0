package codegen_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// held is the abstract value of a register or of a slot of a stack: a number, or an address of a
// stack.
type held struct {
	kind  heldKind
	frame uint8 // of an address: how deep its function was called, 0 for the main one
	value int32 // of known: the number; of an address: where from R10 of its frame
}

type heldKind byte

const (
	unknown heldKind = iota // a number, or no address of a stack
	known                   // a number
	upTo                    // a number between 0 and value, which is small
	place                   // an address
	around                  // an address at a number of bytes behind value that is not known
)

// constant is one that is known, if it has 32 bits.
func constant(v int64) held {
	if v != int64(int32(v)) {
		return held{}
	}
	return held{kind: known, value: int32(v)}
}

// small says whether it is a number that may be how many bytes a helper is given.
func (h held) small() bool {
	return (h.kind == known || h.kind == upTo) && h.value >= 0 && h.value <= 64
}

// written are bytes of the stacks of a function and of those that called it: a bit for each byte of
// 512, from R10 down, of each of 8 frames (MAX_BPF_STACK, MAX_CALL_FRAMES).
type written [8][8]uint64

func (w *written) bit(frame, at int) (word *uint64, mask uint64) {
	at += 512
	return &w[frame][at>>6&7], 1 << (at & 63)
}

func (w *written) has(frame, at int) bool {
	word, mask := w.bit(frame, at)
	return *word&mask != 0
}

func (w *written) set(frame, at int) {
	word, mask := w.bit(frame, at)
	*word |= mask
}

// both leaves what is in another, too.
func (w *written) both(o *written) {
	for i := range w {
		for j := range w[i] {
			w[i][j] &= o[i][j]
		}
	}
}

// all calls back for each byte.
func (w *written) all(f func(frame, at int)) {
	for frame := range w {
		for at := -512; at < 0; at++ {
			if w[frame][(at+512)>>6] == 0 {
				at |= 63
			} else if w.has(frame, at) {
				f(frame, at)
			}
		}
	}
}

// turn is the number that was last stored as it is in four bytes: where to go on behind code that
// several ways share. States with another one are kept apart.
type turn struct {
	at    int
	value int64
}

// frames is the abstract state before an instruction: the stacks of the function and of its
// callers.
type frames struct {
	turn  turn
	regs  [asm.R10 + 1]held
	slots [64]held // of the function's own stack, eight bytes each, from R10 down
	done  written  // bytes that all ways here have written
}

// slot returns a place of eight bytes on the stack, nil unless they begin at a multiple of 8.
func (f *frames) slot(at int32) *held {
	if at%8 != 0 || at >= 0 || at < -512 {
		return nil
	}
	return &f.slots[-at/8-1]
}

// meet leaves what holds on both ways, and reports whether that is less than before.
func (f *frames) meet(o *frames) (less bool) {
	one := func(a, b held) held {
		switch {
		case a.small() && b.small():
			return held{kind: upTo, value: max(a.value, b.value)}
		case a.kind >= place && b == held{kind: known}: // an address, or none
			return a
		case b.kind >= place && a == held{kind: known}:
			return b
		case a.kind >= place && b.kind >= place && a.frame == b.frame:
			return held{around, a.frame, min(a.value, b.value)}
		}
		return held{}
	}
	all := func(to, from []held) {
		for i, v := range from {
			if to[i] == v {
				continue
			}
			if m := one(to[i], v); m != to[i] {
				to[i], less = m, true
			}
		}
	}
	all(f.regs[:], o.regs[:])
	all(f.slots[:], o.slots[:])
	was := f.done
	f.done.both(&o.done)
	return less || was != f.done
}

// summary lists the bytes that a function reads and writes of its callers' stacks.
type summary struct {
	needs written // read before it has written them
	does  written // written on all ways through it
}

// called is a function, and how it is called.
type called struct {
	first, depth int
	args         [6]held
}

// walker goes through the functions of a program.
type walker struct {
	flow    *flow
	symbols map[string]int
	known   map[called]summary
	wrong   map[string]bool // what is read though not all ways have written it
}

// checkWritten lists what a program reads of its stacks that not all ways have written.
func checkWritten(t *testing.T, ins asm.Instructions) []string {
	t.Helper()
	symbols, err := ins.SymbolOffsets()
	if err != nil {
		t.Fatal(err)
	}
	w := &walker{flowOf(t, ins), symbols, map[called]summary{}, map[string]bool{}}
	w.function(0, 0, [6]held{})
	return slices.Sorted(maps.Keys(w.wrong))
}

// function walks one at a depth, with what its arguments hold.
func (w *walker) function(first, depth int, args [6]held) summary {
	key := called{first, depth, args}
	if s, ok := w.known[key]; ok {
		return s
	}
	begin := &frames{}
	copy(begin.regs[:], args[:])
	begin.regs[asm.R10] = held{kind: place, frame: uint8(depth)}
	before := map[at]*frames{{i: first}: begin}
	todo := []at{{i: first}}
	for len(todo) > 0 {
		from := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		s := *before[from]
		w.step(from.i, depth, &s, func(held, int) {})
		for _, n := range w.ways(from.i, &s) {
			to := at{n, s.turn}
			if was := before[to]; was == nil {
				c := s
				before[to] = &c
			} else if !was.meet(&s) {
				continue
			}
			todo = append(todo, to)
		}
	}
	var out summary
	ends := false
	for at, s := range before {
		done, s := s.done, *s
		w.step(at.i, depth, &s, func(at held, n int) {
			for b := range n {
				switch b += int(at.value); {
				case done.has(int(at.frame), b):
				case int(at.frame) == depth:
					w.wrong[fmt.Sprintf("%s reads %d", w.name(first), b)] = true
				default:
					out.needs.set(int(at.frame), b)
				}
			}
		})
		if w.flow.ins[at.i].OpCode.JumpOp() == asm.Exit {
			if !ends {
				out.does, ends = done, true
			}
			out.does.both(&done)
		}
	}
	out.does[depth] = [8]uint64{}
	w.known[key] = out
	return out
}

// at is an instruction, as a walk reaches it.
type at struct {
	i int
	turn
}

// ways are the instructions behind one.
func (w *walker) ways(i int, s *frames) []int {
	in, next := w.flow.ins[i], w.flow.next[i]
	if in.OpCode.JumpOp() == asm.JEq && in.OpCode.Source() == asm.ImmSource && len(next) == 2 &&
		s.regs[in.Dst].kind == known {
		if int64(s.regs[in.Dst].value) == in.Constant {
			return next[1:]
		}
		return next[:1]
	}
	return next
}

func (w *walker) name(first int) string { return w.flow.ins[first].Symbol() }

// step does what instruction i does to a state, and calls back for each read of a stack.
func (w *walker) step(i, depth int, s *frames, reads func(at held, n int)) {
	in := w.flow.ins[i]
	op := in.OpCode
	switch class := op.Class(); {
	case op.JumpOp() == asm.Call && class.IsJump():
		w.call(i, depth, s, reads)
	case class.IsJump():
	case class == asm.LdClass:
		s.regs[in.Dst] = held{}
		if in.Src == 0 && in.Reference() == "" {
			s.regs[in.Dst] = constant(in.Constant)
		}
	case class == asm.LdXClass:
		from := s.regs[in.Src]
		s.regs[in.Dst] = held{}
		if from.kind < place {
			return
		}
		from.value += int32(in.Offset)
		reads(from, op.Size().Sizeof())
		if from.kind == place && int(from.frame) == depth && op.Size() == asm.DWord {
			if slot := s.slot(from.value); slot != nil {
				s.regs[in.Dst] = *slot
			}
		}
		if in.Src == asm.R10 && op.Size() == asm.Word && s.turn.at == int(in.Offset) {
			s.regs[in.Dst] = constant(s.turn.value)
		}
	case class == asm.StClass, class == asm.StXClass:
		to := s.regs[in.Dst]
		if to.kind < place {
			if op.Mode() != asm.MemMode { // an exchange with memory of a map
				s.regs[asm.R0] = held{}
				s.regs[in.Src] = held{}
			}
			return
		}
		to.value += int32(in.Offset)
		if to.kind == around {
			return
		}
		value := constant(in.Constant)
		if class == asm.StClass && in.Dst == asm.R10 && op.Size() == asm.Word {
			s.turn = turn{int(in.Offset), in.Constant}
		}
		if class == asm.StXClass {
			value = s.regs[in.Src]
		}
		s.write(to, op.Size().Sizeof(), depth, value)
	default:
		s.compute(in)
	}
}

// write notes that n bytes at an address hold a value.
func (s *frames) write(to held, n, depth int, value held) {
	for b := range n {
		s.done.set(int(to.frame), int(to.value)+b)
	}
	if int(to.frame) != depth {
		return
	}
	for b := to.value &^ 7; b < to.value+int32(n); b += 8 {
		if slot := s.slot(b); slot != nil {
			*slot = held{}
		}
	}
	if slot := s.slot(to.value); slot != nil && n == 8 {
		*slot = value
	}
}

// compute does arithmetic.
func (s *frames) compute(in asm.Instruction) {
	op := in.OpCode
	src := constant(in.Constant)
	if op.Source() == asm.RegSource {
		src = s.regs[in.Src]
	}
	dst := s.regs[in.Dst]
	wide := op.Class() == asm.ALU64Class
	switch {
	case op.ALUOp() == asm.Mov && (wide || src.kind == known || src.kind == upTo):
		s.regs[in.Dst] = src
	case wide && (op.ALUOp() == asm.Add || op.ALUOp() == asm.Sub):
		if op.ALUOp() == asm.Sub {
			src.value = -src.value
		}
		if src.kind >= place && op.ALUOp() == asm.Add {
			src, dst = dst, src
		}
		switch {
		case src.kind >= place:
			s.regs[in.Dst] = held{} // the distance of two addresses
		case (dst.kind == known || dst.kind >= place) && src.kind == known:
			dst.value += src.value
			s.regs[in.Dst] = dst
		case dst.kind >= place:
			s.regs[in.Dst] = held{around, dst.frame, dst.value}
		default:
			s.regs[in.Dst] = held{}
		}
	default:
		s.regs[in.Dst] = held{}
	}
}

// memories are the arguments of helpers that are memory: an argument, how many bytes it has or
// which argument says that, and whether the kernel writes there.
var memories = map[asm.BuiltinFunc][]struct {
	arg    asm.Register
	bytes  int
	size   asm.Register
	writes bool
}{
	asm.FnMapLookupElem: {{arg: asm.R2, bytes: 4}},
	asm.FnSkbStoreBytes: {{arg: asm.R3, size: asm.R4}},
	asm.FnSkbLoadBytes:  {{arg: asm.R3, size: asm.R4, writes: true}},
	asm.FnXdpLoadBytes:  {{arg: asm.R3, size: asm.R4, writes: true}},
	asm.FnSkcLookupTcp:  {{arg: asm.R2, size: asm.R3}},
	asm.FnSkLookupUdp:   {{arg: asm.R2, size: asm.R3}},
}

// call does what a call does.
func (w *walker) call(i, depth int, s *frames, reads func(at held, n int)) {
	in := w.flow.ins[i]
	args := [6]held{}
	copy(args[1:], s.regs[asm.R1:asm.R6])
	switch {
	case in.IsFunctionCall():
		to := w.symbols[in.Reference()]
		done := w.function(to, depth+1, args)
		done.needs.all(func(frame, at int) { reads(held{place, uint8(frame), int32(at)}, 1) })
		done.does.all(func(frame, at int) {
			s.write(held{place, uint8(frame), int32(at)}, 1, depth, held{})
		})
		w.given(i, to, args, reads)
	case in.Constant == int64(asm.FnLoop):
		j := i
		for !w.flow.ins[j].IsLoadOfFunctionPointer() {
			j--
		}
		done := w.function(w.symbols[w.flow.ins[j].Reference()], depth+1, [6]held{2: args[3]})
		done.needs.all(func(frame, at int) { reads(held{place, uint8(frame), int32(at)}, 1) })
		s.slots = [64]held{} // a round may have changed what it was given
	default:
		for _, m := range memories[asm.BuiltinFunc(in.Constant)] {
			at, n := args[m.arg], m.bytes
			if m.size != 0 {
				n = int(args[m.size].value)
				if k := args[m.size].kind; k != known && k != upTo {
					n = 1 // at least
				}
			}
			switch {
			case at.kind < place:
			case m.writes && (m.size == 0 || args[m.size].kind == known):
				s.write(at, n, depth, held{})
			case !m.writes:
				reads(at, n)
			}
		}
	}
	for r := range asm.R6 {
		s.regs[r] = held{}
	}
}

// given reads what a global function is given: verifiers before Linux 6.3 ask for all of it.
func (w *walker) given(_, to int, args [6]held, reads func(at held, n int)) {
	f := btf.FuncMetadata(&w.flow.ins[to])
	if f == nil || f.Linkage != btf.GlobalFunc {
		return
	}
	for i, p := range f.Type.(*btf.FuncProto).Params {
		pointer, ok := p.Type.(*btf.Pointer)
		if !ok || args[i+1].kind < place {
			continue
		}
		if n, err := btf.Sizeof(pointer.Target); err == nil {
			reads(args[i+1], n)
		}
	}
}
