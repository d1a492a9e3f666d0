package difftest

import (
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
)

// TestEachMemoryIsDrawn: what no generated policy remembers is compared with the oracle nowhere.
// One that is drawn, and that the oracle does not model, makes comparisons fail.
func TestEachMemoryIsDrawn(t *testing.T) {
	drawn := map[string]int{}
	for seed := range uint64(300) {
		p, ds := compile(seed, Generate(seed))
		if ds.HasErrors() {
			continue
		}
		lowered := ir.Build(p)
		for _, shadow := range []plan.Judged{{}, {RowBytes: 64, Slots: 1}} {
			made, err := plan.New(lowered, plan.Target{Shadow: shadow})
			if err != nil {
				continue
			}
			for _, row := range made.State.In() {
				drawn[row.Name]++
			}
		}
	}
	for i := range state.Table {
		if name := state.Table[i].Name; drawn[name] < 5 {
			t.Errorf("%d of 300 policies have %s", drawn[name], name)
		}
	}
	t.Log(drawn)
}
