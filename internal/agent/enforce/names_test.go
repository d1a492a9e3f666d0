package enforce

import (
	"testing"

	"levee/internal/lang/resolve"
)

// TestNoEntryHoldsAnOwnName: a list or a stranger's query put the zones that the policy passes, or
// all of "example", into the set that it drops.
func TestNoEntryHoldsAnOwnName(t *testing.T) {
	p, ds := resolve.Parse("z.levee", []byte(`set zones = { "zone.example.net", "com", "co.uk", "lan" }
set abused = dynamic(of names, max 10)
set wanted = dynamic(of names, max 10)
drop udp dns name in abused
pass udp port 53 dns name in zones
pass udp port 53 dns name "*.own.example"
pass udp port 53 not dns name "other.example"
pass udp port 53 dns name in wanted
drop udp port 53 dns name "bad.example"
default pass
out pass udp port 53 dns name "asked.example"
out default pass
`), nil)
	if p == nil {
		t.Fatal(ds)
	}
	k := &Protected{}
	k.AddZones(OwnNames(p), "own")
	for name, want := range map[string]bool{
		"zone.example.net": true, "www.zone.example.net": true, "example.net": true,
		"*.zone.example.net": true, "*.example.net": true, "*.www.zone.example.net": true,
		"net": true, ".": true, "own.example": true, "example": true, "*.": true,
		"asked.example":    true,
		"sone.example.net": false, "evil.com": false, "com": false, "other.example": false,
		"lan": true, "printer.lan": true, "co.uk": false, "shop.co.uk": false,
		"bad.example": false, "ample.net": false,
	} {
		if why := k.RefusesName(name); (why != "") != want {
			t.Errorf("%s: %q", name, why)
		}
	}
}
