package defend

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"levee/internal/agent/episode"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// TestARuleOfAWriterIsOneDropOrLimit: what is put into force by the API is one rule that takes
// away, and nothing that opens, names sets or stands in several lines.
func TestARuleOfAWriterIsOneDropOrLimit(t *testing.T) {
	for text, want := range map[string]string{
		"drop udp from 203.0.113.0/24":   `drop udp from 203.0.113.0/24 as "live-1"`,
		"  drop  udp ":                   `drop udp as "live-1"`,
		"limit udp to port 53 rate 10/s": `limit udp port 53 rate 10/s as "live-1"`,
	} {
		got, word, err := writtenRule(text, "live-1")
		if err != nil || got != want || !strings.HasPrefix(got, word+" ") {
			t.Errorf("%q: %q, %q, %v", text, got, word, err)
		}
	}
	for _, text := range []string{"", "pass udp", "protect udp", "count udp", "drop from nobody",
		"drop udp\npass tcp", "drop udp # x", `drop udp as "mine"`, "default drop",
		"interface eth0", "set a = { 192.0.2.1 }", "drop " + strings.Repeat("x", 2000),
		"essential off", `packet "p" udp`} {
		if got, _, err := writtenRule(text, "live-1"); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestRulesOfWritersStandFirstInTheirOrder, and take nothing that is essential.
func TestRulesOfWritersStandFirstInTheirOrder(t *testing.T) {
	base, ds := resolve.Parse("p", []byte("pass udp to port 53\ndefault pass\n"), nil)
	if base == nil {
		t.Fatal(ds)
	}
	live := func(text string) (l episode.Live) {
		l.Rule.Rule = text
		return l
	}
	p, err := compose(base, []episode.Live{live("drop tcp to port 22"), live("drop tcp")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range p.Rules {
		got = append(got, r.Text)
	}
	if s := strings.Join(got, "; "); s != "drop tcp to port 22; drop tcp; pass udp port 53" {
		t.Errorf("%s", s)
	}
	if err := fitsWritten(base, []episode.Live{live("drop tcp")}); err != nil {
		t.Error(err)
	}
	if err := fitsWritten(base, []episode.Live{live("drop udp")}); err == nil {
		t.Error("a rule that takes DHCP fits")
	}
}

// TestARuleThatCutsASessionIsBlamedAlone: a change that fails takes back the rule that is the
// reason, and no other writer's, nor a detector's.
func TestARuleThatCutsASessionIsBlamedAlone(t *testing.T) {
	base, ds := resolve.Parse("p", []byte("default pass\n"), nil)
	if base == nil {
		t.Fatal(ds)
	}
	live := func(label string, of *policy.Detect) (l episode.Live) {
		l.Rule.Label, l.Rule.Rule, l.Of = label, `drop tcp port 22 as "`+label+`"`, of
		return l
	}
	c := &changer{base: base, rules: []episode.Live{live("live-1", nil), live("live-2", nil),
		live("flood-1-1", &policy.Detect{})},
		allowed: func(_ context.Context, p *policy.Policy) error {
			for _, r := range p.Rules {
				if r.Label != "live-1" {
					return errors.New("it would cut the session of 192.0.2.1")
				}
			}
			return nil
		}}
	got := slices.Collect(maps.Keys(c.blame(t.Context())))
	if !slices.Equal(got, []string{"live-2"}) {
		t.Errorf("%q", got)
	}
}
