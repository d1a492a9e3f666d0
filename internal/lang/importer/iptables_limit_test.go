package importer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
)

// TestRecentIsALimit: drops of addresses that came too often were left out, and what hands them to
// a chain that logs and rejects too.
func TestRecentIsALimit(t *testing.T) {
	const of = "-p tcp -m tcp --dport 22 -m state --state NEW -m recent "
	const set, hit = of + "--set --name s --mask 255.255.255.255 --rsource",
		of + "--update --seconds 60 --hitcount 4 --name s --mask 255.255.255.255 --rsource"
	const syns, fresh = "ipv4 tcp syn port 22", "ipv4 tcp port 22 not established"
	for _, c := range []struct {
		name  string
		rules []string
		want  string
	}{
		{"counted before", []string{set, hit + " -j DROP"},
			"fragments track\ncount " + syns + "\nlimit " + fresh +
				" rate 3/m burst 3 by source\ndefault pass"},
		{"counted behind", []string{hit + " -j DROP", set + " -j ACCEPT"},
			"fragments track\nlimit " + fresh + " rate 4/m burst 4 by source\npass " + syns +
				"\ndefault pass"},
		{"a chain that rejects", []string{":no - [0:0]", set, hit + " -j no",
			"-A no -m limit --limit 3/min -j LOG", "-A no -j REJECT"},
			"fragments track\ncount " + syns + "\nlimit " + fresh +
				" rate 3/m burst 3 by source\ndefault pass"},
		{"networks", []string{strings.ReplaceAll(set, "255.255.255.255", "255.255.255.0"),
			strings.ReplaceAll(hit, "255.255.255.255", "255.255.255.0") + " -j DROP"},
			"fragments track\ncount " + syns + "\nlimit " + fresh +
				" rate 3/m burst 3 by source/24\ndefault pass"},
		{"an odd time", []string{strings.ReplaceAll(set, "60", "7"),
			strings.ReplaceAll(hit, "60", "7") + " -j DROP"},
			"fragments track\ncount " + syns + "\nlimit " + fresh +
				" rate 37029/d burst 3 by source\ndefault pass"},
		{"other packets are counted",
			[]string{strings.ReplaceAll(set, "22", "23"), hit + " -j DROP"},
			"count ipv4 tcp syn port 23\n# left out"},
		{"two that count", []string{set, set, hit + " -j DROP"},
			"fragments track\ncount " + syns + "\ncount " + syns + "\nlimit " + fresh +
				" rate 3/m burst 3 by source\ndefault pass"},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", c.rules...))
		got := rulesOf(text)
		if i := strings.Index(got, "# left out"); i >= 0 {
			got = got[:i+len("# left out")]
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if rep.Fates.Widened != 1 {
			t.Errorf("%s: %+v", c.name, rep.Fates)
		}
	}
}

// TestSYNPROXYIsACookie: who answers SYNs in the host's place was left out, and so was the service
// behind it.
func TestSYNPROXYIsACookie(t *testing.T) {
	const of = "-m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --mss 1460"
	text, rep := fromIPTables(t, importer.Rulesets{}, save("DROP", "-p tcp -m tcp --dport 80 "+of,
		"-p tcp -m ttl --ttl-gt 9 "+of))
	if d := cmp.Diff("cookie ipv4 tcp port 80\npass ipv4 tcp syn port 80\n"+
		"pass ipv4 tcp syn ttl 10-255\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	remarksHave(t, rep, "changed, widens|ttl-gt|these pass as they come")
	text, _ = nftImport(t, nftInput(match("==", payload("tcp", "dport"), "80")+
		`, {"synproxy": {"mss": 1460}}`), importer.Rulesets{})
	if want := "cookie tcp port 80\npass tcp syn port 80\ndefault pass"; rulesOf(text) != want {
		t.Errorf("got\n%s", text)
	}
	text, _ = fromPF(t, "pass in proto tcp to port 25 synproxy state\n", importer.Rulesets{})
	if want := "cookie tcp port 25\npass tcp flags syn/syn,ack port 25"; text != want {
		t.Errorf("got\n%s", text)
	}
}

// TestLimitsOfLogsWidenNothing: a limit that keeps packets from a log alone was said to widen.
func TestLimitsOfLogsWidenNothing(t *testing.T) {
	_, rep := fromIPTables(t, importer.Rulesets{}, save("DROP", ":deny - [0:0]",
		"-m limit --limit 3/min -j deny", "-j DROP",
		"-A deny -m conntrack --ctstate INVALID -m limit --limit 3/min -j RETURN",
		"-A deny -m limit --limit 3/min -j LOG --log-prefix \"x \""))
	if rep.Fates.Widened != 0 {
		t.Errorf("%+v\n%v", rep.Fates, rep.Remarks)
	}
}

// TestLimitsCarry: of rules with a limit those that drop were left out, and the others stood
// without it, though levee has limits.
func TestLimitsCarry(t *testing.T) {
	const syn = "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN "
	const above = "-m hashlimit --hashlimit-above 20/sec --hashlimit-burst 40 " +
		"--hashlimit-name x --hashlimit-mode "
	for _, c := range []struct {
		name, policy string
		rules        []string
		want         string
		widened      int
	}{
		{"a chain that returns and drops", "ACCEPT", []string{":flood - [0:0]", syn + "-j flood",
			"-A flood -m limit --limit 25/sec --limit-burst 50 -j RETURN", "-A flood -j DROP"},
			"limit ipv4 tcp syn rate 25/s burst 50\ndefault pass", 0},
		{"an accept in front of its drop", "ACCEPT", []string{
			syn + "-m limit --limit 10/min -j ACCEPT", syn + "-j DROP"},
			"limit ipv4 tcp syn rate 10/m burst 5\npass ipv4 tcp syn\ndefault pass", 0},
		{"an accept in front of the policy", "DROP", []string{
			"-p icmp -m icmp --icmp-type 8 -m limit --limit 1/sec -j ACCEPT",
			"-m state --state RELATED,ESTABLISHED -j ACCEPT"},
			"fragments track\nlimit icmp type 8 rate 1/s burst 5\npass icmp type 8\n" +
				"pass ipv4 established\ndrop ipv4\ndefault pass", 0},
		{"an accept in front of another", "DROP", []string{
			"-p udp -m udp --dport 53 -m limit --limit 9/hour -j ACCEPT",
			"-s 10.0.0.0/8 -p udp -j ACCEPT"},
			"pass ipv4 udp port 53\npass udp from 10.0.0.0/8\ndrop ipv4\ndefault pass", 1},
		{"a drop above, by source", "ACCEPT",
			[]string{syn + above + "srcip -j DROP"},
			"limit ipv4 tcp syn rate 20/s burst 40 by source\ndefault pass", 0},
		{"a drop above, by networks", "ACCEPT",
			[]string{syn + above + "srcip --hashlimit-srcmask 24 -j DROP"},
			"limit ipv4 tcp syn rate 20/s burst 40 by source/24\ndefault pass", 0},
		{"a drop above, by source and the one port", "ACCEPT",
			[]string{"-p tcp -m tcp --dport 80 " + above + "srcip,dstport -j DROP"},
			"limit ipv4 tcp port 80 rate 20/s burst 40 by source\ndefault pass", 0},
		{"a drop above, by source and each port", "ACCEPT",
			[]string{"-p udp " + above + "srcip,dstport -j DROP"},
			"# left out: -A INPUT -p udp " + above + "srcip,dstport -j DROP\ndefault pass", 1},
		{"two drops that count in one table", "ACCEPT",
			[]string{"-p tcp " + above + "srcip -j DROP", "-p udp " + above + "srcip -j DROP"},
			"# left out: -A INPUT -p tcp " + above + "srcip -j DROP\n# left out: -A INPUT -p udp " +
				above + "srcip -j DROP\ndefault pass", 2},
		{"a limit that other packets use up", "ACCEPT", []string{
			"-p tcp -m limit --limit 5/sec -m tcp --dport 80 -j ACCEPT", "-p tcp -j DROP"},
			"limit ipv4 tcp rate 5/s burst 5\npass ipv4 tcp port 80\ndrop ipv4 tcp\n" +
				"default pass", 0},
		{"one that packets use up which pass otherwise", "ACCEPT", []string{
			"-p tcp -m limit --limit 5/sec -m tcp --dport 80 -j ACCEPT", "-p tcp --dport 22 " +
				"-j ACCEPT", "-p tcp -j DROP"}, "limit ipv4 tcp port 80 rate 5/s burst 5\n" +
			"pass ipv4 tcp port 80\npass ipv4 tcp port 22\ndrop ipv4 tcp\ndefault pass", 1},
		{"a burst that is less than what comes in 10 ms", "ACCEPT", []string{
			"-p udp -m limit --limit 1000/sec -j ACCEPT", "-p udp -j DROP"},
			"limit ipv4 udp rate 1000/s burst 10\npass ipv4 udp\ndefault pass", 1},
		{"a burst that takes more than 30 days to come back", "ACCEPT", []string{
			"-p udp -m limit --limit 1/day --limit-burst 31 -j ACCEPT", "-p udp -j DROP"},
			"pass ipv4 udp\ndefault pass", 1},
		{"bytes", "ACCEPT", []string{"-p udp -m hashlimit --hashlimit-above 512kb/s " +
			"--hashlimit-mode srcip --hashlimit-name x -j DROP"},
			"# left out: -A INPUT -p udp -m hashlimit --hashlimit-above 512kb/s " +
				"--hashlimit-mode srcip --hashlimit-name x -j DROP\ndefault pass", 1},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save(c.policy, c.rules...))
		if d := cmp.Diff(c.want, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if rep.Fates.Widened != c.widened {
			t.Errorf("%s: %+v", c.name, rep.Fates)
		}
	}
	_, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", syn+
		"-m connlimit --connlimit-above 9 --connlimit-mask 32 --connlimit-saddr -j DROP"))
	remarksHave(t, rep, "left out, widens|counts connections that are open|no word for that")
}

// TestLimitsOfNFTCarry is TestLimitsCarry for nft.
func TestLimitsOfNFTCarry(t *testing.T) {
	const over = `{"limit": {"rate": 5, "burst": 9, "per": "minute", "inv": true}}`
	by := `"elem": ` + payload("ip", "saddr") + `, "set": "@s", "stmt": [` + over + `]`
	for expr, want := range map[string]string{
		match("==", payload("udp", "dport"), "53") + "," + over + dropped: "limit udp port 53 " +
			"rate 5/m burst 9\ndefault pass",
		`{"set": {"op": "add", ` + by + `}}` + dropped: "limit ipv4 rate 5/m burst 9 by source\n" +
			"default pass",
		`{"meter": {"key": ` + payload("ip6", "saddr") + `, "stmt": ` + over +
			`, "size": 9, "name": "m"}}` + dropped: "limit ipv6 rate 5/m burst 9 by source\n" +
			"default pass",
	} {
		text, rep := nftImport(t, nftInput(expr), importer.Rulesets{})
		if d := cmp.Diff(want, rulesOf(text)); d != "" || rep.Fates.Widened != 0 {
			t.Errorf("%s (-want +got):\n%s", expr, d)
		}
	}
}

// TestJumpsUpToARate: a jump up to a rate into a chain that drops something was left out, with all
// that the chain decides, though what is above the rate is dropped behind it.
func TestJumpsUpToARate(t *testing.T) {
	const jump = "-p udp -m udp --dport 27015 -m hashlimit --hashlimit-upto 5/sec " +
		"--hashlimit-burst 10 --hashlimit-mode srcip,dstport --hashlimit-name n -j MORE"
	for _, c := range []struct{ policy, verb, want string }{
		{"DROP", "-j", "limit ipv4 udp port 27015 rate 5/s burst 10 by source\n" +
			"drop ipv4 udp port 27015 len 1400-65535\npass ipv4 udp port 27015\ndrop ipv4\n"},
		{"DROP", "-g", "limit ipv4 udp port 27015 rate 5/s burst 10 by source\n" +
			"drop ipv4 udp port 27015 len 1400-65535\npass ipv4 udp port 27015\ndrop ipv4\n"},
		{"ACCEPT", "-j", "# left out: -A INPUT " + jump + "\n"},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save(c.policy, ":MORE - [0:0]",
			strings.Replace(jump, "-j", c.verb, 1), "-A MORE -m length --length 1400:65535 -j DROP",
			"-A MORE -j ACCEPT"))
		if got := rulesOf(text); got != c.want+"default pass" {
			t.Errorf("%s %s: %s\n%s", c.policy, c.verb, rep.Fates, got)
		}
	}
}

// TestAListOfRecentThatRulesShare: rules for two ports that use one list of -m recent, as those
// without a name do, had no limit at all.
func TestAListOfRecentThatRulesShare(t *testing.T) {
	var rules []string
	for _, port := range []string{"22", "443"} {
		match := "-p tcp -m tcp --dport " + port + " -m conntrack --ctstate NEW -m recent "
		rules = append(rules, match+"--set --name DEFAULT --rsource", match+
			"--update --seconds 60 --hitcount 5 --name DEFAULT --rsource -j DROP")
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", rules...))
	if strings.Count(text, "rate 4/m burst 4 by source") != 2 || rep.Fates.LeftOut > 0 ||
		rep.Fates.Widened != 2 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
	remarksHave(t, rep, "changed, widens|counts what other rules put into the list, too")
	text, rep = fromIPTables(t, importer.Rulesets{}, save("ACCEPT", append(rules,
		"-p tcp -m tcp --dport 1 -m recent --remove --name DEFAULT --rsource")...))
	if strings.Contains(text, "\nlimit") || rep.Fates.LeftOut < 2 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
}

// TestLimitsOfEachSourceAndDestination: hashlimit by both had no word, and the rule stood without
// any limit.
func TestLimitsOfEachSourceAndDestination(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, save("DROP", "-p tcp -m tcp --dport 27015 "+
		"-m hashlimit --hashlimit-upto 2/sec --hashlimit-burst 3 --hashlimit-mode "+
		"srcip,dstip,dstport --hashlimit-name n -j ACCEPT"))
	if !strings.Contains(text, "rate 2/s burst 3 by source") || rep.Fates.Widened > 0 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
	remarksHave(t, rep, "changed|limits each source and destination")
}

// TestLimitsThatDecideNothing: a jump up to a rate into a chain that logs, or that drops all, in
// front of a drop became a limit, of which a policy has 32 at most.
func TestLimitsThatDecideNothing(t *testing.T) {
	for _, end := range []string{"-A C -j DROP", "-A C -j RETURN"} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save("DROP", ":C - [0:0]",
			"-p tcp -m tcp --dport 22 -j ACCEPT", "-m limit --limit 3/min -j C", "-j DROP",
			"-A C -j LOG", end))
		if strings.Contains(text, "\nlimit ") || !strings.Contains(text, "\ndrop ipv4") ||
			rep.Fates.Changed+rep.Fates.LeftOut > 0 {
			t.Errorf("%s\n%s", rep.Fates, text)
		}
	}
}

// TestLimitsByBothThatAreNone: the remark that destinations share a budget stood beside rules
// without a limit, and in front of INPUT, where packets to other machines come, it was not true.
func TestLimitsByBothThatAreNone(t *testing.T) {
	const by = "-m hashlimit --hashlimit-burst 3 --hashlimit-name n --hashlimit-mode "
	for _, in := range []string{
		save("DROP", "-p tcp -m tcp --dport 22 "+by+"srcip,dstip,srcport --hashlimit-upto 2/sec "+
			"-j ACCEPT"),
		save("DROP", "-p tcp -m tcp --dport 22 "+by+"srcip,dstip --hashlimit-upto 2/sec -j LOG"),
		"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp " + by +
			"srcip,dstip --hashlimit-above 2/sec -j DROP\nCOMMIT\n" +
			save("DROP", "-p udp -j ACCEPT"),
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, in)
		if strings.Contains(text, "\nlimit ") || strings.Contains(text, "each source and") {
			t.Errorf("%s\n%s", rep.Fates, text)
		}
	}
}
