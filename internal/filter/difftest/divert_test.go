package difftest

import (
	"testing"

	"levee/internal/lang/action"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestWhatIsDivertedAgreesWithTheOracle has the program that is asked for sockets say of each
// segment whether its connection is diverted, on both link layers, over time.
func TestWhatIsDivertedAgreesWithTheOracle(t *testing.T) {
	needRoot(t)
	const text = `protect from { 0.0.0.0/4, ::/8 } tcp as "spared"
pass tcp from { 64.0.0.0/3, 2000::/4 } port 1-30000 as "friend"
drop tcp len > 900 as "long"
limit tcp rate 100/s by source as "limit"
divert tcp not port 443 from { 0.0.0.0/1, ::/1 } as "some"
pass tcp flags rst as "reset"
divert tcp as "rest"
default pass
`
	p, ds := resolve.Parse("divert.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, link := range []packet.Link{packet.Ethernet, packet.L3} {
		for _, records := range []bool{false, true} {
			c := Case{Policy: p, Link: link, Text: []byte(text), Seed: 3, Frames: 12_000}
			engine, err := compileCase(c, records)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := Compare(t.Context(), c, engine)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range p.Slots() {
				if s.Action == action.Divert && stats.Decided[i] < 100 {
					t.Errorf("only %d packets met %q", stats.Decided[i], s.Rule.Label)
				}
			}
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
