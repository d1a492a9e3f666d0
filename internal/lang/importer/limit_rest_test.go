package importer_test

import (
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/importer"
	"levee/internal/packet"
)

// TestWhatIsAboveALimitGoesOn: a rule that accepts all packets of its chain up to a rate ended the
// chain, as if nothing came behind it. What the chain drops then passed without a word.
func TestWhatIsAboveALimitGoesOn(t *testing.T) {
	const ssh = "-p tcp -m tcp --dport 22 -j ssh"
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", ":ssh - [0:0]", ssh,
		"-A ssh -m limit --limit 10/min -j ACCEPT", "-A ssh -j DROP"))
	want := "limit ipv4 tcp port 22 rate 10/m burst 5\npass ipv4 tcp port 22\ndefault"
	if !strings.HasPrefix(rulesOf(text), want) {
		t.Errorf("%s", text)
	}
	if rep.Fates.Widened != 0 {
		t.Errorf("%s", rep.Fates)
	}
	// what is above goes on to a rule that passes some of it
	text, rep = fromIPTables(t, importer.Rulesets{}, save("DROP",
		"-m limit --limit 5/sec -j ACCEPT", "-p tcp -m tcp --dport 22 -j ACCEPT"))
	if rep.Fates.Widened != 1 || !strings.HasSuffix(text, "drop ipv4 as \"INPUT policy\"\n"+
		"# The source says nothing about IPv6, so all of it passes: import the rules for IPv6 "+
		"too\n#   (ip6tables-save), or write `drop ipv6` in front of this line.\ndefault pass\n") {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
	if !passes(t, text, tcp(t, 80, packet.SYN)) {
		t.Errorf("a limit became a drop:\n%s", text)
	}
	text, rep = nftImport(t, strings.Replace(nftInput(
		`{"limit": {"rate": 5, "per": "second"}}, {"accept": null}`),
		`"policy": "accept"`, `"policy": "drop"`, 1), importer.Rulesets{})
	want = "limit from any rate 5/s burst 5\npass from any\ndefault drop"
	if got := rulesOf(text); got != want || rep.Fates.Widened != 0 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
}

// TestStraysOfSCTPAreNamed: what conntrack has for INVALID of SCTP and DCCP passed by a rule for
// NEW, and the import did not say so.
func TestStraysOfSCTPAreNamed(t *testing.T) {
	for states, said := range map[string]string{"NEW,RELATED,ESTABLISHED": "|SCTP and DCCP",
		"NEW": "|all their packets are new"} {
		_, rep := fromIPTables(t, importer.Rulesets{}, save("DROP",
			"-s 192.0.2.0/24 -m state --state "+states+" -j ACCEPT"))
		remarksHave(t, rep, "changed: "+said)
		if !slices.ContainsFunc(rep.Passes, func(s string) bool {
			return strings.Contains(s, "192.0.2.0/24") && strings.Contains(s, "sctp")
		}) {
			t.Errorf("%s: %q", states, rep.Passes)
		}
	}
}

// TestLimitsOfChainsStay: a limit was none of the policy's where the chain that drops what is above
// has several drops, where the jump to its chain names the protocol of what is new, and where the
// types and codes of ICMP stand in a set.
func TestLimitsOfChainsStay(t *testing.T) {
	const syn, ssh = "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j flood",
		"-p tcp -m tcp --dport 22 -j ssh"
	refuse := []string{":flood - [0:0]", ":refuse - [0:0]", ":ssh - [0:0]",
		"-A refuse -p tcp -j REJECT --reject-with tcp-reset",
		"-A refuse -j REJECT --reject-with icmp-port-unreachable"}
	for name, tt := range map[string]struct {
		rules []string
		want  string
	}{
		"a return before a jump": {[]string{syn, "-A flood -m limit --limit 25/sec --limit-burst " +
			"50 -j RETURN", "-A flood -j refuse"}, "limit ipv4 tcp syn rate 25/s burst 50\n"},
		"a jump above": {[]string{syn, "-A flood -m hashlimit --hashlimit-above 9/sec " +
			"--hashlimit-burst 9 --hashlimit-mode srcip --hashlimit-name f -j refuse"},
			"limit ipv4 tcp syn rate 9/s burst 9 by source\n"},
		"new, above": {[]string{ssh, "-A ssh -m state --state NEW -m hashlimit --hashlimit-above " +
			"5/min --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name s -j DROP"},
			"limit ipv4 tcp port 22 not established rate 5/m burst 5 by source\n"},
		"new, up to": {[]string{ssh, "-A ssh -m state --state NEW -m hashlimit --hashlimit-upto " +
			"5/min --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name s -j ACCEPT",
			"-A ssh -j DROP"}, "limit ipv4 tcp syn port 22 rate 5/m burst 5 by source\n" +
			"pass ipv4 tcp syn port 22\n"},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", append(refuse,
			tt.rules...)...))
		if !strings.HasPrefix(rulesOf(text), "fragments track\n"+tt.want) &&
			!strings.HasPrefix(rulesOf(text), tt.want) || rep.Fates.Widened != 0 {
			t.Errorf("%s: %s\n%s", name, rep.Fates, text)
		}
		if n := len(tt.rules); rep.Fates.Given < n {
			t.Errorf("%s: %d of %d rules count", name, rep.Fates.Given, n)
		}
	}
	text, rep := nftImport(t, strings.Replace(nftInput(match("==",
		`{"concat": [`+payload("icmpv6", "type")+`, `+payload("icmpv6", "code")+`]}`,
		`{"set": [{"concat": ["packet-too-big", 0]}, {"concat": ["parameter-problem", 0]}, `+
			`{"concat": ["parameter-problem", 1]}]}`)+
		`, {"limit": {"rate": 1000, "per": "second", "burst": 20}}, {"accept": null}`),
		`"policy": "accept"`, `"policy": "drop"`, 1), importer.Rulesets{})
	const types = "icmp6 type { 2/0, 4/0, 4/1 }"
	if got := rulesOf(text); rep.Fates.Widened != 0 || !strings.HasPrefix(got, "limit "+types+
		" rate 1000/s burst 20\npass "+types+"\n") {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
}

// TestOrderedFlags: flags of TCP that are below or above others as numbers left their rule out.
func TestOrderedFlags(t *testing.T) {
	left := `{"&": [` + payload("tcp", "flags") +
		`, {"|": ["fin", "syn", "rst", "psh", "ack", "urg"]}]}`
	for op, want := range map[string]func(flags uint8) bool{
		`"<"`: func(f uint8) bool { return f&0x3f < 1 }, `">"`: func(f uint8) bool {
			return f&0x3f > 1
		}, `"<="`: func(f uint8) bool { return f&0x3f <= 1 }, `">="`: func(f uint8) bool {
			return f&0x3f >= 1
		}} {
		text, rep := nftImport(t, nftInput(`{"match": {"op": `+op+`, "left": `+left+
			`, "right": "fin"}}`+dropped), importer.Rulesets{})
		for f := range uint8(64) {
			if passes(t, text, tcp(t, 80, f)) == want(f) {
				t.Fatalf("%s: flags %#x\n%s\n%v", op, f, text, rep.Remarks)
			}
		}
	}
}

// A limit that is exact lets through what the source does, no more and no less.
func TestLimitsThatAreNotExactAreNamed(t *testing.T) {
	const above = "-A b -m hashlimit --hashlimit-above 10/sec --hashlimit-mode srcip " +
		"--hashlimit-name x -j DROP"
	for _, c := range []struct {
		name, policy string
		rules        []string
		want         string
		widened      int
	}{
		{"what is above a limit of connections is dropped behind it", "ACCEPT", []string{
			"-m state --state ESTABLISHED,RELATED -m limit --limit 9/sec -j ACCEPT",
			"-m state --state ESTABLISHED,RELATED -j DROP"},
			"limit ipv4 established rate 9/s burst 5", 0},
		{"or passed", "DROP", []string{
			"-m state --state ESTABLISHED,RELATED -m limit --limit 9/sec -j ACCEPT",
			"-m state --state ESTABLISHED,RELATED -j ACCEPT"}, "", 0},
		{"what comes to a rule twice counts twice", "ACCEPT", []string{":b - [0:0]",
			"-p tcp -m tcp --dport 22 -j b", "-p tcp -j b", above}, "", 1},
		{"but for what is decided in between", "ACCEPT", []string{":b - [0:0]",
			"-p tcp -m tcp --dport 22 -j b", "-p tcp -m tcp --dport 22 -j ACCEPT", "-p tcp -j b",
			above}, "limit ipv4 tcp rate 10/s burst 5 by source", 0},
		{"conditions before a limit that are read later", "DROP", []string{"-p udp -m u32 --u32 " +
			"0>>22&0x3C@8=0x1 -m limit --limit 5/sec -m ttl --ttl-eq 5 -j ACCEPT"},
			"limit ipv4 udp ttl 5 payload at 0 00000001 rate 5/s burst 5", 1},
		{"and behind it", "DROP", []string{"-m limit --limit 5/sec -m rpfilter -j ACCEPT"},
			"limit ipv4 rate 5/s burst 5", 0},
		{"u32 behind it", "DROP", []string{"-p udp -m limit --limit 5/sec -m u32 --u32 " +
			"0>>22&0x3C@8=0x1 -j ACCEPT"}, "limit ipv4 udp rate 5/s burst 5", 0},
		{"what has returned does not count", "ACCEPT", []string{":b - [0:0]",
			"-s 10.0.0.0/8 -j b", "-A b -p tcp -m tcp --dport 80 -j RETURN",
			"-A b -p tcp -m limit --limit 5/sec -m tcp --dport 22 -j ACCEPT", "-p tcp -j DROP"},
			"limit tcp from 10.0.0.0/8 port 22 rate 5/s burst 5", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, rep := fromIPTables(t, importer.Rulesets{}, save(c.policy, c.rules...))
			got := ""
			for line := range strings.Lines(rulesOf(text)) {
				if strings.HasPrefix(line, "limit ") {
					got += strings.TrimSpace(line)
				}
			}
			if got != c.want || rep.Fates.Widened != c.widened {
				t.Errorf("%q, not %q; %d widen, not %d:\n%s", got, c.want, rep.Fates.Widened,
					c.widened, text)
			}
		})
	}
}

// TestALimitOfSeveralPlacesKeepsExceptions: a limit that two jumps lead to was left out where the
// chain passes some sources in front of it. Where the sources are decided before one place alone,
// no match says which packets count, and it stays out.
func TestALimitOfSeveralPlacesKeepsExceptions(t *testing.T) {
	const www, tls = "-p tcp -m tcp --dport 80 -j guard", "-p tcp -m tcp --dport 443 -j guard"
	guard := []string{":guard - [0:0]", "-A guard -m hashlimit --hashlimit-above 20/sec " +
		"--hashlimit-burst 40 --hashlimit-mode srcip --hashlimit-name g -j DROP"}
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", append([]string{guard[0], www,
		tls, "-A guard -s 192.0.2.0/24 -j ACCEPT"}, guard[1])...))
	want := "pass tcp from 192.0.2.0/24 port 80\n" +
		"limit ipv4 tcp not from 192.0.2.0/24 port { 80, 443 } rate 20/s burst 40 by source\n" +
		"pass tcp from 192.0.2.0/24 port 443\ndefault pass"
	if got := rulesOf(text); got != want || rep.Fates.Widened != 0 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
	text, rep = fromIPTables(t, importer.Rulesets{}, save("ACCEPT", append([]string{guard[0], www,
		"-s 192.0.2.0/24 -j ACCEPT", tls}, guard[1])...))
	if strings.Contains(text, "\nlimit ") || rep.Fates.Widened != 1 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
}
