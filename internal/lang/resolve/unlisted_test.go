package resolve

import (
	"strings"
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/field/fieldtest"
)

// refused says whether a policy of one rule has an error with some words.
func refused(rule, words string) bool {
	_, ds := Parse("p.levee", []byte(fieldtest.Sets+rule+"\ndefault pass\n"), nil)
	return ds.HasErrors() && strings.Contains(ds.Err().Error(), words)
}

// An action with an effect can be given to malformed frames only where its row says so.
func TestMalformedFramesMeetTheActionsThatAreListed(t *testing.T) {
	rules := map[action.Action]string{
		action.Limit: "limit malformed rate 1/s", action.Track: "fragments track malformed",
		action.Greylist: "greylist malformed after 1s within 2s",
	}
	for _, a := range action.Table() {
		rule := rules[a.Action]
		if rule == "" {
			rule = a.Word + " malformed"
		}
		may := !a.First && (!a.Effect || a.May&action.MayMeetMalformed != 0)
		if got := refused(rule, "cannot be given to malformed frames"); got == may {
			t.Errorf("%q: refused %v", rule, got)
		}
	}
}

// A rule that decides later fragments can ask for nothing that a protocol's header has.
func TestLaterFragmentsHaveNoFieldOfAProtocol(t *testing.T) {
	for _, s := range fieldtest.Samples() {
		if s.Field == field.None || strings.Contains(s.Text, "any") {
			continue
		}
		protos := s.Field.Info().Header.Presence().Protos != nil
		if s.Side() != "" {
			continue // fragments are followed where they arrive
		}
		if got := refused("fragments track "+s.Text, "a later fragment has no"); got != protos {
			t.Errorf("%q: refused %v, its header depends on the protocol: %v", s.Text, got, protos)
		}
	}
}

// What earlier packets have told is known of no packet within a tunnel, and makes verdicts depend
// on them.
func TestWhatIsRememberedIsNotAskedWithinTunnels(t *testing.T) {
	for _, s := range fieldtest.Samples() {
		if s.Field == field.None {
			continue
		}
		remembered := s.Field.Info().Remembered
		if got := refused(s.Side()+"count inner( "+s.Text+" )",
			"cannot be asked of the packet within a tunnel"); got != remembered {
			t.Errorf("%q: refused %v, remembered %v", s.Text, got, remembered)
		}
		p, ds := Parse("p.levee",
			[]byte(fieldtest.Sets+s.Side()+"pass "+s.Text+"\ndefault pass\n"), nil)
		remembered = remembered && s.Field.Info().Kernel == field.NoSide
		if !ds.HasErrors() && p.Remembers() != remembered {
			t.Errorf("%q: the policy remembers: %v", s.Text, p.Remembers())
		}
	}
}
