package status

import (
	"testing"
	"time"

	"levee/internal/lang/policy"
)

func TestRatesAreOfTheTimeBetweenTwoReadings(t *testing.T) {
	report := func(packets, bytes uint64) *Report {
		return &Report{Interfaces: []Interface{{Ifindex: 3, Netns: 7,
			Rules: []Rule{{ID: "a", Packets: packets, Bytes: bytes}}}}}
	}
	at := time.Unix(1000, 0)
	one := report(100, 6400)
	seen := one.Rates(nil, at)
	if r := one.Interfaces[0].Rules[0]; r.PacketsPerSecond != nil || r.BitsPerSecond != nil {
		t.Error("the first reading has a rate")
	}
	two := report(1100, 70400)
	seen = two.Rates(seen, at.Add(2*time.Second))
	if r := two.Interfaces[0].Rules[0]; *r.PacketsPerSecond != 500 || *r.BitsPerSecond != 256000 {
		t.Errorf("%v packets and %v bits a second", *r.PacketsPerSecond, *r.BitsPerSecond)
	}
	anew := report(3, 180) // taken off and put up again meanwhile
	seen = anew.Rates(seen, at.Add(3*time.Second))
	if r := anew.Interfaces[0].Rules[0]; r.PacketsPerSecond != nil {
		t.Errorf("%v packets a second of a counter that began anew", *r.PacketsPerSecond)
	}
	if got := anew.Rates(seen, at.Add(3*time.Second)); len(got) != 1 {
		t.Error(got)
	}
}

// TestALiveRuleThatHasCountedNothingIsShown: who had just added one did not find it in `levee
// status`.
func TestALiveRuleThatHasCountedNothingIsShown(t *testing.T) {
	for reason, quiet := range map[policy.Reason]bool{policy.ByRule: false, policy.ByDefault: false,
		policy.ByEssential: true} {
		if r := (Rule{Reason: reason.String(), Rule: "live"}); r.Quiet() != quiet {
			t.Errorf("%s: quiet is %v", reason, !quiet)
		}
	}
}
