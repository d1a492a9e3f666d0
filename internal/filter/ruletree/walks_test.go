package ruletree

import (
	"math/rand/v2"
	"testing"

	"levee/internal/filter/price"
)

// TestSamplesGoWhereLookUpsGo: what is counted is what look-ups do, whose answers it gives.
func TestSamplesGoWhereLookUpsGo(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		width := []int{32, 128}[seed%2]
		boxes := randomBoxes(rng, width, 1+rng.IntN(600))
		table := NewPool(width, MaxResult).Add(boxes)
		for _, inPlace := range []bool{true, false} {
			s := table.sampler()
			s.inPlace = inPlace
			for n := range 500 {
				p := packetIn(rng, &boxes[rng.IntN(len(boxes))])
				if got, want := s.lookUp(&p), table.Lookup(p); got != want {
					t.Fatalf("seed %d, packet %d %+v: %d, want %d", seed, n, p, got, want)
				}
			}
		}
	}
}

func TestAnEstimateTellsWhatATableHolds(t *testing.T) {
	of := func(n int) *Table { return NewPool(32, MaxResult).Add(generatedBoxes(t, "ipc", n)) }
	small, large := of(300), of(10_000)
	ns := func(t *Table, bytes int) float64 { return t.Matched.Time(bytes).On(price.Default) }
	if a, b := ns(small, small.Bytes()), ns(large, large.Bytes()); a <= 0 || b < 1.2*a {
		t.Errorf("300 rules take %.1f ns, 10,000 %.1f", a, b)
	}
	if a, b := ns(large, 1<<16), ns(large, 1<<26); b <= a {
		t.Errorf("in 64 KB of memory %.1f ns, in 64 MB %.1f", a, b)
	}
	for _, w := range []*Walks{&small.Matched, &small.Strange, &large.Matched, &large.Strange} {
		least, all := w.Least().On(price.Default), w.Time(1<<20).On(price.Default)
		if least <= 0 || all < least {
			t.Errorf("%.1f ns, of packets alike %.1f", all, least)
		}
	}
	if again := of(300); again.Matched != small.Matched || again.Strange != small.Strange {
		t.Error("the same boxes are estimated differently")
	}
}

// TestTablesAreBuiltAsPacketsTakeLeast: no way to build a table is estimated to take less than the
// one that is kept.
func TestTablesAreBuiltAsPacketsTakeLeast(t *testing.T) {
	took := func(table *Table) float64 {
		w := table.Matched
		w.add(&table.Strange, strangers)
		return w.Time(2 * table.Bytes()).On(price.Default)
	}
	kept := map[way]bool{}
	for _, shape := range []string{"acl", "fw", "ipc"} {
		for _, n := range []int{2000, 8000} {
			boxes := generatedBoxes(t, shape, n)
			got := NewPool(32, MaxResult).Add(boxes)
			rules, _ := rulesOf(32, boxes)
			list, most := rules.distinct(), 0.0
			ways := []way{{partings[0], usualCopies}}
			for _, by := range partings {
				if len(boxes) > fewRules {
					ways = append(ways, way{by, fewCopies})
				} else {
					ways = append(ways, way{by, usualCopies})
				}
			}
			for i, w := range ways {
				pool := newPool(32, got.pool.scale)
				table := pool.build(rules, rules.split(list, w.parting), w.copies)
				table.Matched, table.Strange = table.sample(boxes)
				if i == 0 {
					most = moreMemory * float64(table.Bytes())
				}
				if took(table) < took(got) && float64(table.Bytes()) <= most {
					t.Errorf("%d %s: %.1f ns, with %+v %.1f", n, shape, took(got), w, took(table))
				}
				if took(table) == took(got) {
					kept[w] = true
				}
			}
		}
	}
	if len(kept) < 3 {
		t.Errorf("of the ways only %v are kept", kept)
	}
}
