package signature

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFrequentValuesAreThoseOfACount of all, whatever the order is and however many others there
// are.
func TestFrequentValuesAreThoseOfACount(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 39))
	for round := range 400 {
		var all []uint32
		for v := range uint32(1 + r.IntN(30)) {
			for range r.IntN(1 + r.IntN(200)) {
				all = append(all, v)
			}
		}
		for range r.IntN(2000) {
			all = append(all, r.Uint32())
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		counts := map[uint32]int{}
		for _, v := range all {
			counts[v]++
		}
		sorted := slices.SortedFunc(maps.Keys(counts), func(a, b uint32) int {
			return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
		})
		want := map[uint32]int{}
		for v, n := range counts {
			if float64(n) >= fewest*float64(len(all)) {
				want[v] = n
			}
		}
		got := map[uint32]int{}
		for _, c := range frequent(all, fewest) {
			got[c.value] = c.n
		}
		if !maps.Equal(got, want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
		for _, most := range []int{1, 3, listed, 5000} {
			if got := top(counts, most); !slices.Equal(got, sorted[:min(most, len(sorted))]) {
				t.Fatalf("round %d: the first %d are %v of %v", round, most, got, counts)
			}
		}
		var fewest []uint32
		for i, sum := 0, 0; i < min(listed, len(sorted)); i++ {
			if sum += counts[sorted[i]]; i > 0 && float64(sum) >= 0.5*float64(len(all)) {
				fewest = sorted[:i+1]
				break
			}
		}
		if got := nearlyAll(all, 2, listed, 0.5, cmp.Compare[uint32]); !slices.Equal(got, fewest) {
			t.Fatalf("round %d: half are %v, want %v", round, got, fewest)
		}
	}
}
