package importer_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
)

// TestNoConditionIsLost holds rules whose condition stands in an unusual place: where it is not
// carried over, the rule is left out and never made one for more packets.
func TestNoConditionIsLost(t *testing.T) {
	const sets = "create one hash:ip,port family inet\nadd one 192.0.2.1,tcp:80\ncreate two " +
		"hash:ip,port family inet\nadd two 192.0.2.1,icmp:ping\nadd two 192.0.2.9,dccp:0\n" +
		"create said hash:net family inet comment\nadd said 192.0.2.0/24 comment " +
		"\"nomatch\"\nadd said 192.0.2.128/25 packets 0 bytes 0 comment timeout\n" +
		"create not hash:net family inet\nadd not 10.0.0.0/8\nadd not 10.1.0.0/16 " +
		"nomatch\ncreate dst hash:mac\nadd dst 02:00:00:00:00:01\n"
	for _, c := range []struct{ rule, want string }{
		{"-m set ! --match-set one src,dst -j DROP",
			"# left out: -A INPUT -m set ! --match-set one src,dst -j DROP"},
		{"-m set ! --match-set one dst,dst -j ACCEPT",
			"# left out: -A INPUT -m set ! --match-set one dst,dst -j ACCEPT\n#   nearest: " +
				"pass ipv4"},
		{"-m set --match-set two src,dst -j DROP",
			"drop icmp type 8/0 from 192.0.2.1\ndrop dccp from 192.0.2.9"},
		{"-m set --match-set said src -j DROP", "set said = { 192.0.2.0/24 }\ndrop from said"},
		{"-m set --match-set not src --return-nomatch -j DROP",
			"# left out: -A INPUT -m set --match-set not src --return-nomatch -j DROP"},
		{"-m set --match-set not src --packets-gt 5 -j DROP",
			"# left out: -A INPUT -m set --match-set not src --packets-gt 5 -j DROP"},
		{"-m set ! --match-set dst dst -j DROP",
			"# left out: -A INPUT -m set ! --match-set dst dst -j DROP"},
		{`-m string --string "-s" --algo bm -s 192.0.2.1/32 -j DROP`,
			`# left out: -A INPUT -m string --string "-s" --algo bm -s 192.0.2.1/32 -j DROP`},
		{`-p udp -m string --string "! -j ACCEPT" --algo bm -j DROP`,
			`drop ipv4 udp payload contains "! -j ACCEPT"`},
		{`-p udp --dport 53 -m string --hex-string "|03|www|00|" --algo kmp --icase -j DROP`,
			"drop ipv4 udp port 53 payload contains 0377777700 any case"},
		{`-p udp -m string ! --hex-string "|22|" --algo bm --to 65535 -j DROP`,
			"drop ipv4 udp not payload contains 22"},
		{`-p udp -m string --string "a/b" --algo bm --from 28 --to 40 -j DROP`,
			`drop ipv4 udp payload contains /^[\x00-\xff]{0,9}a\/b/`},
		{`-p udp -m string --string "x" --algo bm --from 40 --to 41 -j DROP`,
			`drop ipv4 udp payload contains /^[\x00-\xff]{12,12}x/`},
		{`-p udp -m string --string "x" --algo bm --from 5 --to 20 -j DROP`,
			`# left out: -A INPUT -p udp -m string --string "x" --algo bm --from 5 --to 20 -j DROP`},
		{`-p tcp -m string --string "x" --algo bm -j DROP`,
			`# left out: -A INPUT -p tcp -m string --string "x" --algo bm -j DROP`},
		{`-p udp -m string --string "a" --algo bm -m string --string "b" --algo bm -j DROP`,
			`drop ipv4 udp payload contains "a" payload contains "b"`},
		{`-p udp --dport 27015 -m u32 --u32 "0>>22&0x3C@8=0xFFFFFFFF" -j DROP`,
			"drop ipv4 udp port 27015 payload at 0 ffffffff"},
		{`-p udp -m u32 --u32 "0 >> 22 & 0x3C @ 12 >> 24 & 0xFF = 0x54 && 0>>22&0x3c@16&0xffff=7" ` +
			`-j DROP`, "drop ipv4 udp payload at 4 54000000/ff000000 payload at 8 00000007/0000ffff"},
		{`-p udp -m u32 --u32 "0&0xFFFF=0x54" -j DROP`,
			"drop ipv4 udp len 84"},
		{`-m u32 --u32 "5 & 0xFF = 0:3 && 6&0xFF=1,17" -j DROP`,
			"drop ipv4 proto { icmp, udp } ttl 0-3"},
		{`-p udp -m u32 --u32 "0x1c&0xff00ff=0x200020" -j DROP`,
			"drop ipv4 udp payload at 0 00200020/00ff00ff"},
		{`-m u32 --u32 "0x1c&0xff0=0xfedfffff" -j DROP`, ""},
		{`-p udp -m u32 --u32 "6&0xff=0x0,0x2:0x5,0x7:0x10,0x12:0xff" -j DROP`, ""},
		{`-p udp -m u32 --u32 "0x1a&0xffffffff=0xfeff" -j DROP`,
			`# left out: -A INPUT -p udp -m u32 --u32 "0x1a&0xffffffff=0xfeff" -j DROP`},
		{`-p udp -m u32 --u32 "0>>22&0x3C@8=0x1:0x5" -j DROP`,
			`# left out: -A INPUT -p udp -m u32 --u32 "0>>22&0x3C@8=0x1:0x5" -j DROP`},
		{`-p udp -m u32 ! --u32 "0>>22&0x3C@8=0x1" -j DROP`,
			`# left out: -A INPUT -p udp -m u32 ! --u32 "0>>22&0x3C@8=0x1" -j DROP`},
		{`-p tcp -m u32 --u32 "0>>22&0x3C@8=0x1" -j DROP`,
			`# left out: -A INPUT -p tcp -m u32 --u32 "0>>22&0x3C@8=0x1" -j DROP`},
		{`-p udp -m u32 --u32 "0>>22&0x3C@4=0x1" -j DROP`,
			`# left out: -A INPUT -p udp -m u32 --u32 "0>>22&0x3C@4=0x1" -j DROP`},
		{"-s host.example -j ACCEPT", "# left out: -A INPUT -s host.example -j ACCEPT\n#   " +
			"nearest: pass ipv4"},
		{"-m comment --comment ipv6-icmp -s 192.0.2.1/32 -j DROP", "drop from 192.0.2.1"},
		{`-j LOG --log-prefix "-m "`, "log ipv4"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", c.rule), sets)
			want := strings.ReplaceAll(strings.TrimPrefix(c.want+"\ndefault pass", "\n"),
				"#   nearest: pass ipv4\n", "")
			if d := cmp.Diff(want, rulesOf(text)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if strings.Contains(c.want, "left out") {
				remarksHave(t, rep, "left out|a:4")
			}
		})
	}
	six := "# Generated by ip6tables-save v1.8.9\n*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p " +
		"ipv6-icmp -m icmp6 --icmpv6-type 255 -j DROP\nCOMMIT\n"
	if text, _ := fromIPTables(t, importer.Rulesets{},
		six); rulesOf(text) != "drop icmp6 type 255\ndefault pass" {
		t.Errorf("type 255 of ICMPv6 is a type and not all of them:\n%s", text)
	}
}

// TestTheLabelsOfANameAreTold: what many write against queries is a term of its own.
func TestTheLabelsOfANameAreTold(t *testing.T) {
	_, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", `-p udp -m string --hex-string `+
		`"|03|www|07|example|00|" --algo bm -j DROP`), "")
	for _, r := range rep.Remarks {
		if strings.Contains(r.Instead, "`dns name \"www.example\"`") {
			return
		}
	}
	t.Errorf("%+v", rep.Remarks)
}

// TestSetsWithUnknownOptionsAreRefused shows that an element is not taken for less, or more, than
// it says.
func TestSetsWithUnknownOptionsAreRefused(t *testing.T) {
	for in, want := range map[string]string{
		"create a hash:ip family inet\nadd a 192.0.2.1 unless tuesday\n": `a:2: the element "192.0.2.1" has the option "unless", which levee does not know`,
		"create a list:set size 8\nadd a b upon\n":                       `a:2: the member "b" has the option "upon"`,
	} {
		_, err := iptables.Import([]importer.Source{{Name: "a",
			R: strings.NewReader(in + save("DROP"))}}, &bytes.Buffer{}, importer.Rulesets{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestFilesForRestore shows what of a file that people wrote for iptables-restore is read, and what
// the errors say of the rest.
func TestFilesForRestore(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{},
		"*filter\n:INPUT DROP [0:0]\n:c - [0:0]\n-A INPUT -s 192.0.2.1 -j ACCEPT\n-F INPUT\n-A "+
			"INPUT -p tcp --dport https -j c\n-A c -j ACCEPT\n# see iptables(8)\nCOMMIT\n")
	if d := cmp.Diff("pass ipv4 tcp port 443\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text, _ = fromIPTables(t, importer.Rulesets{},
		"*filter\n:INPUT DROP [0:0]\n# unlike iptables, ping is v6 here\n-A INPUT -s 2001:db8::1 "+
			"-j ACCEPT\nCOMMIT\n")
	if d := cmp.Diff("pass from 2001:db8::1\ndrop ipv6\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	text, _ = fromIPTables(t, importer.Rulesets{},
		"*filter\n:mine [0:0]\n-A mine -s 192.0.2.1 -j ACCEPT\n:INPUT DROP [0:0]\n-A INPUT -j "+
			"mine\nCOMMIT\n")
	if d := cmp.Diff("pass from 192.0.2.1\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for in, want := range map[string]string{
		"*filter\n:INPUT DROP [0:0]\n-D INPUT -j ACCEPT\nCOMMIT\n": "iptables-restore " +
			"FILE; iptables-save",
		"Chain INPUT (policy ACCEPT)\ntarget prot opt source destination\n": "give the output of " +
			"iptables-save",
		"Name: a\nType: hash:net\n": "give the output of " +
			"ipset save",
		"table inet filter {\n}\n":                        "levee import nft",
		"#!/bin/sh\niptables -A INPUT -j DROP\n":          "sh FILE; iptables-save",
		"*filter\n:INPUT DROP [0:0]\n-F OUTPUT\nCOMMIT\n": `a:3: there is no chain "OUTPUT"`,
	} {
		_, err := iptables.Import([]importer.Source{{Name: "a", R: strings.NewReader(in)}},
			&bytes.Buffer{}, importer.Rulesets{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestForwardedPacketsAreSpokenOf shows that rules of INPUT are not let loose on routed packets
// without a word.
func TestForwardedPacketsAreSpokenOf(t *testing.T) {
	_, rep := fromIPTables(t, importer.Rulesets{},
		save("DROP", ":FORWARD DROP [0:0]", "-A FORWARD -s 10.0.0.0/8 -j ACCEPT"))
	remarksHave(t, rep, "changed|chain FORWARD|this machine forwards|dropped where these drop")
	in := strings.Replace(nftInput(`{"drop": null}`), `
]}`, `,
{"chain": {"family": "inet", "table": "f", "name": "fwd", "handle": 7, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
{"rule": {"family": "inet", "table": "f", "chain": "fwd", "handle": 8, "expr": [{"accept": null}]}}
]}`, 1)
	rep, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &bytes.Buffer{},
		importer.Rulesets{})
	if err != nil {
		t.Fatal(err)
	}
	remarksHave(t, rep, "changed|fwd|this machine forwards")
}

// TestVLANInterfaces shows that an interface named as a VLAN of the policy's own is one.
func TestVLANInterfaces(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{Device: "eth0"},
		save("ACCEPT", "-i eth0.100 -p tcp -j DROP", "-i eth0.5000 -j DROP", "-i eth0.0 -j DROP",
			"! -i eth0.7 -j DROP", "-i eth1.9 -j DROP"))
	if d := cmp.Diff("interface eth0\ndrop ipv4 vlan 100 tcp\ndrop ipv4 untagged\n"+
		"drop ipv4 vlan { 1-6, 8-4095 }\ndefault pass",
		rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	remarksHave(t, rep, `changed|a:4|taken for VLAN 100 of eth0`)
	iif := `{"meta": {"key": "iifname"}}`
	for _, c := range []struct{ expr, want string }{
		{match("==", iif, `"eth0.100"`), "interface eth0\ndrop vlan 100 from any\ndefault pass"},
		{match("==", iif, `{"set": ["eth0.100", "eth0.7", "eth1"]}`),
			"interface eth0\ndrop vlan { 7, 100 } from any\ndefault pass"},
		{match("==", iif, `{"set": ["eth0.100", "eth0"]}`),
			"interface eth0\ndrop untagged from any\ndrop vlan 100 from any\ndefault pass"},
		{match("!=", iif, `"eth0.100"`), "interface eth0\ndrop untagged from any\n" +
			"drop vlan { 1-99, 101-4095 } from any\ndefault pass"},
	} {
		var out bytes.Buffer
		if _, err := nft.Import(importer.Source{Name: "a",
			R: strings.NewReader(nftInput(c.expr + dropped))}, &out,
			importer.Rulesets{Device: "eth0"}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, rulesOf(out.String())); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.expr, d)
		}
	}
}

// TestRulesForAnInterfaceAreNotForItsVLANs: a rule about an interface, or about others than a VLAN
// of it, was about the frames of all its VLANs, and passed what the source drops.
func TestRulesForAnInterfaceAreNotForItsVLANs(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{Device: "eth0"}, save("DROP",
		"-i eth0 -p tcp --dport 22 -j ACCEPT", "-i eth0.100 -p tcp --dport 80 -j ACCEPT",
		"! -i eth0.100 -p udp --dport 53 -j ACCEPT", "! -i eth0 -p udp --dport 67 -j ACCEPT",
		"-i eth+ -p udp --dport 123 -j ACCEPT", "-i eth0.+ -p udp --dport 5353 -j ACCEPT"))
	if d := cmp.Diff("interface eth0\npass ipv4 untagged tcp port 22\npass ipv4 vlan 100 tcp port "+
		"80\npass ipv4 untagged udp port 53\npass ipv4 vlan { 1-99, 101-4095 } udp port 53\npass "+
		"ipv4 vlan 1-4095 udp port 67\npass ipv4 udp port 123\npass ipv4 vlan 1-4095 udp port "+
		"5353\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// a comment about a VLAN
	text, _ = fromIPTables(t, importer.Rulesets{Device: "eth0"}, save("DROP",
		`-i eth0 -p tcp --dport 22 -m comment --comment eth0.100 -j ACCEPT`))
	if d := cmp.Diff("interface eth0\npass ipv4 tcp port 22\ndrop ipv4\ndefault pass",
		rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// names that begin as those of some VLANs
	text, _ = fromIPTables(t, importer.Rulesets{Device: "eth0"}, save("DROP",
		"-i eth0.20+ -p tcp --dport 80 -j ACCEPT", "! -i eth0.4+ -p udp --dport 53 -j ACCEPT"))
	if d := cmp.Diff("interface eth0\npass ipv4 vlan { 20, 200-209, 2000-2099 } tcp port 80\n"+
		"pass ipv4 untagged udp port 53\npass ipv4 vlan { 1-3, 5-39, 50-399, 500-3999 } udp "+
		"port 53\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// with other fields, and where nothing names a VLAN
	for names, want := range map[string]string{
		`"eth0", "eth0.7"`: "drop untagged tcp port 22\ndrop vlan 7 tcp port 22\ndefault pass",
		`"eth0", "eth1"`:   "drop tcp port 22\ndefault pass",
	} {
		var elems []string
		for name := range strings.SplitSeq(names, ", ") {
			elems = append(elems, `{"concat": [`+name+`, 22]}`)
		}
		expr := match("==", `{"concat": [{"meta": {"key": "iifname"}}, {"payload": {"protocol": `+
			`"tcp", "field": "dport"}}]}`, `{"set": [`+strings.Join(elems, ", ")+`]}`)
		var out bytes.Buffer
		if _, err := nft.Import(importer.Source{Name: "a",
			R: strings.NewReader(nftInput(expr + dropped))}, &out,
			importer.Rulesets{Device: "eth0"}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff("interface eth0\n"+want, rulesOf(out.String())); d != "" {
			t.Errorf("%s (-want +got):\n%s", names, d)
		}
	}
}

// TestManyNegations shows that what a rule must not have fits into few terms, or is refused with
// the line of the rule.
func TestManyNegations(t *testing.T) {
	rules := []string{}
	for i := range 60 {
		rules = append(rules, fmt.Sprintf(":c%d - [0:0]", i),
			fmt.Sprintf("-A c%d ! -s 10.0.0.%d/32 -j c%d", i, i*2, i+1))
	}
	rules = append(rules, ":c60 - [0:0]", "-j c0", "-A c60 -j DROP")
	text, _ := fromIPTables(t, importer.Rulesets{}, "\ufeff"+save("ACCEPT", rules...))
	if n := strings.Count(text, "10.0.0."); n != 60 || strings.Count(text, " not ") != 1 {
		t.Errorf("%d addresses in\n%s", n, text)
	}
	many := []string{}
	for i, mask := range []string{"SYN,ACK", "SYN,RST", "SYN,FIN", "SYN,PSH", "SYN,URG", "ACK,RST",
		"ACK,FIN", "ACK,PSH", "ACK,URG", "RST,FIN", "RST,PSH", "RST,URG", "FIN,PSH", "FIN,URG",
		"PSH,URG"} {
		for j, value := range []string{mask, "NONE", mask[:3]} {
			n := i*3 + j
			many = append(many, fmt.Sprintf(":c%d - [0:0]", n),
				fmt.Sprintf("-A c%d -p tcp -m tcp ! --tcp-flags %s %s -j c%d", n, mask, value, n+1))
		}
	}
	many = append(many, ":c45 - [0:0]", "-j c0", "-A c45 -j DROP")
	_, err := iptables.Import([]importer.Source{{Name: "a",
		R: strings.NewReader(save("ACCEPT", many...))}}, &bytes.Buffer{}, importer.Rulesets{})
	if err == nil || !strings.Contains(err.Error(), "a:") ||
		!strings.Contains(err.Error(), "more than 32 things") {
		t.Errorf("got %v", err)
	}
}

// TestRulesThatAreNotInTheFile shows that a table which iptables-save could not show is spoken of.
func TestRulesThatAreNotInTheFile(t *testing.T) {
	_, rep := fromIPTables(t, importer.Rulesets{},
		"# Table `mangle' is incompatible, use 'nft' tool.\n"+save("DROP")+
			"# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n")
	remarksHave(t, rep, "a:1: left out|levee import nft")
	remarksHave(t, rep, "a:6: left out|iptables-legacy-save")
}

// TestFilesForIPSetRestore shows what of a file for ipset restore is read.
func TestFilesForIPSetRestore(t *testing.T) {
	sets := "# a feed\ncreate -exist a hash:net family inet\nadd a 192.0.2.0/24\nflush a\nadd " +
		"-exist a 198.51.100.0/24\nadd a 203.0.113.0/24 -exist\nCOMMIT\n"
	text, _ := fromIPTables(t, importer.Rulesets{}, sets,
		save("ACCEPT", "-m set --match-set a src -j DROP",
			"-p icmp -m icmp --icmp-type communication-prohibited -j DROP", "-p isis -j DROP"))
	if d := cmp.Diff("set a = { 198.51.100.0/24, 203.0.113.0/24 }\ndrop from a\ndrop icmp type "+
		"3/13\ndrop ipv4 proto 124\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	_, err := iptables.Import([]importer.Source{{Name: "a",
		R: strings.NewReader("create a hash:net\ncreate b hash:net\nswap a b\n")}}, &bytes.Buffer{},
		importer.Rulesets{})
	if err == nil || !strings.Contains(err.Error(), "a:3") ||
		!strings.Contains(err.Error(), "ipset restore < FILE; ipset save") {
		t.Errorf("got %v", err)
	}
}

// TestAnswersOfDHCP shows that a ruleset which drops them without meaning it is spoken of, for a
// DHCP client reads them before netfilter's INPUT.
func TestAnswersOfDHCP(t *testing.T) {
	six := "# Generated by ip6tables-save v1.8.9\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n"
	for name, c := range map[string]struct {
		in   []string
		said bool
	}{
		"a policy of one family": {[]string{save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT")},
			true},
		"a reject at the end": {[]string{save("ACCEPT", "-p tcp -m tcp --dport 22 -j ACCEPT",
			"-j REJECT"), six}, true},
		"all but some destinations": {[]string{save("ACCEPT", "! -d 224.0.0.0/4 -p udp -j DROP")},
			true},
		"both policies": {[]string{save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"),
			six}, false},
		"accept": {[]string{save("ACCEPT", "-p udp -m udp --dport 53 -j DROP")},
			false},
		"a rule that passes them": {[]string{save("DROP",
			"-p udp -m udp --sport 67 --dport 68 -j ACCEPT")}, false},
		"a rule that passes UDP": {[]string{save("DROP", "-p udp -j ACCEPT")}, false},
		"a rule about one server": {[]string{save("DROP", "-s 192.0.2.1/32 -p udp -j ACCEPT")},
			true},
		"a drop of one network only": {[]string{save("ACCEPT", "-s 192.0.2.0/24 -j DROP")}, false},
	} {
		var out bytes.Buffer
		var in []importer.Source
		for i, s := range c.in {
			in = append(in, importer.Source{Name: string(rune('a' + i)), R: strings.NewReader(s)})
		}
		rep, err := iptables.Import(in, &out, importer.Rulesets{})
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, r := range rep.Remarks {
			said = said || strings.Contains(r.Text, "DHCP client are dropped")
		}
		if said != c.said {
			t.Errorf("%s: said %v\n%s", name, said, out.String())
		}
	}
}

// TestAcceptByStateBehindAReturn has the layout that fail2ban makes: what comes back from a chain
// for one port meets a rule that accepts new connections to that port. Before, the RETURN put a
// copy of all that follows the jump in its place: 16 rules became 53.
func TestAcceptByStateBehindAReturn(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{},
		"*filter\n:INPUT DROP [0:0]\n:f2b-sshd - [0:0]\n"+
			"-A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd\n"+
			"-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j ACCEPT\n"+
			"-A f2b-sshd -s 203.0.113.7/32 -j DROP\n-A f2b-sshd -j RETURN\nCOMMIT\n")
	want := "drop tcp from 203.0.113.7 port 22\n" +
		"pass ipv4 tcp syn port 22\ndrop ipv4\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
