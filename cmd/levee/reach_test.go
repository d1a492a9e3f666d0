package main

import (
	"fmt"
	"strings"
	"testing"

	"levee/internal/oracle"
	"levee/internal/policy"
)

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
			if frames := reach(p, ev); frames[p.RuleSlot(0)] == nil {
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
	frames := reach(p, oracle.New(p))
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
