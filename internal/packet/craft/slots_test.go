package craft

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/field/fieldtest"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
)

// parse resolves a policy, and makes an oracle whose dynamic sets hold Entries.
func parse(t *testing.T, src string) (*policy.Policy, *oracle.Evaluator) {
	t.Helper()
	p, ds := resolve.Parse("craft.levee", []byte(src), nil)
	if ds.HasErrors() {
		t.Fatalf("%s: %v", src, ds.Err())
	}
	judge := oracle.New(p)
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		for _, e := range Entries(s) {
			if err := judge.AddEntry(s.Name, e, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p, judge
}

// search looks for frames for all slots.
func search(t *testing.T, src string) (*policy.Policy, [][]byte) {
	t.Helper()
	p, judge := parse(t, src)
	s := Search{Policy: p, Judge: slotsOf(judge), Every: 1,
		Next: func(int, int) error { return nil }}
	frames, err := s.ForSlots()
	if err != nil {
		t.Fatal(err)
	}
	return p, frames
}

func slotsOf(judge *oracle.Evaluator) func([]byte) []int {
	return func(frame []byte) []int {
		r := judge.Eval(frame)
		return append(r.Counted, r.Slot)
	}
}

// TestEveryKindOfTermIsReached: a rule with each term of the language is reached by a packet made
// from it.
func TestEveryKindOfTermIsReached(t *testing.T) {
	matches := []string{
		"from 203.0.113.0/24", "to 2001:db8:5::/48", "from { 2001:db8:6::1, 203.0.113.99 }",
		"port 53", "from port 123", "port { 1, 2 }", "to web", "from web", "port high",
		"tcp", "proto 47", "proto { 200-210 }", "ipv4", "ipv6", "arp", "icmp type 3/4",
		"icmp6 type 135",
		"tcp syn", "flags syn/syn,ack,rst", "flags none/syn,ack", "len 1000-1200", "len > 900",
		"ttl 1", "ttl < 5", "dscp ef",
		"vlan 7", "inner-vlan 9", "untagged", "ether 0x88cc", "ether from 02:00:00:00:00:99",
		"ether to 02:00:00:00:00:98",
		"fragments", "fragments port 53", "malformed", "from bad", "ipv6 from bad", "from offers",
		"to offers", "to places", "not port 53", "not ipv4 udp",
		"udp from 203.0.113.0/24 to 198.51.100.0/24 from port 1 port 2 len 100 ttl 3 dscp 4 vlan 5",
	}
	for _, s := range fieldtest.Samples() {
		// Which no IP packet has, and no packet alone.
		if s.Text != "len < 1" && !s.Field.Info().Remembered {
			matches = append(matches, s.Text)
		}
	}
	for _, m := range matches {
		for _, action := range []string{"drop", "count"} {
			src := fieldtest.Sets + fmt.Sprintf("set web = { tcp/80, udp/443 }\nset high = { "+
				"50000-50001 }\nset bad = dynamic(max 10)\n"+
				"set offers = dynamic(of services, max 10)\nset places = dynamic(of endpoints, "+
				"max 10)\n%s %s\ndefault pass\n", action, m)
			if p, frames := search(t, src); frames[p.RuleSlot(0)] == nil {
				t.Errorf("%s %s: no packet reaches it", action, m)
			}
		}
	}
}

// TestARuleBehindOthersIsReached: when the first packet made from a rule is decided by another one,
// others are tried.
func TestARuleBehindOthersIsReached(t *testing.T) {
	src := "drop ipv4\ndrop udp port 53\ndrop udp port 50-60\ndrop udp port { 53, 55, 70 } as " +
		"\"here\"\ndefault pass\n"
	p, frames := search(t, src)
	for i, r := range p.Rules {
		if frames[p.RuleSlot(i)] == nil {
			t.Errorf("%s: no packet reaches it", r.Text)
		}
	}
	var essential []string
	for i, s := range p.Slots() {
		if s.Reason == policy.ByEssential && frames[i] != nil {
			essential = append(essential, s.Name)
		}
	}
	// the others are IPv4, or UDP that passes by default
	if got := strings.Join(essential, " "); got != "arp nd mld link" {
		t.Errorf("essential rules reached: %q", got)
	}
}

// TestASearchLooksAtASample: of a policy of very many rules only some are looked at, and the search
// ends when it is asked to.
func TestASearchLooksAtASample(t *testing.T) {
	p, judge := parse(t, strings.Repeat("drop udp port 53\n", 100)+"default pass\n")
	seen, stop := 0, fmt.Errorf("stop")
	s := Search{Policy: p, Judge: slotsOf(judge), Every: 10, Next: func(rule, of int) error {
		if seen++; rule%10 != 0 || of != 100 {
			t.Errorf("rule %d of %d is looked at", rule, of)
		}
		if rule == 50 {
			return stop
		}
		return nil
	}}
	if _, err := s.ForSlots(); err != stop || seen > 6*variants {
		t.Errorf("%d packets judged, %v", seen, err)
	}
}
