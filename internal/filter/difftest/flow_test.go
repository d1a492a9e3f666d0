package difftest

import (
	"testing"

	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// TestConnectionsAgreeWithTheOracle judges talks of few hosts by a policy of little else than
// connections, on both link layers, and sees to it that enough of them are known.
func TestConnectionsAgreeWithTheOracle(t *testing.T) {
	const text = `count tcp established as "tcp"
count udp established as "udp"
count icmp established as "icmp"
count icmp6 established as "icmp6"
count icmp type { 3, 11, 12 } established as "error"
count icmp type { 3, 11, 12 } not established as "strange error"
count icmp6 type { 1, 2, 3, 4 } established as "error6"
count icmp6 type { 1, 2, 3, 4 } not established as "strange error6"
count not established as "not"
limit not established rate 20/s by source
pass established
pass from { 192.0.2.0/30, 2001:db8::/126 } port { 80, 443 }
default drop
`
	eachIsMet(t, text, 6, "tcp", "udp", "icmp", "icmp6", "not", "error", "strange error", "error6",
		"strange error6")
}

// TestWhatAnswersAgreesWithTheOracle judges what leaves in talks of few hosts by whether it
// answers, beside rules on what arrives that ask for connections and beside such that do not.
func TestWhatAnswersAgreesWithTheOracle(t *testing.T) {
	const out = `out count tcp established as "tcp"
out count udp established as "udp"
out count icmp established as "icmp"
out count icmp6 established as "icmp6"
out count udp not established as "begins"
out count tcp not established as "opens"
out limit udp not established rate 20/s by source
out pass established
out pass tcp syn port 1-40000
out pass udp from { 192.0.2.0/24, 2001:db8::/32, 198.51.100.0/24 }
out default drop
`
	for _, arriving := range []string{"drop port 1-3000\ndefault pass\n",
		"drop tcp not established\ndefault pass\n"} {
		eachIsMet(t, arriving+out, 2, "tcp", "udp", "icmp", "icmp6", "begins", "opens")
	}
}

// eachIsMet compares packets of so many seeds on both link layers, and sees to it that enough meet
// each label and reason to be malformed.
func eachIsMet(t *testing.T, text string, seeds uint64, names ...string) {
	t.Helper()
	needRoot(t)
	p, ds := resolve.Parse("test.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	for _, link := range []packet.Link{packet.Ethernet, packet.L3} {
		met, frames := map[string]int{}, 0
		for seed := range seeds {
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
				if met[s.Name] += int(n); s.Rule != nil {
					met[s.Rule.Label] += int(n)
				}
			}
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			if met[name]*2000 < frames {
				t.Errorf("%v: of %d packets only %d met %q", link, frames, met[name], name)
			}
		}
		t.Logf("%v: %d packets: %v", link, frames, met)
	}
}
