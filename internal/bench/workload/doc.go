// Package workload draws the inputs of measurements: tables of prefixes as they are in Internet
// routing, rule sets as they are in access lists and firewalls, and the packets that go with them.
//
// In go a size and a seed, out come prefixes, rules, addresses and packet headers; the same seed
// gives the same output on every machine. Distributions are published ones (tables.go says whose).
// Real tables and rule sets are read from files in their published forms.
//
// The package is pure: it must never touch the machine, and its output depends on its input alone.
package workload

import (
	"math/rand/v2"
	"sort"
)

// Largest sizes that are drawn.
const (
	MaxPrefixes = 1_000_000
	MaxRules    = 100_000
)

// stream returns a source of randomness of its own for each purpose, so that more of one thing does
// not change another.
func stream(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// weighted draws an index with the probability of its weight.
type weighted struct {
	sums  []int
	total int
}

func newWeighted(weights []int) weighted {
	w := weighted{sums: make([]int, len(weights))}
	for i, n := range weights {
		w.total += n
		w.sums[i] = w.total
	}
	return w
}

func (w weighted) draw(r *rand.Rand) int {
	x := r.IntN(w.total)
	return sort.Search(len(w.sums), func(i int) bool { return w.sums[i] > x })
}
