package ruletree

import "slices"

// A match says where a better one may be. What a rule needs is a bit for what follows its leaf, and
// one for each tree of the table behind its own: it is clear where no rule with a lower result has
// a packet in common with it. A packet that the rule matches has not to go there.
const (
	needBits   = 4
	needBehind = 1 << 0
	allNeeds   = 1<<needBits - 1
)

// needOf returns the bit of a tree of the table; the first is walked by all.
func needOf(tree int) uint64 { return 1 << tree }

const _ = uint(needBits - maxTrees)

// Bounds of the work of searches for better matches, in children and entries looked at. One search
// looks at most at maxSearch, or at fewSearch once all searches of a table together have looked at
// searchPerRule for each of its rules. A search that is cut short answers that there may be a
// better match.
const (
	maxSearch     = 1 << 11
	fewSearch     = 1 << 6
	searchPerRule = 1 << 7
)

// search asks whether a tree has a better match for a packet that a rule matches.
type search struct {
	pool   *Pool
	rule   []uint64 // its bounds
	result uint64
	work   int
	behind []uint64 // what followed leaves and has been searched
}

// beats reports whether something from a descriptor on may match a packet that the rule matches,
// with a lower result.
func (b *builder) beats(d uint64, rule int32) bool {
	s, work := &b.search, max(fewSearch, min(maxSearch, b.searches))
	*s = search{b.pool, b.of(rule), b.result(rule), work, s.behind[:0]}
	beaten := s.from(d)
	b.searches -= work - max(0, s.work)
	return beaten
}

func (s *search) from(d uint64) bool {
	p := s.pool
	for isLeaf(d) {
		if d>>rankShift&(1<<rankBits-1) > s.result>>p.scale {
			return false
		}
		n, first := entryWords(p.bits), int(uint32(d))
		for i := range int(d >> countShift & countMask) {
			at := first + i*n
			if p.words.at(at+n-1)>>resultShift >= s.result {
				break
			}
			if s.work--; s.work < 0 || p.meets(at, s.rule) {
				return true
			}
		}
		if d&more == 0 || p.words.at(first-1)>>needBits >= s.result {
			return false
		}
		d = p.words.at(first - header)
		if slices.Contains(s.behind, d) {
			return false
		}
		s.behind = append(s.behind, d)
	}
	field, shift := fieldOf(p.bits, d)
	lo, hi, mask := s.rule[2*field]>>shift, s.rule[2*field+1]>>shift, p.mask(d)
	n := min(hi-lo, mask)
	last := uint64(nothing)
	for k := range n + 1 {
		if s.work--; s.work < 0 {
			return true
		}
		child := p.words.at(int(uint64(uint32(d)) + (lo+k)&mask))
		if child != last && s.from(child) {
			return true
		}
		last = child
	}
	return false
}

// fieldOf returns the field that a node divides, and by how many bits it is shifted.
func fieldOf(width int, d uint64) (field, shift int) {
	code, by := int(d>>codeShift&codeMask), int(d>>bitsShift&bitsMask)
	switch {
	case code == portCode(width) && by >= 16:
		return port0, by - 16
	case code == portCode(width):
		return port1, by
	case width == 128:
		return [...]int{src, srcLo, dst, dstLo}[code], by
	case by >= 32:
		return src, by - 32
	}
	return dst, by
}

// meets reports whether a rule has a packet in common with an entry.
func (p *Pool) meets(entry int, rule []uint64) bool {
	overlap := func(field int, lo, hi uint64) bool {
		return lo <= rule[2*field+1] && rule[2*field] <= hi
	}
	word := func(n int) uint64 { return p.words.at(entry + n) }
	var ports uint64
	if p.bits == 32 {
		last := word(1)
		from, to := word(0)>>32, uint64(uint32(word(0)))
		if !overlap(src, from, from|(1<<(last&(1<<openBits-1))-1)) ||
			!overlap(dst, to, to|(1<<(last>>openBits&(1<<openBits-1))-1)) {
			return false
		}
		ports = p.pairs.words[last>>pairShift&(1<<pairBits-1)]
	} else {
		for i, f := range [...]int{src, srcLo, dst, dstLo} {
			if !overlap(f, word(i), word(i)|^word(4+i)) {
				return false
			}
		}
		ports = word(entry6 - 2)
	}
	for _, f := range [...]int{port0, port1} {
		if lo := ports & 0xffff; !overlap(f, lo, lo+ports>>16&0xffff) {
			return false
		}
		ports >>= 32
	}
	return true
}

// needs returns what a rule needs in a leaf in front of what follows that.
func (b *builder) needs(rule int32, then after) uint64 {
	const asked = 1 << 7
	if b.later[rule] == 0 {
		b.later[rule] = asked
		for i := b.number + 1; i < len(b.table.trees); i++ {
			if tr := &b.table.trees[i]; tr.first < b.result(rule) && b.beats(tr.root, rule) {
				b.later[rule] |= uint8(needOf(i))
			}
		}
	}
	needs := uint64(b.later[rule] &^ asked)
	if then.d != 0 && then.first < b.result(rule) && b.beats(then.d, rule) {
		needs |= needBehind
	}
	return needs
}
