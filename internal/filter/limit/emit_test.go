package limit

import (
	"testing"

	"levee/internal/filter/assembler"
	"levee/internal/lang/policy"
)

func TestFunctionsAreNoLongerThanStated(t *testing.T) {
	for _, by := range []string{"", "by source", "by source, source/24 x2",
		"by source, source/24 x2, source/16 x4"} {
		for _, rate := range []string{"100/s", "1mbit/s burst 1MB", "90/m burst 900"} {
			rule := "limit rate " + rate + " " + by
			p, ds := policy.Parse("test.levee", []byte(rule+"\ndefault pass\n"), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			l := p.Rules[0].Limit
			f := &Function{Builder: assembler.New(), Limit: l, Map: "budgets", HZ: 250}
			f.Emit("limit")
			n := 0
			for _, in := range f.MustFinish() {
				n += int(in.Size()) / 8
			}
			if most := MaxInstructions(l); n > most || by != "" && n < most*9/10 {
				t.Errorf("%s: %d instructions, stated are %d", rule, n, most)
			}
		}
	}
}
