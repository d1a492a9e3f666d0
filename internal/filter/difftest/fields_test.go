package difftest

import (
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/field"
	"levee/internal/lang/field/fieldtest"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// Rules of generated policies ask for each field, and for what does not have one of the values.
func TestEveryFieldIsGenerated(t *testing.T) {
	var asked [2][field.NumFields]bool
	for seed := range uint64(200) {
		p, _, err := Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range slices.Concat(p.Rules, askSenders(outOf(p), seed).Out.Rules) {
			for _, term := range r.Match {
				asked[b2i(term.Not)][term.Field] = true
			}
		}
	}
	for f := field.None + 1; f < field.NumFields; f++ {
		if !asked[0][f] || !asked[1][f] {
			t.Errorf("%s: asked for %v, negated %v", f.Info().Name, asked[0][f], asked[1][f])
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// For each form of a question, packets are made for which it holds, and others.
func TestEveryFieldIsAimedAt(t *testing.T) {
	for _, s := range fieldtest.Samples() {
		p, ds := resolve.Parse("sample.levee",
			[]byte(fieldtest.Sets+s.Side()+"drop "+s.Text+"\ndefault pass\n"), nil)
		if ds.HasErrors() {
			t.Fatalf("%s: %v", s.Text, ds.Err())
		}
		if s.Field.Info().Remembered {
			continue // see TestConnectionsAgreeWithTheOracle, TestSequencesAgreeWithTheOracle
		}
		if m := p.Rules[0].Match; len(m) > 0 && m[0].Set != nil &&
			m[0].Set.Kind == policy.Dynamic || strings.HasPrefix(s.Text, "len ") {
			continue // empty; or too long for a frame of a test run, or too short for a packet
		}
		ev, held, not := oracle.New(p), 0, 0
		for frame := range Packets(p, 1, 1000) {
			switch r := ev.Eval(frame); r.Slot {
			case p.RuleSlot(0):
				held++
			case p.DefaultSlot():
				not++
			}
		}
		if held < 20 || not < 20 {
			t.Errorf("%s: holds for %d of 1000 packets, not for %d", s.Text, held, not)
		}
	}
}
