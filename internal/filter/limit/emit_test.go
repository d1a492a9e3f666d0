package limit

import (
	"testing"

	"levee/internal/filter/assembler"
	"levee/internal/lang/resolve"
)

func TestFunctionsAreNoLongerThanStated(t *testing.T) {
	for _, by := range []string{"", "by source", "by source, source/24 x2",
		"by source, source/24 x2, source/16 x4"} {
		for _, rate := range []string{"100/s", "1mbit/s burst 1MB", "90/m burst 900"} {
			rule := "limit rate " + rate + " " + by
			p, ds := resolve.Parse("test.levee", []byte(rule+"\ndefault pass\n"), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			l := p.Rules[0].Limit
			f := &Function{Builder: assembler.New(), Limit: l, Map: "budgets", HZ: 250}
			f.Emit()
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

func TestFunctionsOfManyRatesAreNoLongerThanStated(t *testing.T) {
	for _, rates := range []string{"10.0.0.0/8 1/s", "2001:db8::/32 1mbit/s",
		"2001:db8::/32 1/s, 2001:db8::/33 1/s, 2001:db8::/34 1/s, 10.0.0.0/8 1/s, 10.0.0.1 2/s"} {
		for _, by := range []string{"", " by source", " by source, port"} {
			rule := "limit udp rate to { " + rates + " }" + by
			p, ds := resolve.Parse("test.levee", []byte(rule+"\ndefault pass\n"), nil)
			if ds.HasErrors() {
				t.Fatal(ds.Err())
			}
			l := p.Rules[0].Limit
			var of Families
			for _, six := range []bool{false, true} {
				if all := tableOf(l); len(all.starts(six)) > 1 {
					of.Add(six)
				}
			}
			f := &Function{Builder: assembler.New(), Limit: l, Map: "budgets", HZ: 250,
				Families: of}
			f.Emit()
			n := 0
			for _, in := range f.MustFinish() {
				n += int(in.Size()) / 8
			}
			if most := Functions(l, of) * MaxInstructions(l); n > most || n < most*7/10 {
				t.Errorf("%s: %d instructions, stated are %d", rule, n, most)
			}
		}
	}
}
