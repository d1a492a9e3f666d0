package prefix

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// Emit writes the look-up as straight code under the package's register contract. mapName is the
// name under which the map of MapSpec is loaded.
func (s *Static) Emit(b *assembler.Builder, mapName string) {
	e := &emitter{Builder: b, mapName: mapName, end: b.Fresh("prefix_end"), v4: s.width == 32}
	switch {
	case s.all:
		b.Emit(asm.Mov.Imm(asm.R0, 1))
		return
	case s.levels != nil:
		for i := range s.levels {
			next := e.end
			if last := i == len(s.levels)-1; !last {
				next = b.Fresh("prefix_level")
			}
			e.level(&s.levels[i], next, next == e.end)
		}
	case len(s.bounds) == 0:
		b.Emit(asm.Mov.Imm(asm.R0, 0))
		return
	default:
		e.tree(s.bounds)
	}
	b.Label(e.end)
	b.Emit(asm.And.Imm(asm.R0, 1)) // tells the verifier what the answer can be
}

// emitter writes one look-up.
type emitter struct {
	*assembler.Builder
	mapName string
	end     string // leave with R0 as it is
	v4      bool
}

// pointer sets dst to a place in the map.
func (e *emitter) pointer(dst asm.Register, offset int) {
	e.Emit(asm.LoadMapValue(dst, 0, uint32(offset)).WithReference(e.mapName))
}

// bitsOf sets dst to the bits [from, to) of the address, right-aligned; to-from is at most 64, and
// at most 64 of them are in one word. For IPv4 the move of 32 bits also tells the verifier the
// bound.
func (e *emitter) bitsOf(dst asm.Register, from, to int) {
	src, width := asm.R1, 64
	if e.v4 {
		e.Emit(asm.Mov.Reg32(dst, asm.R1))
		width = 32
	} else {
		if to > 64 {
			src, from, to = asm.R2, max(from-64, 0), to-64
		}
		e.Emit(asm.Mov.Reg(dst, src))
	}
	if to < width {
		e.Emit(asm.RSh.Imm(dst, int32(width-to)))
	}
	if from > 0 {
		e.Emit(asm.And.Imm(dst, int32(1<<(to-from)-1)))
	}
}

// level looks into one level: on a hit it leaves with R0 = 1, on a miss it goes on at next. The
// last level leaves with R0 = 0 instead.
func (e *emitter) level(l *level, next string, last bool) {
	if l.direct {
		e.bitsOf(asm.R3, 0, l.key())
		e.Emit(asm.LSh.Imm(asm.R3, 3))
		e.pointer(asm.R5, l.data)
		e.Emit(
			asm.Add.Reg(asm.R5, asm.R3),
			asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord),
		)
	} else {
		e.bitsOf(asm.R3, 0, min(l.key(), 64))
		e.hash(l)
		e.slot(l)
		e.compare(l, next, last)
	}
	if l.span > 0 {
		e.bitsOf(asm.R3, l.key(), l.top)
		e.Emit(asm.RSh.Reg(asm.R0, asm.R3), asm.And.Imm(asm.R0, 1))
	}
	if !last {
		e.Emit(asm.JNE.Imm(asm.R0, 0, e.end))
		e.Label(next)
	}
}

// hash leaves the hash of the key (first word in R3) in R4, as func hash does.
func (e *emitter) hash(l *level) {
	m := multiplier(l.seed)
	fold := asm.Instructions{
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, 32),
		asm.Xor.Reg(asm.R4, asm.R0),
	}
	times := func(m uint64) {
		e.Emit(asm.LoadImm(asm.R0, int64(m), asm.DWord), asm.Mul.Reg(asm.R4, asm.R0))
	}
	e.Emit(asm.Mov.Reg(asm.R4, asm.R3))
	times(m)
	if l.wide {
		e.Emit(fold...)
		e.bitsOf(asm.R0, 64, l.key())
		e.Emit(asm.Add.Reg(asm.R4, asm.R0))
		times(mul3)
	}
	e.Emit(fold...)
	times(mul2)
}

// slot turns the hash in R4 into the address of its slot in R5. The verifier follows the bounds: a
// number of 32 bits times slots, shifted right by 32, is below slots.
func (e *emitter) slot(l *level) {
	e.Emit(
		asm.Mov.Reg(asm.R0, asm.R4),
		asm.RSh.Imm(asm.R0, int32(64-l.logDisp)),
		asm.LSh.Imm(asm.R0, 1),
	)
	e.pointer(asm.R5, l.disp)
	d := uint32(mulD)
	e.Emit(
		asm.Add.Reg(asm.R5, asm.R0),
		asm.LoadMem(asm.R0, asm.R5, 0, asm.Half),
		asm.Mul.Imm32(asm.R0, int32(d)),
		asm.Add.Reg32(asm.R4, asm.R0),
		asm.Mul.Imm(asm.R4, int32(l.slots)),
		asm.RSh.Imm(asm.R4, 32),
		asm.Mul.Imm(asm.R4, int32(l.size)),
	)
	e.pointer(asm.R5, l.data)
	e.Emit(asm.Add.Reg(asm.R5, asm.R4))
}

// compare goes to next unless the slot at R5 holds the key (first word in R3); then R0 is the
// bitmap, or 1 where there is none.
func (e *emitter) compare(l *level, next string, last bool) {
	if last {
		e.Emit(asm.Mov.Imm(asm.R0, 0)) // for the way out
	}
	if l.span > 0 && l.size == 8 { // key over bitmap in one word
		e.Emit(
			asm.LoadMem(asm.R4, asm.R5, 0, asm.DWord),
			asm.Mov.Reg(asm.R5, asm.R4),
			asm.RSh.Imm(asm.R5, 32),
			asm.JNE.Reg(asm.R5, asm.R3, next),
			asm.Mov.Reg(asm.R0, asm.R4),
		)
		return
	}
	word := asm.DWord
	if l.size == 4 {
		word = asm.Word
	}
	e.Emit(
		asm.LoadMem(asm.R4, asm.R5, 0, word),
		asm.JNE.Reg(asm.R4, asm.R3, next),
	)
	if l.wide {
		e.bitsOf(asm.R3, 64, l.key())
		e.Emit(
			asm.LoadMem(asm.R4, asm.R5, 8, asm.DWord),
			asm.JNE.Reg(asm.R4, asm.R3, next),
		)
	}
	if l.span == 0 {
		e.Emit(asm.Mov.Imm(asm.R0, 1))
		return
	}
	e.Emit(asm.LoadMem(asm.R0, asm.R5, int16(l.size-8), asm.DWord))
}

// tree searches the bounds by halves with immediate operands. An address with an odd number of
// bounds at or before it is a member.
func (e *emitter) tree(bounds []bound) {
	in := e.Fresh("prefix_in")
	leaf := func(n int) string {
		if n%2 == 1 {
			return in
		}
		return e.end
	}
	var search func(lo, hi int)
	search = func(lo, hi int) { // between lo and hi bounds are at or before the address
		if lo == hi {
			e.Emit(asm.Ja.Label(leaf(lo)))
			return
		}
		mid := (lo + hi) / 2
		right := leaf(hi)
		if mid+1 < hi {
			right = e.Fresh("prefix_right")
		}
		e.atLeast(bounds[mid], right)
		search(lo, mid)
		if mid+1 < hi {
			e.Label(right)
			search(mid+1, hi)
		}
	}
	e.Emit(asm.Mov.Imm(asm.R0, 0))
	search(0, len(bounds))
	e.Label(in)
	e.Emit(asm.Mov.Imm(asm.R0, 1))
}

// atLeast jumps if the address is at or behind b.
func (e *emitter) atLeast(b bound, to string) {
	if e.v4 {
		e.Emit(asm.JGE.Imm32(asm.R1, int32(uint32(b.hi>>32)), to))
		return
	}
	e.Emit(asm.LoadImm(asm.R3, int64(b.hi), asm.DWord))
	if b.lo == 0 {
		e.Emit(asm.JGE.Reg(asm.R1, asm.R3, to))
		return
	}
	below := e.Fresh("prefix_below")
	e.Emit(
		asm.JGT.Reg(asm.R1, asm.R3, to),
		asm.JLT.Reg(asm.R1, asm.R3, below),
		asm.LoadImm(asm.R3, int64(b.lo), asm.DWord),
		asm.JGE.Reg(asm.R2, asm.R3, to),
	)
	e.Label(below)
}
