package ruletree

import "slices"

// counter counts in how many segments of a window, neighbouring children with the same rules, rules
// are. Numbers of children and of segments are below 1<<maxBits.
type counter struct {
	spanOf []span // of the rules, in children of the finest window
	// number of the segment that a child belongs to; behind the last child, as if there were one
	segment  []uint16
	in       []segments
	segments int
	copies   int     // sum over all rules
	scratch  []int32 // of who asks
}

// span is a row of children.
type span struct{ first, last uint16 }

// segments are those that a rule is in, and the one of the child in its middle.
type segments struct{ first, last, middle uint16 }

func (s segments) copies() int32 { return int32(s.last) - int32(s.first) + 1 }

// resize gives n elements of a slice that grows when needed. What they hold is left from before.
func resize[T any](s *[]T, n int) []T {
	*s = slices.Grow((*s)[:0], n)[:n]
	return *s
}

// spans finds the children of a window that the rules fall into.
func (c *counter) spans(s *ruleSet, w window, rules []int32) {
	spanOf := resize(&c.spanOf, len(rules))
	for x, r := range rules {
		spanOf[x] = w.span(s.field(r, w.field))
	}
}

// count numbers the segments of a window of so many bits, which is coarser than that of spans by so
// many, and finds those of the rules.
func (c *counter) count(bits, coarser int) {
	segment := resize(&c.segment, 1<<bits+1)
	clear(segment)
	for _, s := range c.spanOf {
		segment[s.first>>coarser] = 1
		segment[s.last>>coarser+1] = 1
	}
	n := uint16(0)
	segment[0] = 0
	for k, begins := range segment {
		n += begins
		segment[k] = n
	}
	c.segments = int(segment[1<<bits-1]) + 1
	c.copies = 0
	in := resize(&c.in, len(c.spanOf))
	for x, s := range c.spanOf {
		first, last := s.first>>coarser, s.last>>coarser
		i := segments{segment[first], segment[last], segment[(first+last)/2]}
		in[x] = i
		c.copies += int(i.copies())
	}
}
