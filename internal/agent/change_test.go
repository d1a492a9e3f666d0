package agent

import (
	"testing"

	"levee/internal/agent/enforce"
	"levee/internal/agent/feed"
	"levee/internal/lang/dnsname"
)

// TestAListThatComesToHoldARegistryWaits: "co.uk" has two labels and went through. What a rule
// passes is none of the change.
func TestAListThatComesToHoldARegistryWaits(t *testing.T) {
	own, err := dnsname.Parse("own.example")
	if err != nil {
		t.Fatal(err)
	}
	protected := &enforce.Protected{}
	protected.AddZones(enforce.NewZones(own.Name), "own")
	for name, want := range map[string][2]bool{ // it is taken, and waits
		"co.uk": {true, true}, "com": {true, true}, "*.co.uk": {true, true},
		"shop.co.uk": {true, false}, "duckdns.org": {true, false},
		"own.example": {}, "example": {}, "www.own.example": {},
	} {
		list := &feed.Result{List: &feed.List{Names: []string{name}}}
		h := difference(protected, list, nil, 0.5)
		if len(h.added) == 1 != want[0] || (h.why != "") != want[1] {
			t.Errorf("%s: %v, %q", name, h.added, h.why)
		}
	}
}
