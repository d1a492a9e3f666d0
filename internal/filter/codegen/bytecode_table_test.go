package codegen

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What is shared is found again, also where it lies in two pieces, and comes out in order.
func TestTablesShareWhatTheyHave(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	var words table[uint64]
	var known shared
	var all []uint64
	at := map[int][]uint64{}
	for len(all) < 3*pieceSize {
		run := make([]uint64, r.IntN(pieceSize/3))
		for i := range run {
			run[i] = r.Uint64()
		}
		n := share(&words, &known, run)
		if len(run) > 0 && n != len(all) {
			t.Fatalf("seed %d: %d new words at %d, want %d", seed, len(run), n, len(all))
		}
		all = append(all, run...)
		at[n] = run
		for first, run := range at {
			if len(run) > 0 && share(&words, &known, slices.Clone(run)) != first {
				t.Fatalf("seed %d: the words at %d are not found", seed, first)
			}
		}
	}
	var out []uint64
	words.drain(func(piece []uint64) { out = append(out, piece...) })
	if !slices.Equal(all, out) {
		t.Errorf("seed %d: %d words came out otherwise than %d went in", seed, len(out), len(all))
	}
}
