package defend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"levee/internal/dataplane/inspect"
	"levee/internal/lang/policy"
)

// TestLiveRulesGoOnWhereTheyFitTheNextPolicy: all were gone with the policy before, and of those
// that did not come back nobody was told.
func TestLiveRulesGoOnWhereTheyFitTheNextPolicy(t *testing.T) {
	const next = "set partners = { 198.51.100.0/24 }\npass tcp port 443\npass udp port 53\n" +
		"default pass\ndetect \"udp\" enforce keep partners\n"
	rules := []inspect.LiveRule{
		{Rule: `drop tcp from 192.0.2.7 as "live-3"`, Origin: "command"},
		{Rule: `drop udp port 53 not from partners as "flood-1-1"`, Origin: "udp",
			Before: "pass udp port 53"},
		{Rule: `drop udp port 53 as "flood-1-2"`, Origin: "udp"}, // which passes before it
		{Rule: `drop tcp as "flood-2-1"`, Origin: "syn"},         // whose detector is gone
		{Rule: `drop from 192.0.2.8 as "live-4"`, Origin: "api:x"},
	}
	cut := func(_ context.Context, _ string, p *policy.Policy) error {
		for _, r := range p.Rules {
			if r.Label == "live-4" {
				return errors.New("it cuts a session")
			}
		}
		return nil
	}
	p := parsed(t, next)
	c := Carry(p, cut, false)(t.Context(), "eth0", rules)
	if got := fmt.Sprint(c.Rules); got != fmt.Sprint(rules[:2]) || c.Compile == nil {
		t.Errorf("these go on: %v", got)
	}
	if got := strings.Join(c.Lost, "\n"); strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, `flood-2-1"`+"` ends: its detector is gone") ||
		!strings.Contains(got, `flood-1-2"`+"` ends: the rules do not fit the policy") ||
		!strings.Contains(got, `live-4"`+"` ends: it cuts a session") {
		t.Errorf("told is\n%s", got)
	}
	c = Carry(p, cut, true)(t.Context(), "eth0", rules)
	if got := fmt.Sprint(c.Rules); got != fmt.Sprint([]inspect.LiveRule{rules[0], rules[1],
		rules[4]}) {
		t.Errorf("where it is forced, these go on: %v", got)
	}
	c = Carry(parsed(t, "default pass\n"), cut, false)(t.Context(), "eth0", rules[1:4])
	if len(c.Rules) != 0 || len(c.Lost) != 3 {
		t.Errorf("without detectors: %+v", c)
	}
}
