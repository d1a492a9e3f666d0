package importer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
)

// A last rule that drops all stood in front of `default pass`: it took neighbour discovery and the
// answers of DHCP, and no default that people know was there.
func TestALastDropIsTheDefault(t *testing.T) {
	const dropAll = `{"counter": null}, {"drop": null}`
	for _, c := range []struct{ name, in, want string }{
		{"of both families", nftInput(dropAll), "default drop"},
		{"of a chain that sees other frames", strings.Replace(nftInput(dropAll),
			`{"table": {"family"`, `{"table": {"family": "netdev", "name": "n"}}, {"chain": `+
				`{"family": "netdev", "table": "n", "name": "i", "type": "filter", "hook": `+
				`"ingress", "dev": "eth0", "prio": 0, "policy": "accept"}}, {"rule": {"family": `+
				`"netdev", "table": "n", "chain": "i", "handle": 9, "expr": [{"match": {"op": `+
				`"==", "left": {"payload": {"protocol": "ip", "field": "ttl"}}, "right": 1}}, `+
				`{"drop": null}]}}, {"table": {"family"`, 1),
			"drop ipv4 ttl 1\ndrop from any\ndefault pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, _ := nftImport(t, c.in, importer.Rulesets{Device: "eth0"})
			got := strings.TrimPrefix(rulesOf(text), "interface eth0\n")
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// `levee check` warned of rules that an import wrote behind others which decide their packets.
func TestRulesThatNoPacketReachesAreLeftAway(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, save("DROP",
		"-m state --state ESTABLISHED,RELATED -j ACCEPT", "-p udp -j DROP",
		"-p udp --dport 53 -j ACCEPT",
		"-p tcp --dport 22 -m state --state NEW,ESTABLISHED -j ACCEPT",
		"-p tcp --dport 22 -m state --state NEW -j ACCEPT"))
	want := "fragments track\npass ipv4 established\ndrop ipv4 udp\npass ipv4 tcp syn port 22\n" +
		"drop ipv4\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	remarksHave(t, rep, "note|2 rules of which rules before decide all packets: INPUT:3, INPUT:5")
}
