package difftest

import (
	"testing"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
)

// beside are memories that the oracle does not model, since no verdict depends on them.
var beside = map[string]string{
	"samples":    "it is called with what was decided",
	"logs":       "the oracle counts a rule that logs; tests of watching hold events to packets",
	"diversions": "the oracle passes the packet, and askRefuser knows of whom",
	"rings":      "who reads is no matter of the policy: the verdict is that it was redirected",
	"shadow":     "each policy has an oracle of its own",
}

// TestEachMemoryHasAModel: a row that is new needs one in the oracle, of which generated packets
// fill something.
func TestEachMemoryHasAModel(t *testing.T) {
	t.Parallel()
	filled := map[string]int{}
	for seed := range uint64(40) {
		p, ds := compile(seed, Generate(seed))
		if ds.HasErrors() {
			continue
		}
		stats, err := Compare(t.Context(), Case{Policy: p, Seed: seed, Frames: 600}, hears{})
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range stats.Remembered {
			if filled[name] += 0; n > 0 {
				filled[name]++
			}
		}
	}
	for i := range state.Table {
		name := state.Table[i].Name
		if n, is := filled[name]; is == (beside[name] != "") || is && n < 2 {
			t.Errorf("the oracle has no model of %s, or nothing comes there: %d of 40 policies",
				name, n)
		}
		delete(filled, name)
	}
	if len(filled) > 0 {
		t.Errorf("the oracle models what is no row: %v", filled)
	}
	t.Log(filled)
}

// hears is an engine to which frames come, and leave, at some time, and that judges none.
type hears struct{}

func (hears) Eval([]byte) (int, action.Action, error) { return 0, action.Drop, errNotRun }
func (hears) Leave([]byte) error                      { return nil }
func (hears) Time() (jiffies, hz uint64)              { return 1 << 33, 250 }
func (hears) SetTime(uint64)                          {}

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
