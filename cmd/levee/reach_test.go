package main

import (
	"fmt"
	"strings"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
)

func reachAll(t *testing.T, p *policy.Policy, ev *oracle.Evaluator) [][]byte {
	t.Helper()
	frames, err := reach(p, ev, 1, func(int, int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

// TestReachFindsAPacketForEveryKindOfTerm: a rule with each term of the language is reached by a packet made from it.
func TestReachFindsAPacketForEveryKindOfTerm(t *testing.T) {
	matches := []string{
		"from 203.0.113.0/24", "to 2001:db8:5::/48", "from { 2001:db8:6::1, 203.0.113.99 }",
		"port 53", "from port 123", "port { 1, 2 }", "to web", "from web", "port high",
		"tcp", "proto 47", "proto { 200-210 }", "ipv4", "ipv6", "arp", "icmp type 3/4", "icmp6 type 135",
		"tcp syn", "flags syn/syn,ack,rst", "flags none/syn,ack", "len 1000-1200", "len > 900", "ttl 1", "ttl < 5", "dscp ef",
		"vlan 7", "inner-vlan 9", "untagged", "ether 0x88cc", "ether from 02:00:00:00:00:99", "ether to 02:00:00:00:00:98",
		"fragments", "fragments port 53", "malformed", "from bad", "ipv6 from bad", "not port 53", "not ipv4 udp",
		"udp from 203.0.113.0/24 to 198.51.100.0/24 from port 1 port 2 len 100 ttl 3 dscp 4 vlan 5",
	}
	for _, m := range matches {
		for _, action := range []string{"drop", "count"} {
			src := fmt.Sprintf("set web = { tcp/80, udp/443 }\nset high = { 50000-50001 }\nset bad = dynamic(max 10)\n%s %s\ndefault pass\n", action, m)
			p, ds := policy.Parse("reach.levee", []byte(src), nil)
			if ds.HasErrors() {
				t.Errorf("%s: %v", m, ds.Err())
				continue
			}
			ev := oracle.New(p)
			if err := fillDynamic(p, &engines{oracle: ev}); err != nil {
				t.Fatal(err)
			}
			if frames := reachAll(t, p, ev); frames[p.RuleSlot(0)] == nil {
				t.Errorf("%s %s: no packet reaches it", action, m)
			}
		}
	}
}

// TestReachGetsAroundRulesBefore: when the first packet made from a rule is decided by another one, others are tried.
func TestReachGetsAroundRulesBefore(t *testing.T) {
	src := "drop ipv4\ndrop udp port 53\ndrop udp port 50-60\ndrop udp port { 53, 55, 70 } as \"here\"\ndefault pass\n"
	p, ds := policy.Parse("reach.levee", []byte(src), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	frames := reachAll(t, p, oracle.New(p))
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
	if got := strings.Join(essential, " "); got != "arp nd" { // the others are IPv4, or UDP that passes by default
		t.Errorf("essential rules reached: %q", got)
	}
}

// TestCostSamplesLargePolicies: what a policy of very many rules takes is bounded by --rules, and ends when asked to.
func TestCostSamplesLargePolicies(t *testing.T) {
	for _, c := range []struct{ rules, most, want int }{
		{0, 50, 1}, {1000, 50, 1}, {1001, 50, 21}, {100_000, 50, 2000}, {100_000, 100_000, 1}, {100_000, 99_999, 2}, {1001, 1, 1001},
	} {
		if got := sampleEvery(c.rules, c.most); got != c.want {
			t.Errorf("%d rules, --rules %d: one in %d, want %d", c.rules, c.most, got, c.want)
		}
	}
	src := strings.Repeat("drop udp port 53\n", 100) + "default pass\n"
	p, ds := policy.Parse("reach.levee", []byte(src), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	seen, stop := 0, fmt.Errorf("stop")
	_, err := reach(p, oracle.New(p), 10, func(rule, of int) error {
		if seen++; rule%10 != 0 || of != 100 {
			t.Errorf("rule %d of %d is looked at", rule, of)
		}
		if rule == 50 {
			return stop
		}
		return nil
	})
	if err != stop || seen > 6*variants {
		t.Errorf("%d packets judged, %v", seen, err)
	}
}
