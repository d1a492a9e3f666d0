package importer_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/pf"
)

// fromPF imports a pf.conf and gives the statements, without those for packets of connections.
func fromPF(t *testing.T, in string, opts importer.Rulesets) (string, importer.Imported) {
	t.Helper()
	var out bytes.Buffer
	rep, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &out, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, in)
	}
	checkImported(t, out.Bytes(), rep)
	var lines []string
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, `as "keep state`) {
			lines = append(lines, line)
		}
	}
	text := strings.TrimPrefix(rulesOf(strings.Join(lines, "")), "fragments track\n")
	return strings.TrimSuffix(text, "\ndefault pass"), rep
}

func TestPF(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"the last match decides", "block all\npass in proto udp\nblock in proto udp to port 53\n",
			"drop udp port 53\npass udp\ndefault drop"},
		{"quick rules come first", "block quick inet6\npass in all no state\nblock in quick from " +
			"10/8\nblock out quick all\n", "drop ipv6\ndrop from 10.0.0.0/8\npass from any\n" +
			"out drop ipv6\nout drop from any"},
		{"a pass is for SYNs", "pass in proto tcp to port ssh\n",
			"pass tcp flags syn/syn,ack port 22"},
		{"of all protocols", "pass in\n", "pass tcp flags syn/syn,ack\npass not tcp"},
		{"unless it says otherwise", "pass in proto tcp to port { www https } flags any\n",
			"pass tcp port { 80, 443 }"},
		{"flags of one's own", "block in proto tcp flags FUP/WEUAPRSF\n",
			"drop tcp flags fin,psh,urg/fin,syn,rst,psh,ack,urg,ece,cwr"},
		{"macros in lists in macros", "a = \"192.0.2.1\"\nb = \"{ 192.0.2.9, 2001:db8::/32 }\"\n" +
			"c = { $a $b }\nblock in from $c to port 25\n",
			"drop from { 192.0.2.1, 192.0.2.9, 2001:db8::/32 } port 25"},
		{"comparisons of ports", "block in proto udp to port { 1:5 7 >< 10 > 65000 }\n" +
			"block in proto udp to port 20 <> 65530\n",
			"drop udp not port 20-65530\ndrop udp port { 1-5, 8-9, 65001-65535 }"},
		{"tables", "table <a> { 10/8, !10.1/16 }\ntable <b> persist\nblock in from <a>\n" +
			"block in quick from ! <b>\n", "set a = { 10.0.0.0/16, " +
			"10.2.0.0-10.255.255.255 }\nset b = dynamic(max 200000)\ndrop not from b\ndrop from a"},
		// the last file was all that it had
		{"a table of several files", "table <a> persist file \"/etc/a\" file \"/etc/b\"\n" +
			"block in from <a>\n",
			"set a = dynamic(max 200000, from file(\"a.txt\"))\ndrop from a"},
		{"icmp", "block in inet proto icmp icmp-type { echoreq, unreach code needfrag, 11 }\n" +
			"block in proto icmp6 icmp6-type { neighbrsol 1 code 4 }\n",
			"drop icmp6 type { 1/4, 135 }\ndrop icmp type { 3/4, 8, 11 }"},
		{"rates of connections", "pass in proto tcp to port 22 keep state (max-src-conn-rate " +
			"5/60, overload <bad>)\n", "limit tcp syn port 22 rate 5/m burst 5 by source\n" +
			"pass tcp flags syn/syn,ack port 22"},
		{"a rule over lines", "block in \\\n proto tcp \\\n to port 23 # telnet\n",
			"drop tcp port 23"},
		{"an anchor with rules",
			"anchor x inet {\n block in proto udp\n pass in proto udp to port " +
				"53 no state\n}\n", "pass ipv4 udp port 53\ndrop ipv4 udp"},
		{"what only pf knows",
			"block in from urpf-failed\nblock in from { em0:network 192.0.2.1 }\n",
			"set em0-network = dynamic(max 4096, from file(\"em0-network.txt\"))\n" +
				"drop from em0-network\ndrop from 192.0.2.1\ndrop not reverse-path strict"},
		{"a lookup of the system", "block in proto tcp from any os \"Windows\" to port 22\n",
			`# left out: block in proto tcp from any os Windows to port 22`},
		{"codes by name", "block in inet proto icmp icmp-type { unreach code net-unk " +
			"unreach code isolate, paramprob code optmiss }\n" +
			"block in proto icmp6 icmp6-type unreach code noroute-unr\n",
			"drop icmp6 type 1/0\ndrop icmp type { 3/6, 3/8, 12/1 }"},
		{"antispoof of the loopback", "block in\nantispoof quick for lo\n" +
			"antispoof quick for { lo0 em0 } inet\n",
			"drop from { 127.0.0.0/8, ::1 }\ndrop ipv4 from self\n" +
				"default drop"},
		{"a list that is given up", "block in proto tcp to port { nosuch, ssh } flags S/S\n" +
			"block in proto udp\n", "drop udp\n# left out: block in proto tcp to port " +
			"{ nosuch , ssh } flags S/S"},
		{"what is not an address is of its family", "block in proto udp from !2001:db8::/32\n" +
			"pass in proto udp from { 192.0.2.1 !10/8 } to port 5432 no state\n",
			"pass ipv4 udp not from 10.0.0.0/8 port 5432\npass udp from 192.0.2.1 port 5432\n" +
				"drop ipv6 udp not from 2001:db8::/32"},
		{"services", "block in proto tcp to port { smtps pptp }\n", "drop tcp port { 465, 1723 }"},
		{"limits", "pass in proto tcp to port 22 (max-src-conn 5, overload <x>)\n",
			"# left out: pass in proto tcp to port 22 ( max-src-conn 5 , overload < x > )\n" +
				"#   nearest: pass tcp flags syn/syn,ack port 22"},
		// which are of TCP alone; it was told as a limit that the rule lacks
		{"limits of connections of UDP", "pass in proto udp to port 53 keep state " +
			"(max-src-conn-rate 50/3, overload <x>)\n", "pass udp port 53"},
		// the whole file was refused
		{"limiters", "source limiter \"net\" id 1 entries 10000 \\\n limit 1000 rate 100/10 \\\n " +
			"inet6 mask 64\nblock in\npass in proto udp source limiter \"net\"\npass in proto " +
			"tcp to port 53 state limiter net (no-match)\n",
			"pass tcp flags syn/syn,ack port 53\npass udp\ndefault drop"},
		{"limits of states", "pass in proto tcp to port 22 keep state (max-src-conn 5)\n",
			"pass tcp flags syn/syn,ack port 22"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := fromPF(t, c.in, importer.Rulesets{})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPFDevice(t *testing.T) {
	const in = "set skip on lo0\nblock in on em0 proto udp\nblock in on ! em0 proto sctp\n" +
		"block in on { em1 em2 } proto esp\nblock in on em proto gre\nblock in on egress proto " +
		"ah\n" +
		"block in on lo0 all\n"
	got, _ := fromPF(t, in, importer.Rulesets{Device: "em0"})
	if d := cmp.Diff("interface em0\ndrop ah\ndrop gre\ndrop udp", got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	got, rep := fromPF(t, "set skip on { lo0 em0 }\nblock all\n", importer.Rulesets{Device: "em0"})
	if got != "interface em0" && got != "interface em0\ndefault pass" {
		t.Errorf("%q", got)
	}
	remarksHave(t, rep, "note|leaves the interface")
}

// The room for states was left out without a word.
func TestThePlacesForStatesOfPFAreCarried(t *testing.T) {
	for in, want := range map[string]string{
		"set limit states 20000\n":                  "connections max 20000\n",
		"set limit { src-nodes 9, states 20000 }\n": "connections max 20000\n",
		"set limit states 4294967295\n":             "connections max 4194304\n",
		"set limit states 4294967296\n":             "", // no pf takes it
		"set limit frags 20000\n":                   "",
	} {
		for rules, keeps := range map[string]bool{"block in\npass in proto tcp to port 22\n": true,
			"block in proto udp\n": false} {
			got, _ := fromPF(t, in+rules, importer.Rulesets{})
			line := ""
			for l := range strings.Lines(got) {
				if strings.HasPrefix(l, "connections") {
					line = l
				}
			}
			if !keeps && line != "" || keeps && line != want {
				t.Errorf("%q with %q: %q", in, rules, line)
			}
		}
	}
}

// The summary said that with 0 rules more may pass, beside remarks of a table and of states by
// which more does.
func TestPFCountsWhatWidens(t *testing.T) {
	for _, c := range []struct {
		in, remark string
		widened    int
		states     bool
	}{
		{"table <a> { 192.0.2.1, bad.example }\nblock in from <a>\nblock in from ! <a>\n",
			`which lacks "bad.example"`, 1, false},
		{"table <a> { 10/8, ! bad.example }\nblock in\npass in from <a> no state\n" +
			"pass in from ! <a> no state\n", `which lacks "bad.example"`, 1, false},
		{"block in\npass in proto tcp to port 22\n", "told by their headers", 0, true},
		{"table <a> { bad.example }\nblock in proto udp\n", "is not an address", 0, false},
		// A note said that Linux drops what comes from there, which it does no more (5.12).
		{"table <a> { ::ffff:0:0/96, 192.0.2.0/24 }\nblock in from <a>\n",
			"no policy has IPv4-mapped", 1, false},
		// The half of ICMP was gone without a word.
		{"block in proto { icmp tcp } to port 80\n", "ports of protocols that have none", 0, false},
	} {
		_, rep := fromPF(t, c.in, importer.Rulesets{Stateless: true})
		if rep.Fates.Widened != c.widened || rep.Fates.States != c.states {
			t.Errorf("%s%s", c.in, rep.Fates)
		}
		if !slices.ContainsFunc(rep.Remarks, func(r importer.Remark) bool {
			return strings.Contains(r.Text, c.remark)
		}) {
			t.Errorf("%sno remark says %q: %v", c.in, c.remark, rep.Remarks)
		}
	}
}

func TestPFRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "a:1: no rules",
		"iptables -A INPUT\n":            `a:1: "iptables" is no statement`,
		"pass in from $x\n":              `a:1: there is no macro "$x"`,
		"pass in \"abc\n":                "a:1: a quote is not closed",
		"pass in proto { tcp\n":          "a:1: a brace is not closed",
		"anchor {\npass\n":               "a brace is not closed",
		strings.Repeat("anchor {\n", 99): "nested too deep",
	} {
		var out bytes.Buffer
		_, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &out,
			importer.Rulesets{})
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v, %d bytes", in, err, out.Len())
		}
	}
	// Macros of macros would grow without a bound.
	var b strings.Builder
	b.WriteString("a0 = { 1 1 1 1 1 1 1 1 }\n")
	for i := range 20 {
		b.WriteString(strings.ReplaceAll("aN = { $aM $aM $aM $aM $aM $aM $aM $aM }\n", "N",
			string(rune('b'+i))))
	}
	text := b.String()
	for i := range 20 {
		prev := "0"
		if i > 0 {
			prev = string(rune('b' + i - 1))
		}
		text = strings.Replace(text, strings.Repeat("$aM ", 8), strings.Repeat("$a"+prev+" ", 8), 1)
	}
	_, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader(text)}, &bytes.Buffer{},
		importer.Rulesets{})
	if err == nil || !strings.Contains(err.Error(), "macros make it more than") {
		t.Errorf("%v", err)
	}
}

// TestRedirectsThatPass: what rdr sends to another machine without a look at the rules was dropped
// by these; what it sends there with one was judged by the rules for the old destination.
func TestRedirectsThatPass(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"rdr pass log on em0 inet proto tcp from any to any port 1000:1002 -> 192.0.2.1 port " +
			"22\nblock in all\n", "log ipv4 tcp port 1000-1002\npass ipv4 tcp port " +
			"1000-1002\ndefault drop"},
		{"rdr on em0 proto tcp to port 80 -> 192.0.2.1 port 8080\nblock in all\npass in inet " +
			"proto tcp to 192.0.2.1 port 8080 flags any\npass in proto tcp to self\n",
			"pass ipv4 tcp port 80\npass tcp flags syn/syn,ack to self\npass tcp to 192.0.2.1 " +
				"port 8080\ndefault drop"},
		{"binat on em0 from 192.0.2.1 to any -> 198.51.100.1\nblock in all\npass in inet proto " +
			"tcp to 192.0.2.1 port 22 flags any\n", "pass tcp to 198.51.100.1 port 22\n" +
			"drop to 198.51.100.1\npass tcp to 192.0.2.1 port 22\ndefault drop"},
		{"rdr pass on lo0 proto tcp to port 80 -> 127.0.0.1 port 8080\nblock in all\n",
			"default drop"},
		{"no rdr on em0 proto tcp from 10/8 to port 22\nrdr pass on em0 inet proto tcp to " +
			"port 22 -> 192.0.2.1\nblock in all\n", "drop tcp from 10.0.0.0/8 port 22\n" +
			"pass ipv4 tcp port 22\ndefault drop"},
	} {
		got, rep := fromPF(t, c.in, importer.Rulesets{Device: "em0"})
		var lines []string
		for line := range strings.Lines(got) {
			if !strings.Contains(line, " established") {
				lines = append(lines, line)
			}
		}
		got = strings.ReplaceAll(strings.TrimPrefix(strings.Join(lines, ""), "interface em0\n"),
			"fragments track\n", "")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s(-want +got):\n%s", c.in, d)
		}
		if rep.Fates.Widened != 0 {
			t.Errorf("%s%s", c.in, rep.Fates)
		}
	}
}

// TestWhatIsNotRedirected: pf goes by the first translation, so that rules judge what one in front
// of `rdr pass` is for; it passed, and nobody said so. Then any was said to widen, also one that is
// for other packets.
func TestWhatIsNotRedirected(t *testing.T) {
	for front, widened := range map[string]int{
		"no rdr on em0 proto tcp from 10/8 to port 22\n":                0,
		"rdr on em0 proto tcp from 10/8 to port 22 -> 192.0.2.2\n":      0,
		"rdr on em0 proto udp from any to port 53 -> 192.0.2.2\n":       0,
		"rdr on em0 proto tcp to port 21 -> { 192.0.2.2, 192.0.2.3 }\n": 0,
		"rdr on em0 proto tcp to port 21 -> <hosts> round-robin\n":      1,
		"rdr on em0 proto tcp to port 21 -> { 127.0.0.1, 192.0.2.3 }\n": 1,
		"rdr on em0 proto tcp to port 21:23 -> 192.0.2.2 port 21:*\n":   0,
		"rdr on em0 proto tcp to any -> 192.0.2.2 port 65000:*\n":       1,
		"rdr on em0 proto tcp to port 21 tagged a -> 192.0.2.2\n":       2,
		"rdr pass on em0 proto tcp to port 21 tagged a -> 192.0.2.2\n":  1,
		"rdr-anchor \"a\"\n": 1,
		"match in on em0 proto tcp to port 80 rdr-to 192.0.2.2\n":           1,
		"match out on em0 nat-to (em0)\nset block-policy return\n":          0,
		"rdr on em1 proto tcp from 10/8 to port 22 tagged a -> 192.0.2.2\n": 0,
	} {
		_, rep := fromPF(t, front+"rdr pass on em0 proto tcp to port 22 -> 192.0.2.1\n"+
			"block in all\n", importer.Rulesets{Device: "em0"})
		if rep.Fates.Widened != widened {
			t.Errorf("%s%s", front, rep.Fates)
		}
		switch {
		case strings.Contains(front, "rdr-to"):
			remarksHave(t, rep, "changed, widens|rdr-to of match changes destinations")
		case strings.HasPrefix(front, "match out"):
			remarksHave(t, rep, "changed|block becomes a drop")
		case widened == 2:
			remarksHave(t, rep, "changed, widens|and a policy has no words for which packets")
		case strings.Contains(front, "anchor"):
			remarksHave(t, rep, "changed, widens|a translation in front of it")
		case widened > 0 && !strings.Contains(front, "tagged"):
			remarksHave(t, rep, "changed, widens|to one that a policy cannot follow")
		}
	}
}

// TestNoRdrBesideASetOfTheOtherFamily: a no rdr for one address was not carried over, and its
// packets were dropped as those of the rdr behind it. A rule of IPv6 alone asks for a set that is
// filled at run time.
func TestNoRdrBesideASetOfTheOtherFamily(t *testing.T) {
	got, rep := fromPF(t, "no rdr on em0 inet proto tcp to 198.51.100.10 port 22\n"+
		"rdr on em0 inet proto tcp to port 22 -> 198.18.0.5 port 68\nblock all\n"+
		"pass in inet proto tcp to port 22 no state\npass quick inet6 proto tcp to <some> port 22 "+
		"no state\n", importer.Rulesets{Device: "em0"})
	if rep.Fates.Widened > 0 || !strings.Contains(got, "pass tcp to 198.51.100.10 port 22") {
		t.Errorf("%s\n%s", rep.Fates, got)
	}
}

// TestMatchRulesTranslateForWhatIsBehindThem: each `match ... rdr-to` was judged as it arrives, so
// that the rule for the server behind it let nothing in.
func TestMatchRulesTranslateForWhatIsBehindThem(t *testing.T) {
	const behind = "pass in proto tcp to 10.0.0.10 port 22\npass in proto tcp to { 10.0.0.11, " +
		"10.0.0.12 } port 80\n"
	const ssh = "match in on egress inet proto tcp to (egress) port 8022 rdr-to 10.0.0.10 port 22\n"
	const web = "match in on egress proto tcp to port 80 rdr-to { 10.0.0.11, 10.0.0.12 } " +
		"round-robin sticky-address\n"
	for rules, widened := range map[string]int{
		"block in\n" + web + ssh + behind:                                          0,
		"block in\n" + ssh + "block in proto tcp to port 22\n" + behind:            0,
		"block in quick from 10/8\n" + ssh + behind:                                0,
		"block in\nblock in quick proto udp to port 53\n" + ssh + behind:           0,
		"block in quick proto tcp to port 22\n" + ssh + behind:                     1,
		"block in\n" + ssh + "match in proto tcp to 10.0.0.10 rdr-to 10.0.0.9\n":   1,
		"block in\nanchor \"a\" {\n" + ssh + "}\n" + behind:                        1,
		"block in\n" + web + "pass in proto tcp to 10.0.0.11 port 80\n":            1,
		"block in\nmatch in proto tcp to port 80 tagged a rdr-to 10.0.0.9\n":       1,
		"block in\nmatch in proto tcp to port 80 rdr-to 10.0.0.9 port 81 prio 3\n": 1,
		"block in\nanchor \"a\" {\nmatch in proto tcp to port 80 rdr-to 10.0.0.9 port 81\n}\n" +
			"match in proto tcp to port 80 rdr-to 10.0.0.10\n" + behind: 2,
		"block in\nmatch in proto tcp to port 80 tagged a rdr-to 10.0.0.9 port 81\n" +
			"match in proto tcp to port 80 rdr-to 10.0.0.10\n" + behind: 2,
		"table <t> { 10.0.0.11 }\nblock in\nmatch in proto tcp to port 80 rdr-to { 10.0.0.10 <t> " +
			"}\npass in proto tcp to 10.0.0.11 port 80\n": 1,
	} {
		got, rep := fromPF(t, rules, importer.Rulesets{Device: "em0"})
		if rep.Fates.Widened != widened {
			t.Errorf("%s%s\n%s", rules, rep.Fates, got)
		}
		if widened > 0 {
			remarksHave(t, rep, "changed, widens|they are judged as they arrive")
		} else if !strings.Contains(got, "pass ipv4 tcp flags syn/syn,ack to self port 8022") {
			t.Errorf("%s\n%s", rules, got)
		}
	}
}

// TestCarpIsAProtocol: each pfSense says `no rdr proto carp`, which was said to widen.
func TestCarpIsAProtocol(t *testing.T) {
	_, rep := fromPF(t, "no rdr proto carp all\nrdr on em0 proto tcp to port 80 -> 10.0.0.9\n"+
		"block in\npass in proto { carp pfsync }\npass in proto tcp to 10.0.0.9 port 80\n",
		importer.Rulesets{Device: "em0"})
	if rep.Fates.Widened != 0 || rep.Fates.LeftOut != 0 {
		t.Error(rep.Fates, rep.Remarks)
	}
}

// TestRedirectsToLoopback: 127.0.0.1 was taken for no address of this machine, so that a block of
// what comes to `self` was lost behind an rdr to a proxy, and nobody said so.
func TestRedirectsToLoopback(t *testing.T) {
	for rules, widened := range map[string]int{
		"pass in all\nblock in proto tcp to self port 3128\n":                            1,
		"pass in all\nblock in proto tcp to ! self port 3128\n":                          1,
		"block in all\npass in inet proto tcp to 127.0.0.1 port 3128\n":                  0,
		"block in all\npass in proto tcp to self port 22\npass in proto udp to ! self\n": 0,
	} {
		_, rep := fromPF(t, "rdr on em0 inet proto tcp to port 80 -> 127.0.0.1 port 3128\n"+rules,
			importer.Rulesets{Device: "em0"})
		if rep.Fates.Widened != widened {
			t.Errorf("%s%s", rules, rep.Fates)
		}
		remarksHave(t, rep, map[int]string{1: "changed, widens|rdr changes the destination",
			0: "note|sends these to another destination: they are judged"}[widened])
	}
}

// TestTranslationsThatAreTooMany: all of them were lost, and nobody said so.
func TestTranslationsThatAreTooMany(t *testing.T) {
	var hosts strings.Builder
	for i := range 21_000 {
		fmt.Fprintf(&hosts, " 10.%d.%d.%d", i>>14, i>>7&127, i&127*2)
	}
	got, rep := fromPF(t, "rdr on em0 inet proto tcp from {"+hosts.String()+" } to port 80 -> "+
		"192.0.2.1 port 22\nblock in all\npass in inet proto tcp to port 80\n",
		importer.Rulesets{Device: "em0"})
	if rep.Fates.Widened != 1 || strings.Contains(got, "10.0.") {
		t.Errorf("%s", rep.Fates)
	}
	remarksHave(t, rep, "changed, widens|not imported, 1 rule: it rewrites destinations")
}

// TestNoRdrBehindAllDecidesNothing: beside a limit it was one that a policy cannot follow.
func TestNoRdrBehindAllDecidesNothing(t *testing.T) {
	_, rep := fromPF(t, "no rdr\nblock in\npass in proto tcp to port 22 (max-src-conn-rate 5/60)\n",
		importer.Rulesets{})
	if rep.Fates.Given != 2 || rep.Fates.Widened != 0 {
		t.Errorf("%s", rep.Fates)
	}
}

// TestAnchorsWithMoreThanOneMatchAreFollowed: the rules of an anchor that is quick, or asks for one
// of several hosts, were not known.
func TestAnchorsWithMoreThanOneMatchAreFollowed(t *testing.T) {
	got, rep := fromPF(t, "anchor \"a\" quick proto udp from { 192.0.2.1 <t> } {\nblock\npass to "+
		"port 53 no state\n}\nblock proto udp\ntable <t> { 10/8 }\n", importer.Rulesets{})
	const want = "set t = { 10.0.0.0/8 }\npass udp from t port 53\npass udp from 192.0.2.1 port " +
		"53\ndrop udp from t\ndrop udp from 192.0.2.1\ndrop udp"
	if d := cmp.Diff(want, got); d != "" || rep.Fates.LeftOut != 0 {
		t.Errorf("(-want +got):\n%s%s", d, rep.Fates)
	}
}

// TestWhoIsBlockedByPFKeepsHisConnections: pf looks for a connection before any rule, so that the
// answers of a blocked host pass. The rule for connections stood behind blocks of sources.
func TestWhoIsBlockedByPFKeepsHisConnections(t *testing.T) {
	var out bytes.Buffer
	_, err := pf.Import(importer.Source{Name: "a", R: strings.NewReader("table <bad> { 10/8 }\n" +
		"block in quick from <bad>\nblock in\npass out keep state\n")}, &out, importer.Rulesets{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "set bad = { 10.0.0.0/8 }\nfragments track\npass established\ndrop from bad\n" +
		"default drop"
	if d := cmp.Diff(want, rulesOf(out.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
