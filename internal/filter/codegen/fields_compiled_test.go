package codegen

import (
	"testing"

	"levee/internal/lang/field/fieldtest"
	"levee/internal/lang/resolve"
)

// Questions of each form become instructions, and records.
func TestEveryFieldIsCompiled(t *testing.T) {
	for _, s := range fieldtest.Samples() {
		for _, not := range []string{"", "not "} {
			p, ds := resolve.Parse("sample.levee",
				[]byte(fieldtest.Sets+s.Side()+"drop "+not+s.Text+"\ndefault pass\n"), nil)
			if ds.HasErrors() {
				continue // not malformed, not any
			}
			for _, records := range []bool{false, true} {
				if _, err := Compile(p, Target{CPUs: 1, Bytecode: records}); err != nil {
					t.Errorf("%s, as records %v: %v", s.Text, records, err)
				}
			}
		}
	}
}
