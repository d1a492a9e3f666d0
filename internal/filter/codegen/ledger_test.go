package codegen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/plan"
	"levee/internal/filter/state"
	"levee/internal/lang/resolve"
)

// Every map of a program is in its ledger, once, and no two hold the same.
func TestLedgerListsEveryMap(t *testing.T) {
	var many strings.Builder
	for i := range plan.MaxOwn + 1 {
		of := [...]string{"addresses", "endpoints", "services"}[i%3]
		fmt.Fprintf(&many, "set s%d = dynamic(of %s, max %d)\ndrop to s%[1]d\n", i, of, 10<<(i%4))
	}
	for name, c := range map[string]struct {
		text   string
		target Target
		want   []MapUse
	}{
		"one set, on trial": {
			"set a = dynamic(of services, max 10)\nset b = { 10.0.0.0/9, 10.128.0.0/10, " +
				"11.0.0.0/8, 12.0.0.0/8, 14.0.0.0/8, 16.0.0.0/9 }\n" +
				"drop to a\ndrop from b\ndefault pass\n",
			Target{Trial: true, Trace: true},
			[]MapUse{
				{"capture", Identity{What: state.HoldsCapture}, Pinned},
				{"counters", Identity{What: Counters}, Pinned},
				{"previous", Identity{What: Previous}, Pinned},
				{"set_a", Identity{What: DynamicSet, Name: "a", Kind: "services"}, Carried},
				{"tables", Identity{What: Tables, Name: "tables"}, Private},
				{"trace", Identity{What: LastSlot}, Private},
				{"trial", Identity{What: Deadline}, Pinned},
			},
		},
		"sets that share maps": {
			many.String() + "default pass\n",
			Target{},
			[]MapUse{
				{"capture", Identity{What: state.HoldsCapture}, Pinned},
				{"counters", Identity{What: Counters}, Pinned},
				{"sets_addresses_128", Identity{What: DynamicSets, Name: "sets_addresses_128"},
					Pinned},
				{"sets_addresses_64", Identity{What: DynamicSets, Name: "sets_addresses_64"},
					Pinned},
				{"sets_endpoints_128", Identity{What: DynamicSets, Name: "sets_endpoints_128"},
					Pinned},
				{"sets_endpoints_64", Identity{What: DynamicSets, Name: "sets_endpoints_64"},
					Pinned},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, ds := resolve.Parse("test.levee", []byte(c.text), nil)
			if ds.HasErrors() {
				t.Fatal(ds)
			}
			prog, err := Compile(p, c.target)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Clone(prog.Maps)
			slices.SortFunc(got, func(a, b MapUse) int { return strings.Compare(a.Name, b.Name) })
			if !slices.Equal(got, c.want) {
				t.Errorf("ledger %+v\nwant %+v", got, c.want)
			}
			if len(prog.Maps) != len(prog.Spec.Maps) {
				t.Errorf("%d maps in the ledger, %d in the program", len(prog.Maps),
					len(prog.Spec.Maps))
			}
			seen := map[Identity]bool{}
			for _, m := range prog.Maps {
				if spec := prog.Spec.Maps[m.Name]; spec == nil || spec.Name != m.Name ||
					seen[m.Holds] {
					t.Errorf("%+v: %+v, the same as another %v", m, spec, seen[m.Holds])
				}
				seen[m.Holds] = true
			}
		})
	}
}
