package ruletree

import (
	"math/bits"
	"slices"
)

// counter counts in how many segments of a window, neighbouring children with the same rules, rules
// are. Numbers of children and of segments are below 1<<maxBits.
type counter struct {
	spanOf   []span  // of the rules, in children of the finest window
	rules    []int32 // how many of the rules each of them stands for
	met      [1 << metBits]int32
	begins   []begins
	in       []segments // of spanOf
	segments int
	copies   int     // sum over all rules
	scratch  []int32 // of who asks
}

// span is a row of children.
type span struct{ first, last uint16 }

// segments are those that a rule is in, and the one of the child in its middle.
type segments struct{ first, last, middle uint16 }

func (s segments) copies() int32 { return int32(s.last) - int32(s.first) + 1 }

// begins says which of 64 children begin a segment other than the first, and how many of those
// before them do.
type begins struct {
	children uint64
	before   uint16
}

// resize gives n elements of a slice that grows when needed. What they hold is left from before.
func resize[T any](s *[]T, n int) []T {
	*s = slices.Grow((*s)[:0], n)[:n]
	return *s
}

// spans finds the children of a window that the rules fall into.
func (c *counter) spans(s *ruleSet, w window, rules []int32) {
	spanOf, each := resize(&c.spanOf, len(rules)), resize(&c.rules, len(rules))
	for x, r := range rules {
		spanOf[x], each[x] = w.span(s.field(r, w.field)), 1
	}
}

// metBits is the logarithm of how many spans merge remembers.
const metBits = 11

// merge has one span stand for rules with equal ones, of which there are many, where it remembers
// them. What met holds of other windows is only a guess that fails.
func (c *counter) merge() {
	n := 0
	for _, s := range c.spanOf {
		// 2^32 divided by the golden ratio, as in hashOf
		met := &c.met[(uint32(s.first)<<16|uint32(s.last))*0x9e3779b1>>(32-metBits)]
		if k := int(*met); k < n && c.spanOf[k] == s {
			c.rules[k]++
			continue
		}
		c.spanOf[n], *met = s, int32(n)
		n++
	}
	c.spanOf, c.rules = c.spanOf[:n], c.rules[:n]
}

// count numbers the segments of a window of so many bits, which is coarser than that of spans by so
// many, and finds those of the rules.
func (c *counter) count(width, coarser int) {
	begin := resize(&c.begins, 1<<width/64+1)
	clear(begin)
	for _, s := range c.spanOf {
		first, end := s.first>>coarser, s.last>>coarser+1
		begin[first/64].children |= 1 << (first % 64)
		begin[end/64].children |= 1 << (end % 64)
	}
	begin[0].children &^= 1
	for i := range begin[1:] {
		begin[i+1].before = begin[i].before + uint16(bits.OnesCount64(begin[i].children))
	}
	segment := func(child uint16) uint16 {
		b := &begin[child/64]
		return b.before + uint16(bits.OnesCount64(b.children&(2<<(child%64)-1)))
	}
	c.segments = int(segment(1<<width-1)) + 1
	c.copies = 0
	in := resize(&c.in, len(c.spanOf))
	for x, s := range c.spanOf {
		first, last := s.first>>coarser, s.last>>coarser
		i := segments{segment(first), segment(last), segment((first + last) / 2)}
		in[x] = i
		c.copies += int(i.copies()) * int(c.rules[x])
	}
}

// ends lists the children before which the segments of a window of so many bits end.
func (c *counter) ends(width int, out []int32) {
	s := 0
	for i, b := range c.begins {
		for left := b.children; left != 0; left &= left - 1 {
			if k := int32(64*i + bits.TrailingZeros64(left)); k < 1<<width {
				out[s] = k
				s++
			}
		}
	}
	out[s] = 1 << width
}
