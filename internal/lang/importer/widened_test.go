package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
)

// TestRulesThatWidened has rules that public rule sets have, with which more passed than the source
// lets through, or which were said to widen though nothing was lost with them.
func TestRulesThatWidened(t *testing.T) {
	const table = "*mangle\nCOMMIT\n"
	for _, c := range []struct {
		name, in, want string
		widened        int
	}{
		{"a drop at random in front of the policy", save("DROP", ":PSD -", "-j PSD",
			"-A PSD -p tcp -m statistic --mode random --probability 0.05 -j REJECT"),
			"# left out: -A PSD -p tcp -m statistic --mode random --probability 0.05 -j REJECT\n" +
				"drop ipv4\ndefault pass", 0},
		{"and in front of a pass", save("DROP", "-p tcp -m statistic --mode random "+
			"--probability 0.05 -j DROP", "-p tcp --dport 22 -j ACCEPT"),
			"# left out: -A INPUT -p tcp -m statistic --mode random --probability 0.05 -j DROP\n" +
				"pass ipv4 tcp port 22\ndrop ipv4\ndefault pass", 1},
		{"steps of a knock, of which the last drops", save("ACCEPT", ":STEP -",
			"-p tcp --dport 1025 -m recent --rcheck --name A -j STEP",
			"-p tcp -m recent --remove --name A -j DROP",
			"-p tcp --dport 1024 -m recent --set --name A -j DROP", "-j DROP",
			"-A STEP -m recent --set --name B -j DROP"),
			"# left out: -A INPUT -p tcp --dport 1025 -m recent --rcheck --name A -j STEP\n" +
				"# left out: -A INPUT -p tcp -m recent --remove --name A -j DROP\n" +
				"drop ipv4 tcp port 1024\ndrop ipv4\ndefault pass", 0},
		{"a list of recent that nothing fills", save("ACCEPT",
			"-p tcp --dport 22 -m recent --rcheck --seconds 30 --hitcount 4 --name x -j DROP",
			"-m recent --update --name y -j DROP"), "default pass", 0},
		{"anycast does not come to INPUT", save("ACCEPT", "-m addrtype --dst-type ANYCAST -j DROP"),
			"default pass", 0},
		{"broadcasts of networks", save("ACCEPT", "-m addrtype --dst-type BROADCAST -j DROP",
			"-m addrtype --src-type BROADCAST -j DROP"), "drop to 255.255.255.255\n" +
			"drop ipv4 ether to ff:ff:ff:ff:ff:ff to self\ndrop ipv4 from self\ndefault pass", 0},
		{"and all else", save("ACCEPT", "-p udp -m addrtype ! --dst-type BROADCAST -j DROP"),
			"drop ipv4 udp not to 255.255.255.255 not to self\n" +
				"drop ipv4 not ether to ff:ff:ff:ff:ff:ff udp not to 255.255.255.255\n" +
				"default pass", 0},
		{"marks that no rule sets", table + save("ACCEPT", "-m mark --mark 0x8000/0x8000 -j DROP",
			"-m mark ! --mark 0x8000/0x8000 -p udp -j DROP"), "drop ipv4 udp\ndefault pass", 0},
		{"marks that a chain sets which nothing reaches", "*nat\n:PREROUTING ACCEPT [0:0]\n:M - " +
			"[0:0]\n-A M -j MARK --or-mark 0x8000\nCOMMIT\n" + save("ACCEPT",
			"-m mark --mark 0x8000/0x8000 -j DROP"), "default pass", 0},
		{"marks of other bits", "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j MARK " +
			"--set-xmark 0x4000/0x4000\nCOMMIT\n" + save("ACCEPT",
			"-m mark --mark 0x8000/0x8000 -j DROP"), "default pass", 0},
		{"marks that a rule sets", "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j " +
			"MARK --set-mark 0x1\nCOMMIT\n" + save("ACCEPT", "-m mark --mark 0x1 -j DROP"),
			"# left out: -A INPUT -m mark --mark 0x1 -j DROP\ndefault pass", 1},
		{"marks, and no word of other tables", save("ACCEPT", "-m mark --mark 0x1 -j DROP"),
			"# left out: -A INPUT -m mark --mark 0x1 -j DROP\ndefault pass", 1},
		{"a limit before a state that all its packets have", save("DROP", "-p icmp -m icmp "+
			"--icmp-type 8 -m limit --limit 10/sec -m state --state NEW -j ACCEPT"),
			"limit icmp type 8 rate 10/s burst 5\npass icmp type 8\ndrop ipv4\n" +
				"default pass", 0},
		{"a limit before a state that some have", save("DROP", "-p tcp --dport 22 -m limit "+
			"--limit 10/sec -m state --state NEW -j ACCEPT"),
			"limit ipv4 tcp port 22 rate 10/s burst 5\n" +
				"pass ipv4 tcp syn port 22\ndrop ipv4\ndefault pass", 0},
		{"and where the others pass behind", save("DROP", "-p tcp --dport 22 -m limit "+
			"--limit 10/sec -m state --state NEW -j ACCEPT",
			"-p tcp --dport 22 -m state --state ESTABLISHED -j ACCEPT"), "fragments track\n" +
			"limit ipv4 tcp syn port 22 rate 10/s burst 5\npass ipv4 tcp syn port 22\n" +
			"pass ipv4 tcp port 22 established\ndrop ipv4\ndefault pass", 1},
		{"a limit before a length", save("DROP", "-p udp --dport 53 -m state --state NEW "+
			"-m hashlimit --hashlimit-upto 1/sec --hashlimit-burst 3 --hashlimit-mode "+
			"srcip,dstport --hashlimit-name a -m length --length 28:150 -j ACCEPT"),
			"fragments track\n" +
				"limit ipv4 udp port 53 not established rate 1/s burst 3 by source\n" +
				"pass ipv4 udp port 53 len 28-150 not established\ndrop ipv4\ndefault pass", 0},
		{"a limit of new packets and of known ones, which have passed", save("DROP",
			"-m state --state ESTABLISHED,RELATED -j ACCEPT", "-p tcp --dport 22 -m state "+
				"--state NEW,ESTABLISHED -m hashlimit --hashlimit-upto 1/sec --hashlimit-burst 20 "+
				"--hashlimit-mode srcip --hashlimit-name b -j ACCEPT"), "fragments track\n" +
			"pass ipv4 established\nlimit ipv4 tcp syn port 22 rate 1/s burst 20 by source\n" +
			"pass ipv4 tcp syn port 22\ndrop ipv4\ndefault pass", 0},
		{"a limit in two places", save("ACCEPT", ":R -", "-p udp --dport 53 -j R",
			"-p udp --dport 123 -j R", "-A R -m hashlimit --hashlimit-above 9/sec "+
				"--hashlimit-burst 9 --hashlimit-mode srcip --hashlimit-name c -j DROP",
			"-A R -j ACCEPT"), "limit ipv4 udp port { 53, 123 } rate 9/s burst 9 by source\n" +
			"pass ipv4 udp port 53\npass ipv4 udp port 123\ndefault pass", 0},
		{"and with a drop in between", save("ACCEPT", ":R -", "-p udp --dport 53 -j R",
			"-s 192.0.2.1 -j DROP", "-p udp --dport 123 -j R", "-A R -m hashlimit "+
				"--hashlimit-above 9/sec --hashlimit-burst 9 --hashlimit-mode srcip "+
				"--hashlimit-name d -j DROP", "-A R -j ACCEPT"), "# left out: -A R -m hashlimit " +
			"--hashlimit-above 9/sec --hashlimit-burst 9 --hashlimit-mode srcip " +
			"--hashlimit-name d -j DROP\npass ipv4 udp port 53\ndrop from 192.0.2.1\n" +
			"pass ipv4 udp port 123\n" +
			"default pass", 1},
		{"what is decrypted comes by another way", save("ACCEPT", "-p udp --dport 1701 -m policy "+
			"--dir in --pol none -j DROP"), "drop ipv4 udp port 1701\ndefault pass", 0},
		{"other conditions on IPsec", save("ACCEPT", "-p udp --dport 1701 -m policy --dir in "+
			"--pol none --strict -j DROP"), "# left out: -A INPUT -p udp --dport 1701 -m policy " +
			"--dir in --pol none --strict -j DROP\ndefault pass", 1},
		{"a limit of connections that are known", save("DROP", "-m state --state "+
			"RELATED,ESTABLISHED -m limit --limit 50/sec --limit-burst 50 -j ACCEPT",
			"-p tcp --dport 22 -m state --state NEW -j ACCEPT"),
			"fragments track\nlimit ipv4 established rate 50/s burst 50\npass ipv4 established\n" +
				"pass ipv4 tcp syn port 22\ndrop ipv4\ndefault pass", 0},
		{"a limit behind which what is known passes", save("DROP", "-p icmp -m icmp --icmp-type 0 "+
			"-m limit --limit 1/sec -j ACCEPT", "-s 192.0.2.0/24 -j DROP",
			"-m state --state ESTABLISHED -j ACCEPT"), "fragments track\n" +
			"limit icmp type 0 not established rate 1/s burst 5\n" +
			"pass icmp type 0 not established\ndrop from 192.0.2.0/24\n" +
			"pass ipv4 tcp established\npass ipv4 udp established\n" +
			"pass not icmp type { 3, 8, 11-13, 15, 17 } established\ndrop ipv4\ndefault pass", 0},
		{"and one behind which some of that passes", save("DROP", "-p udp --dport 53:54 -m limit "+
			"--limit 1/sec -j ACCEPT", "-p udp --dport 53 -m state --state ESTABLISHED -j ACCEPT"),
			"fragments track\npass ipv4 udp port 53-54\ndrop ipv4\ndefault pass", 1},
		{"a limit above which all passes too", save("ACCEPT",
			"-p icmp -m limit --limit 1/sec -j ACCEPT"), "pass ipv4 icmp\ndefault pass", 0},
		{"a limit above which some is dropped", save("ACCEPT",
			"-p icmp -m limit --limit 1/sec -j ACCEPT", "-m ttl --ttl-lt 5 -j DROP"),
			"pass ipv4 icmp\ndrop ipv4 ttl 0-4\ndefault pass", 1},
		{"no way back", save("ACCEPT", "-m rpfilter --validmark --invert -j DROP",
			"-p udp -m rpfilter --loose --invert -j DROP", "-p tcp -m rpfilter -j ACCEPT"),
			"drop ipv4 not reverse-path strict\ndrop ipv4 udp not reverse-path loose\n" +
				"pass ipv4 tcp reverse-path strict\ndefault pass", 0},
		{"no way back, but for own addresses", save("ACCEPT",
			"-m rpfilter --invert --accept-local -j DROP"),
			"# left out: -A INPUT -m rpfilter --invert --accept-local -j DROP\ndefault pass", 1},
		{"a set that is not in the input", save("ACCEPT", "-m set --match-set bad.4 src -j DROP",
			"-m set ! --match-set good dst -j DROP", "-m set --match-set bad.4 dst -j DROP"),
			"set bad_4 = dynamic(max 65536, from file(\"bad_4.txt\"))\n" +
				"set good = dynamic(max 65536, from file(\"good.txt\"))\n" +
				"drop ipv4 from bad_4\ndrop ipv4 not to good\ndrop ipv4 to bad_4\ndefault pass", 0},
		{"and one of several fields", save("ACCEPT", "-m set --match-set bad src,dst -j DROP"),
			"# left out: -A INPUT -m set --match-set bad src,dst -j DROP\ndefault pass", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rep := fromIPTables(t, importer.Rulesets{Device: "eth0"}, c.in)
			got = strings.TrimPrefix(rulesOf(got), "interface eth0\n")
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if rep.Fates.Widened != c.widened {
				t.Errorf("%d widen, not %d", rep.Fates.Widened, c.widened)
			}
		})
	}
}

// TestASetBesideHasACommand: above a set that is not in the input stands what makes its file, where
// its name is safe for a shell.
func TestASetBesideHasACommand(t *testing.T) {
	got, _ := fromIPTables(t, importer.Rulesets{}, save("ACCEPT",
		"-m set --match-set bad.4 src -j DROP", "-m set --match-set $(id) src -j DROP"))
	const want = "#   ipset save bad.4 | awk '$1 == \"add\" { print $3 }' > bad_4.txt\n"
	if !strings.Contains(got, want) || strings.Contains(got, "ipset save $(id)") {
		t.Errorf("not %q alone in\n%s", want, got)
	}
	// its kind is not known: one of ports was taken for addresses, and nobody said so
	if !strings.Contains(got, "# One of ports, of MAC addresses or with `nomatch` has no such") {
		t.Error(got)
	}
}

// TestSetsWithMappedAddresses: one IPv4-mapped prefix in a set of bogons left the whole rule out.
func TestSetsWithMappedAddresses(t *testing.T) {
	const set = `{"nftables": [{"table": {"family": "inet", "name": "f"}}, {"set": {"family": "inet",
"table": "f", "name": "bogons", "type": "ipv6_addr", "elem": [{"prefix": {"addr": "100::", "len":
64}}, {"prefix": {"addr": "::ffff:0.0.0.0", "len": 96}}]}}, {"chain": {"family": "inet", "table": "f",
"name": "input", "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}}, {"rule": {"family":
"inet", "table": "f", "chain": "input", "handle": 1, "expr": [`
	for op, want := range map[string]string{"==": "drop from bogons",
		"!=": "drop ipv6 not from bogons"} {
		text, rep := nftImport(t, set+match(op, payload("ip6", "saddr"), `"@bogons"`)+dropped+`]}}]}`,
			importer.Rulesets{})
		want := "set bogons = { 100::/64 }\n" + want + "\ndefault pass"
		if d := cmp.Diff(want, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", op, d)
		}
		if op == "!=" == (rep.Fates.Widened == 1) {
			t.Errorf("%s: %s", op, rep.Fates)
		}
		remarksHave(t, rep, "no policy has: it stands without these")
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, "create b hash:net family inet6\nadd b "+
		"100::/64\nadd b ::ffff:0:0/96\n", strings.Replace(save("ACCEPT",
		"-m set --match-set b src -j DROP"), "iptables-save", "ip6tables-save", 1))
	if !strings.Contains(text, "set b = { 100::/64 }") || rep.Fates.Widened != 1 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
}

// TestNFTIsNotToldOfIP6TablesSave: what an import of nft advised where a ruleset has one family was
// the other tool's.
func TestNFTIsNotToldOfIP6TablesSave(t *testing.T) {
	got, rep := nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "f", "handle": 1}},
{"chain": {"family": "ip", "table": "f", "name": "input", "handle": 4, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
{"rule": {"family": "ip", "table": "f", "chain": "input", "handle": 1, "expr": [{"accept": null}]}}]}`,
		importer.Rulesets{})
	remarksHave(t, rep, "says nothing about IPv6")
	for _, r := range rep.Remarks {
		got += r.String()
	}
	if strings.Contains(got, "tables-save") {
		t.Errorf("tells of another tool:\n%s", got)
	}
}

// TestTheMarkOfAWayBackWasNotNamed: beside wg-quick, whose `ip rule` asks for a mark, a rule that
// asked with the packet's mark became one that drops the tunnel's own packets, and nobody said so.
func TestTheMarkOfAWayBackWasNotNamed(t *testing.T) {
	const names = "without the packet's mark"
	for arguments, named := range map[string]bool{"--validmark ": true, "": false} {
		_, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT",
			"-m rpfilter "+arguments+"--invert -j DROP"))
		if got := fmt.Sprint(rep.Remarks); strings.Contains(got, names) != named {
			t.Errorf("-m rpfilter %s: %s", arguments, got)
		}
	}
	for flags, named := range map[string]bool{`"saddr", "mark", "iif"`: true,
		`"saddr", "iif"`: false} {
		_, rep := nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "f", "handle": 1}},
{"chain": {"family": "ip", "table": "f", "name": "input", "handle": 4, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
{"rule": {"family": "ip", "table": "f", "chain": "input", "handle": 1, "expr": [{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": [`+
			flags+`]}}, "right": false}}, {"drop": null}]}}]}`, importer.Rulesets{})
		if got := fmt.Sprint(rep.Remarks); strings.Contains(got, names) != named {
			t.Errorf("fib %s: %s", flags, got)
		}
	}
}

// TestRecentWithTTLIsALimit: a flood of ICMP was let through, as --rttl has no word.
func TestRecentWithTTLIsALimit(t *testing.T) {
	got, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT",
		"-p icmp -m recent --set --name A --rsource",
		"-p icmp -m recent --update --seconds 1 --hitcount 6 --rttl --name A --rsource -j LOG",
		"-p icmp -m recent --update --seconds 1 --hitcount 6 --rttl --name A --rsource -j DROP"))
	if want := "limit ipv4 icmp rate 5/s burst 5 by source"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	remarksHave(t, rep, "whatever their TTL")
}

// TestNFTRulesThatWidened is the same for nft.
func TestNFTRulesThatWidened(t *testing.T) {
	const dropped = `, {"drop": null}`
	ct := func(dir string) string {
		return `{"match": {"op": "==", "left": {"ct": {"key": "direction"}}, "right": "` + dir +
			`"}}`
	}
	proto := func(name string) string {
		return `{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "` + name +
			`"}}, `
	}
	for _, c := range []struct {
		name, rule, want string
		widened          int
	}{
		{"what the other side begins over UDP", proto("udp") + ct("original") + dropped,
			"drop udp not established", 0},
		{"and by ICMP", proto("icmp") + ct("original") + dropped,
			"drop icmp type { 8, 13, 15, 17 }", 0},
		{"answers", proto("icmp") + ct("reply") + dropped, "drop icmp established", 0},
		{"TCP is established either way", proto("tcp") + ct("original") + dropped,
			"# left out: inet f input handle 1: meta l4proto tcp ct direction original drop", 1},
		{"a limit for what is in an empty set", `{"match": {"op": "==", "left": {"payload": ` +
			`{"protocol": "udp", "field": "dport"}}, "right": "@none"}}, {"meter": {"name": "m", ` +
			`"key": {"concat": [{"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": ` +
			`{"protocol": "udp", "field": "dport"}}]}, "stmt": {"limit": {"rate": 5, "per": ` +
			`"second", "inv": true}}}}` + dropped,
			"# left out: inet f input handle 1: udp dport @none meter drop", 0},
		{"broadcasts and groups by the routing table", `{"match": {"op": "==", "left": {"fib": ` +
			`{"result": "type", "flags": ["daddr"]}}, "right": {"set": ["broadcast", "anycast", ` +
			`"multicast"]}}}` + dropped, "drop to { 224.0.0.0/4, ff00::/8 }\n" +
			"drop to 255.255.255.255\ndrop ipv4 ether to ff:ff:ff:ff:ff:ff to self\n", 0},
		{"what comes to no machine", `{"match": {"op": "!=", "left": {"fib": {"result": "type", ` +
			`"flags": ["daddr"]}}, "right": {"set": ["local", "broadcast", "multicast"]}}}` + dropped,
			"default pass", 0},
		{"a limit by its name", `{"match": {"op": "==", "left": {"payload": {"protocol": "icmp", ` +
			`"field": "type"}}, "right": "echo-request"}}, {"limit": "over"}` + dropped,
			"limit icmp type 8 rate 20/s burst 40", 0},
		{"and one that is not there", proto("udp") + `{"limit": "none"}` + dropped,
			"# left out: inet f input handle 1: meta l4proto udp limit drop", 1},
		{"connections that are open", proto("tcp") + `{"ct count": {"val": 20, "inv": true}}` + dropped,
			"# left out: inet f input handle 1: meta l4proto tcp ct count drop", 1},
		{"no way back", `{"match": {"op": "==", "left": {"fib": {"result": "oif", ` +
			`"flags": ["saddr", "iif"]}}, "right": false}}` + dropped,
			"drop not reverse-path strict", 0},
		{"no route", `{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ` +
			`["saddr", "mark"]}}, "right": 0}}` + dropped, "drop not reverse-path loose", 0},
		{"the machine's own", `{"match": {"op": "==", "left": {"fib": {"result": "type", ` +
			`"flags": ["daddr"]}}, "right": "local"}}` + dropped,
			"drop not to { 224.0.0.0/4, 255.255.255.255, ff00::/8 }", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := `{"nftables": [{"table": {"family": "inet", "name": "f", "handle": 1}},
{"chain": {"family": "inet", "table": "f", "name": "input", "handle": 4, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
{"limit": {"family": "inet", "name": "over", "table": "f", "handle": 3, "rate": 20, "per": "second", "burst": 40, "inv": true}},
{"set": {"family": "inet", "name": "none", "table": "f", "type": "inet_service", "handle": 2}},
{"rule": {"family": "inet", "table": "f", "chain": "input", "handle": 1, "expr": [` + c.rule + `]}}]}`
			got, rep := nftImport(t, in, importer.Rulesets{})
			if got = rulesOf(got); !strings.Contains(got, c.want) {
				t.Errorf("no %q in\n%s", c.want, got)
			}
			if rep.Fates.Widened != c.widened {
				t.Errorf("%d widen, not %d", rep.Fates.Widened, c.widened)
			}
			if strings.Contains(c.rule, "ct count") { // a limit of rates is no word for it
				remarksHave(t, rep, "left out, widens|a policy has no word for that: `limit` is "+
					"about rates")
			}
		})
	}
}

// TestPFRulesThatWidened is the same for pf.
func TestPFRulesThatWidened(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		widened        int
	}{
		{"the interface's addresses were any", "block in\npass in proto tcp to (em0) port 22\n",
			"pass tcp flags syn/syn,ack to self port 22\ndefault drop", 0},
		{"and those of all interfaces, of which one is", "block in\npass in on em1\n" +
			"pass in proto tcp to (em0) port 22\n",
			"set elsewhere = dynamic(max 4096, from file(\"elsewhere.txt\"))\n" +
				"pass tcp flags syn/syn,ack to self not to elsewhere port 22\ndefault drop", 0},
		{"of another interface", "block in\npass in proto tcp to em1 port 22\npass in on em1\n",
			"set em1 = dynamic(max 4096, from file(\"em1.txt\"))\n" +
				"pass tcp flags syn/syn,ack to em1 port 22\ndefault drop", 0},
		{"and what is for none of them", "antispoof for { lo em1 }\nblock in quick to !(em0)\n",
			"set elsewhere = dynamic(max 4096, from file(\"elsewhere.txt\"))\ndrop not to self\n" +
				"drop to elsewhere\ndrop from { 127.0.0.0/8, ::1 }\ndrop from self\n" +
				"drop not reverse-path strict reverse-path loose", 0},
		{"the loopback interface's", "pass in on em1\nblock in to { lo0 192.0.2.1 }\n",
			"drop to 192.0.2.1", 0},
		{"and nothing else", "block in to lo0\nblock in to !lo0 port 25\n", "drop port 25", 0},
		{"networks of an interface", "block in from em0:network\n" +
			"block in quick from !(em1:network)\n",
			"set em0-network = dynamic(max 4096, from file(\"em0-network.txt\"))\n" +
				"set em1-network = dynamic(max 4096, from file(\"em1-network.txt\"))\n" +
				"drop not from em1-network\ndrop from em0-network", 0},
		{"a rule about another interface", "block in\npass in on em1 to (em0)\n",
			"default drop", 0},

		{"where self is meant", "block in\npass in on em1\npass in proto udp to self port 53\n",
			"pass udp to self port 53\ndefault drop", 0},
		{"what is not for the machine", "block in quick on em0 to !(em0)\n", "drop not to self", 0},
		{"its own addresses as sources", "block in quick from self\n", "drop from self", 0},
		{"antispoof of the policy's interface", "antispoof quick for { lo0 egress } inet\n",
			"drop from 127.0.0.0/8\ndrop ipv4 from self", 0},
		{"antispoof of another one", "antispoof quick for em1\n", "drop from self\n" +
			"drop not reverse-path strict reverse-path loose", 0},
		{"with several ways out", "pass in quick reply-to (em0 192.0.2.1) proto udp no state\n" +
			"antispoof quick for em1\n", "pass udp\ndrop from self", 1},
		{"tables that pfctl -sr does not print", "block drop in quick from <bogons> to any\n",
			"set bogons = dynamic(max 200000, from file(\"bogons.txt\"))\ndrop from bogons", 0},
		{"an anchor that is empty", "anchor \"ftp-proxy/*\"\nblock in\n", "default drop", 0},
		{"one that is loaded", "anchor \"x\"\nload anchor \"x\" from \"/etc/x\"\n",
			"# left out: anchor x", 1},
		{"one beside it is not", "anchor \"y/*\"\nanchor \"x/*\"\nload anchor x from \"/etc/x\"\n",
			"# left out: anchor x/*", 1},
		{"IPv4-mapped sources", "table <m> { 127/8 ::ffff:0:0/96 }\nblock in from <m>\n",
			"set m = { 127.0.0.0/8 }\ndrop from m", 1},
		{"and destinations", "table <m> { 127/8 ::ffff:0:0/96 }\nblock in to " +
			"<m>\n", "set m = { 127.0.0.0/8 }\ndrop to m", 1},
		{"what fails uRPF", "block in quick from urpf-failed\n", "drop not reverse-path strict",
			0},
		{"what has no route", "block in quick inet from no-route to any\nblock in from ! " +
			"no-route to 192.0.2.1\n", "drop ipv4 not reverse-path loose\ndrop to 192.0.2.1 " +
			"reverse-path loose", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rep := fromPF(t, c.in, importer.Rulesets{Device: "em0"})
			got = strings.Replace(got, "\nfragments track", "", 1)
			if d := cmp.Diff("interface em0\n"+c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if rep.Fates.Widened != c.widened {
				t.Errorf("%d widen, not %d", rep.Fates.Widened, c.widened)
			}
		})
	}
}

// TestChainsInFrontOfInput: rules against floods stand in raw, mangle and at prerouting, where they
// cost less, and were not imported unless --chain named them.
func TestChainsInFrontOfInput(t *testing.T) {
	const mangle = "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING -s 192.0.2.1 -j ACCEPT\n" +
		"-A PREROUTING -p tcp --tcp-flags SYN,FIN SYN,FIN -j DROP\nCOMMIT\n"
	const filter = "*filter\n:INPUT DROP\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
	const both = "drop ipv4 tcp flags fin,syn not from 192.0.2.1\npass ipv4 tcp port 22\ndrop ipv4"
	for _, c := range []struct{ name, in, want, remark string }{
		{"mangle in front of filter", mangle + filter, both, ""},
		{"whatever comes first in the file", filter + mangle, both, ""},
		{"alone", mangle, "pass from 192.0.2.1\ndrop ipv4 tcp flags fin,syn", ""},
		{"what only marks", "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING -j MARK --set-mark 1\n" +
			"COMMIT\n" + filter, "pass ipv4 tcp port 22\ndrop ipv4", "left out|table mangle"},
		{"beside nat", "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -p tcp --dport 80 -j REDIRECT " +
			"--to-ports 22\nCOMMIT\n" + mangle + filter, "drop ipv4 tcp flags " +
			"fin,syn not from 192.0.2.1\npass ipv4 tcp port 80 established\n" +
			"pass ipv4 tcp syn port 80\npass ipv4 tcp port 22\ndrop ipv4", ""},
		{"an accept by several fields", strings.Replace(mangle, "-j ACCEPT", "-p tcp --dport 80 "+
			"-j ACCEPT", 1) + filter, "drop ipv4 tcp flags fin,syn not port 80\n" +
			"drop ipv4 tcp flags fin,syn not from 192.0.2.1 port 80\npass ipv4 tcp port 22\n" +
			"drop ipv4", ""},
		// their first ones, too, were dropped with them
		{"an accept by ports, which later fragments lack", "*mangle\n:PREROUTING ACCEPT\n-A " +
			"PREROUTING -p udp --sport 53 -j ACCEPT\n-A PREROUTING -s 192.0.2.1 -j DROP\n" +
			"COMMIT\n" + filter, "drop not udp from 192.0.2.1\ndrop udp from 192.0.2.1 not from " +
			"port 53\npass ipv4 tcp port 22\ndrop ipv4", ""},
		{"one that cannot be told apart", strings.Replace(mangle, "-s 192.0.2.1", "-p tcp --syn",
			1) + filter, "pass ipv4 tcp port 22\ndrop ipv4", "changed, widens|what it drops never"},
		{"a state before connections are looked up", "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -m " +
			"conntrack --ctstate INVALID -j DROP\nCOMMIT\n" + filter,
			"pass ipv4 tcp port 22\ndrop ipv4", "changed, widens|what it drops never"},
		{"INPUT of mangle", "*mangle\n:INPUT ACCEPT\n-A INPUT -p udp --dport 9 -j DROP\nCOMMIT\n" +
			filter, "drop ipv4 udp port 9\npass ipv4 tcp port 22\ndrop ipv4", ""},
	} {
		got, rep := fromIPTables(t, importer.Rulesets{}, "# by iptables-save\n"+c.in)
		got = strings.TrimSuffix(rulesOf(got), "\ndefault pass")
		got = strings.TrimPrefix(got, "fragments track\n")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if c.remark != "" {
			remarksHave(t, rep, c.remark)
		}
	}
	chain := func(name, hook, rest, rule string) string {
		return `{"chain": {"family": "inet", "table": "f", "name": "` + name + `", "type": "filter", ` +
			`"hook": "` + hook + `", ` + rest + `, "policy": "accept"}}, {"rule": {"family": "inet", ` +
			`"table": "f", "chain": "` + name + `", "handle": 9, "expr": [` + rule + `]}}`
	}
	text, _ := nftImport(t, `{"nftables": [{"table": {"family": "inet", "name": "f"}}, `+
		chain("late", "input", `"prio": 0`, match("==", payload("udp", "dport"), "3")+dropped)+", "+
		chain("first", "ingress", `"prio": 5, "dev": "eth0"`, match("==", payload("udp", "dport"),
			"1")+dropped)+", "+
		chain("other", "ingress", `"prio": 5, "dev": "eth1"`, match("==", payload("udp", "dport"),
			"7")+dropped)+", "+
		chain("second", "prerouting", `"prio": -300`, match("==", payload("udp", "dport"),
			"2")+dropped)+`]}`, importer.Rulesets{Device: "eth0"})
	const want = "interface eth0\ndrop udp port 1\ndrop udp port 2\ndrop udp port 3\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("nft (-want +got):\n%s", d)
	}
}

// TestRulesAboutOtherPorts: what comes by the port of a bridge, as rules of OpenStack's neutron ask
// for each machine, was left out as if it could come to the policy's interface.
func TestRulesAboutOtherPorts(t *testing.T) {
	const way = "-m physdev --physdev-in tap1 --physdev-is-bridged -j VM"
	for _, c := range []struct {
		dev, rule string
		widened   int
	}{
		{"eth0", way, 0}, {"br0", way, 1}, {"tap1", way, 1}, {"", way, 1},
		{"eth0", "-m physdev ! --physdev-in tap1 -j VM", 1},
		{"eth0", "-m physdev --physdev-is-in -j VM", 1},
		{"eth0", "-m physdev --physdev-in eth+ -j VM", 1},
	} {
		_, rep := fromIPTables(t, importer.Rulesets{Device: c.dev}, save("ACCEPT", ":VM -", c.rule,
			"-A VM -p tcp -j DROP"))
		if rep.Fates.Widened != c.widened {
			t.Errorf("%s: %s: %s", c.dev, c.rule, rep.Fates)
		}
	}
}

// TestOthersThanTheInterface: of `! -i eth0` an import said that nothing comes to eth0 by eth0.
func TestOthersThanTheInterface(t *testing.T) {
	const want = `left out|is about other interfaces than "eth0", and nothing comes to "eth0"`
	opts := importer.Rulesets{Device: "eth0"}
	_, rep := fromIPTables(t, opts, save("DROP", "! -i eth0 -p tcp -j ACCEPT"))
	remarksHave(t, rep, want)
	_, rep = fromPF(t, "block in\npass in on ! eth0 proto tcp\n", opts)
	remarksHave(t, rep, want)
	_, rep = nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "f", "handle": 1}},
{"chain": {"family": "ip", "table": "f", "name": "input", "handle": 4, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
{"rule": {"family": "ip", "table": "f", "chain": "input", "handle": 1, "expr": [{"match": {"op": "!=", "left": {"meta": {"key": "iif"}}, "right": "eth0"}}, {"accept": null}]}}]}`,
		opts)
	remarksHave(t, rep, want)
}
