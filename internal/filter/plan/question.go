package plan

import (
	"math"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// By is the way in which straight code asks a question.
type By uint8

const (
	InOrder By = iota // by compares, one element after the other
	Halving           // by compares that halve a sorted list
	InTable           // by a look-up
)

// Question is a condition as straight code asks it.
type Question struct {
	*ir.Cond
	By     By
	Lookup *Lookup // where By is InTable
	Cost   Cost    // without what a look-up's table takes
}

// Up to so many elements are compared one by one.
const (
	maxPrefixes = 4 // longer lists go to package prefix, which chooses a structure by size
	maxRanges   = 4
	maxHalving  = 8 // ranges that are found by halving; numbers of 8 bits stay with it
	maxPairs    = 6 // endpoints; longer lists go to a rule tree
)

// tableQuestions is the number of questions that a look-up of endpoints, or a rule tree, counts as
// against the bound of a function.
const tableQuestions = 64

// question says how a condition is asked.
func (p *planner) question(f ir.Family, c *ir.Cond) *Question {
	q := &Question{Cond: c, By: how(c)}
	if q.By == InTable {
		q.Lookup = p.lookup(f, c)
	}
	q.Cost.Instructions = p.sizeOf(f, c)
	return q
}

// how a condition is asked in straight code.
func how(c *ir.Cond) By {
	switch {
	case c.Dynamic(), len(c.Prefixes) > maxPrefixes, len(c.Pairs) > maxPairs:
		return InTable
	case len(c.Ranges) <= maxRanges:
		return InOrder
	case len(c.Ranges) > maxHalving && c.Field.Info().Max <= maxWide &&
		(wide(c.Field) || c.Ranges[len(c.Ranges)-1].Hi > math.MaxUint8):
		return InTable
	}
	return Halving
}

// maxWide is the highest value that a table of ranges holds. Lists of longer numbers, such as
// address suffixes, are found by halving.
const maxWide = 1<<48 - 1

// wide reports whether a field has more than 32 bits.
func wide(f field.Field) bool { return f.Info().Max > math.MaxUint32 }

// asks returns what the question counts for where a function may ask so many.
func (q *Question) asks() int {
	switch {
	case q.By == InTable && q.Pairs != nil:
		return tableQuestions
	case q.Pairs != nil:
		return 2 * len(q.Pairs)
	}
	return 1
}
