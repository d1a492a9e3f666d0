package difftest

import (
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestFragmentsAgreeWithTheOracle judges fragments of few datagrams, of which a limit drops some
// first ones, on both link layers, and sees to it that each fate is met often.
func TestFragmentsAgreeWithTheOracle(t *testing.T) {
	needRoot(t)
	const text = `count fragments as "fragments"
count fragments proto udp as "udp"
fragments track as "follow"
limit ether { ipv4, ipv6 } rate 2/s burst 1 by source as "first"
pass ipv4 as "four"
pass ipv6 as "six"
default drop
`
	p, ds := policy.Parse("fragments.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, link := range []packet.Link{packet.Ethernet, packet.L3} {
		seen, frames := map[string]int{}, 0
		for seed := range uint64(12) {
			c := Case{Policy: p, Link: link, Text: []byte(text), Seed: seed, Frames: 4000}
			engine, err := compileCase(c, seed%3 == 2)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := Compare(t.Context(), c, engine)
			if err != nil {
				t.Fatal(err)
			}
			frames += stats.Frames
			for i, n := range engine.Packets() {
				s := engine.Slots()[i]
				if seen[s.Name] += int(n); s.Rule != nil {
					seen[s.Rule.Label] += int(n)
				}
			}
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"fragments", "udp", "follow", "first", "four", "six",
			"fragment-overlap", "fragment-tiny",
			"fragment-orphan"} {
			if seen[name]*2000 < frames {
				t.Errorf("%v: of %d packets only %d met %q", link, frames, seen[name], name)
			}
		}
		t.Logf("%v: %d packets: %v", link, frames, seen)
	}
}
