package lookup

import (
	"testing"

	"levee/internal/bench"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// A round of the loop began its sum with zero once: a look-up in eight waited for nothing, and
// rounds overlapped. A load from 2 MB seemed to take 6.6 ns instead of 17.6, one from 64 MB 74
// instead of 181.
func TestAChainGoesOnFromRoundToRound(t *testing.T) {
	b := assembler.New()
	lookups(b, nil, true)
	body := b.MustFinish()
	loaded, stored := -1, -1
	for i, ins := range body {
		class := ins.OpCode.Class()
		switch {
		case ins.Dst == asm.R7 && class == asm.LdXClass:
			loaded = i
		case ins.Src == asm.R7 && class == asm.StXClass:
			stored = i
		case ins.Dst == asm.R7 && ins.OpCode.ALUOp() == asm.Mov:
			t.Errorf("instruction %d sets the sum anew: %v", i, ins)
		}
	}
	if loaded < 0 || stored <= loaded {
		t.Errorf("the sum is loaded at %d and stored at %d: a round does not go on from the "+
			"one before", loaded, stored)
	}
}

func TestAMultipleOfNothingIsNotPrinted(t *testing.T) {
	at := func(median, low, high float64) []*Timing {
		return []*Timing{{Stream: &bench.Figure{Median: median, Interval: [2]float64{low, high}}}}
	}
	for _, c := range []struct {
		levee []*Timing
		times float64
	}{
		{at(2, 1, 4), 50},
		{at(0.1, -0.3, 0.4), 0}, // 1,000 times as long, it said
	} {
		trie := &Result{Lookups: at(100, 80, 120)}
		compareToLevee([]*Result{{Name: Structures[0].Name, Lookups: c.levee}, trie})
		l := trie.Lookups[0]
		if l.TimesLevee != c.times || (l.TimesLeveeInterval != nil) != (c.times != 0) {
			t.Errorf("%+v times %+v: %g, %v", l.Stream, c.levee[0].Stream, l.TimesLevee,
				l.TimesLeveeInterval)
		}
		if i := l.TimesLeveeInterval; i != nil && *i != [2]float64{20, 120} {
			t.Errorf("interval %v, want 20 to 120", *i)
		}
	}
}
