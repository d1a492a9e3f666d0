package ruletree

import (
	"math/rand/v2"
	"testing"
)

// entriesOf calls f with each entry from a descriptor on, and with what follows its leaf.
func (p *Pool) entriesOf(d uint64, seen map[uint64]bool, f func(last, then uint64)) {
	if seen[d] {
		return
	}
	seen[d] = true
	if !isLeaf(d) {
		for k := range p.mask(d) + 1 {
			p.entriesOf(p.words.at(int(uint64(uint32(d))+k)), seen, f)
		}
		return
	}
	n, first, then := entryWords(p.bits), int(uint32(d)), uint64(0)
	if d&more != 0 {
		then = p.words.at(first - header)
		p.entriesOf(then, seen, f)
	}
	for i := range int(d >> countShift & countMask) {
		f(p.words.at(first+i*n+n-1), then)
	}
}

// behind are the results that are found from a descriptor on.
func (p *Pool) behind(d uint64) map[uint64]bool {
	found := map[uint64]bool{}
	if d != 0 {
		p.entriesOf(d, map[uint64]bool{}, func(last, _ uint64) { found[last>>resultShift] = true })
	}
	return found
}

// TestARuleNeedsWhatMayBeatIt: where a bit is clear no rule lies that has a lower result and a
// packet in common; where one is set there is such a rule, but where a search was given up.
func TestARuleNeedsWhatMayBeatIt(t *testing.T) {
	t.Logf("seed %d", seed)
	set, clear, givenUp := 0, 0, 0
	for n := range 60 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		width := []int{32, 128}[n%2]
		boxes := randomBoxes(rng, width, 1+rng.IntN(60))
		rules, _ := rulesOf(width, boxes)
		pool := NewPool(width, MaxResult)
		list := rules.distinct() // any parting of the rules is one
		groups := make([][]int32, min(len(list), 1+rng.IntN(maxTrees)))
		for i, r := range list {
			groups[i%len(groups)] = append(groups[i%len(groups)], r)
		}
		table := pool.build(rules, groups, usualCopies)
		// beaten reports whether one of the results is lower than the box's and may match with it.
		beaten := func(result uint64, by map[uint64]bool) bool {
			for other := range by {
				if other < result && common(rules, int32(result-1), int32(other-1)) {
					return true
				}
			}
			return false
		}
		for i, tr := range table.trees {
			pool.entriesOf(tr.root, map[uint64]bool{}, func(last, then uint64) {
				result, needs := last>>resultShift, last>>needShift&allNeeds
				asked := map[uint64]map[uint64]bool{needBehind: pool.behind(then)}
				for k := i + 1; k < len(table.trees); k++ {
					asked[needOf(k)] = pool.behind(table.trees[k].root)
				}
				for bit, results := range asked {
					switch want := beaten(result, results); {
					case want && needs&bit == 0:
						t.Fatalf("set %d, tree %d, result %d: bit %#x is clear", n, i, result, bit)
					case want:
						set++
					case needs&bit != 0:
						givenUp++
					case len(results) > 0:
						clear++
					}
				}
			})
		}
	}
	if set == 0 || clear == 0 || 4*givenUp > clear {
		t.Errorf("%d bits were set, %d clear, %d searches given up", set, clear, givenUp)
	}
}

// common reports whether two rules have a packet in common.
func common(s *ruleSet, a, b int32) bool {
	for f := range s.fields {
		if i, j := s.field(a, f), s.field(b, f); i.lo > j.hi || j.lo > i.hi {
			return false
		}
	}
	return true
}

// TestMatchesSpareTrees: of the packets of a generated set most that have a match walk no further.
func TestMatchesSpareTrees(t *testing.T) {
	boxes := generatedBoxes(t, "ipc", 10_000)
	table := NewPool(32, MaxResult).Add(boxes)
	if len(table.trees) < 2 {
		t.Fatalf("%d trees: the test is of several", len(table.trees))
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	matched, further := 0, 0
	for range 4000 {
		p := boxes[rng.IntN(len(boxes))].packet(rng)
		best := table.pool.walk(table.trees[0].root, &p, none)
		if best == none || best>>needBits <= table.trees[1].first {
			continue
		}
		matched++
		if best&(allNeeds&^needBehind) != 0 {
			further++
		}
	}
	if matched == 0 || 2*further > matched {
		t.Errorf("of %d packets with a match %d walk a further tree", matched, further)
	}
}
