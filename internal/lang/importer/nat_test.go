package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/importer"
)

// TestRedirectedPortsStayReachable: ports that nat sends to other ports of this machine, or to
// containers, were dropped, as the chains behind nat never name them.
func TestRedirectedPortsStayReachable(t *testing.T) {
	const nat = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUT - [0:0]\n"
	rules := save("DROP", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"-s 192.0.2.0/24 -j DROP",
		"-p tcp -m tcp --dport 8080 -m conntrack --ctstate NEW -j ACCEPT",
		"-p udp -m udp --dport 5353 -j ACCEPT")
	const end = "pass ipv4 established\ndrop from 192.0.2.0/24\npass ipv4 tcp syn port 8080\n" +
		"pass ipv4 udp port 5353\ndrop ipv4\ndefault pass"
	for _, c := range []struct{ name, nat, want string }{
		{"to a port that is open",
			"-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080",
			"pass ipv4 tcp port 80 established\ndrop tcp syn from 192.0.2.0/24 port 80\n" +
				"pass ipv4 tcp syn port 80\n"},
		{"to a port that is not", "-A PREROUTING -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 9",
			"pass ipv4 tcp port 81 established\ndrop tcp syn from 192.0.2.0/24 port 81\n" +
				"drop ipv4 tcp syn port 81\n"},
		{"to an address of loopback", "-A PREROUTING -p udp -m udp --dport 53 -j DNAT " +
			"--to-destination 127.0.0.1:5353", "pass ipv4 udp port 53 established\n" +
			"drop udp from 192.0.2.0/24 port 53\npass ipv4 udp port 53\n"},
		{"to a container, but for some",
			"-A PREROUTING -s 10.0.0.0/8 -j RETURN\n-A PREROUTING -j OUT\n-A OUT ! -i docker0 " +
				"-p tcp -m tcp --dport 82 -j DNAT --to-destination 172.17.0.2:80",
			"pass ipv4 tcp not from 10.0.0.0/8 port 82 established\n" +
				"pass ipv4 tcp syn not from 10.0.0.0/8 port 82\n"},
		{"by what a policy does not know", "-A PREROUTING -m statistic --mode random " +
			"--probability 0.5 -j OUT\n-A OUT -p tcp -m tcp --dport 82 -j DNAT " +
			"--to-destination 172.17.0.2:80", ""},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{Device: "eth0"},
			nat+c.nat+"\nCOMMIT\n"+rules)
		got := strings.TrimPrefix(rulesOf(text), "interface eth0\n")
		if d := cmp.Diff("fragments track\n"+c.want+end, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if c.want == "" {
			remarksHave(t, rep, "changed|rewrites destinations before")
		}
	}
}

// TestRedirectsOfNFTStayReachable is the same for nft.
func TestRedirectsOfNFTStayReachable(t *testing.T) {
	dport := func(n string) string { return match("==", payload("tcp", "dport"), n) }
	rule := func(chain, expr string) string {
		return `{"rule": {"family": "ip", "table": "n", "chain": "` + chain + `", "expr": [` +
			expr + `]}},`
	}
	text, _ := nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "n"}},`+
		`{"chain": {"family": "ip", "table": "n", "name": "pre", "type": "nat", "hook": `+
		`"prerouting", "prio": -100, "policy": "accept"}},`+
		rule("pre", dport("80")+`, {"redirect": {"port": 8080}}`)+
		rule("pre", dport("82")+`, {"dnat": {"addr": "172.17.0.2", "port": 80}}`)+
		`{"chain": {"family": "ip", "table": "n", "name": "in", "type": "filter", "hook": `+
		`"input", "prio": 0, "policy": "drop"}},`+
		strings.TrimSuffix(rule("in", dport("8080")+`, {"accept": null}`), ",")+`]}`,
		importer.Rulesets{})
	want := "fragments track\npass ipv4 tcp port 80 established\npass ipv4 tcp syn port 80\n" +
		"pass ipv4 tcp port 82 established\npass ipv4 tcp syn port 82\npass ipv4 tcp port 8080\n" +
		"drop ipv4\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestChainsOfNatThatAccept: what a chain accepted that another jumps to went on to the rules
// behind the jump, and was judged as they send it.
func TestChainsOfNatThatAccept(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		":KEEP - [0:0]\n-A PREROUTING -j KEEP\n-A KEEP -s 10.0.0.0/8 -j ACCEPT\n"+
		"-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\nCOMMIT\n"+
		save("DROP", "-p tcp -m tcp --dport 8080 -j ACCEPT"))
	const want = "fragments track\npass tcp from 10.0.0.0/8 port 8080\ndrop from 10.0.0.0/8\n" +
		"pass ipv4 tcp port 80 established\npass ipv4 tcp syn port 80\npass ipv4 tcp port 8080\n" +
		"drop ipv4\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestNatLeavesPacketsAloneBySeveralFields: nothing of a nat chain was imported where a rule in
// front takes packets out by several fields, so that the ports behind it were cut.
func TestNatLeavesPacketsAloneBySeveralFields(t *testing.T) {
	for _, verdict := range []string{"RETURN", "ACCEPT"} {
		text, rep := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
			"-A PREROUTING -s 10.0.0.0/8 -p udp -m udp --dport 53 -j "+verdict+"\n"+
			"-A PREROUTING -p udp -m udp --dport 53 -j DNAT --to-destination 172.17.0.2\nCOMMIT\n"+
			save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"))
		const want = "drop udp from 10.0.0.0/8 port 53\npass ipv4 udp port 53\n" +
			"pass ipv4 tcp port 22\ndrop ipv4\ndefault pass"
		if d := cmp.Diff(want, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", verdict, d)
		}
		for _, m := range rep.Remarks {
			if strings.Contains(m.Text, "rewrites destinations before") {
				t.Errorf("%s", m)
			}
		}
	}
}

// TestRedirectsToTheSamePort: what REDIRECT sends to this machine by the port that it has was
// passed by the rules for any port.
func TestRedirectsToTheSamePort(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		"-A PREROUTING -p tcp -j REDIRECT\nCOMMIT\n"+
		save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"))
	if passes(t, text, tcp(t, 23, 0x02)) || !passes(t, text, tcp(t, 22, 0x02)) {
		t.Errorf("%s", text)
	}
}

// TestWhatIsRedirectedHasAnotherDestination: REDIRECT gives packets an address of this machine, so
// that rules of INPUT for some destinations judged them otherwise, in both directions, and nobody
// said so. Rules for any of the machine's own, or for groups, need no remark.
func TestWhatIsRedirectedHasAnotherDestination(t *testing.T) {
	const front = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 161 -j " +
		"REDIRECT --to-ports 1611\nCOMMIT\n"
	for rule, c := range map[string]struct {
		want    string
		widened int
	}{
		"-d 10.1.2.3/32 -p udp -m udp --dport 1611 -j ACCEPT": {
			"pass udp to 10.1.2.3 port 161\ndrop ipv4 udp port 161\npass udp to 10.1.2.3 " +
				"port 1611", 1},
		"! -d 10.1.2.3/32 -p udp -m udp --dport 1611 -j ACCEPT": {
			"pass ipv4 udp not to 10.1.2.3 port 161\ndrop ipv4 udp port 161\npass ipv4 udp not " +
				"to 10.1.2.3 port 1611", 1},
		"-d 10.1.2.3/32 -p tcp -m tcp --dport 1611 -j ACCEPT": {
			"drop ipv4 udp port 161\npass tcp to 10.1.2.3 port 1611", 0},
		"-p udp -m udp --dport 1611 -m addrtype --dst-type LOCAL -j ACCEPT": {
			"pass ipv4 udp port 161\npass ipv4 udp not to { 224.0.0.0/4, 255.255.255.255 } port " +
				"1611", 0},
		"-d 224.0.0.251/32 -p udp -m udp --dport 1611 -j ACCEPT": {
			"drop ipv4 udp port 161\npass udp to 224.0.0.251 port 1611", 0},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, front+save("DROP", rule))
		if d := cmp.Diff(c.want+"\ndrop ipv4\ndefault pass", rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", rule, d)
		}
		if rep.Fates.Widened != c.widened {
			t.Errorf("%s: %s", rule, rep.Fates)
		}
		if c.widened > 0 {
			remarksHave(t, rep, "changed, widens|gets one of its addresses")
		}
	}
}

// TestChainsOfNatThatAreLeftOutMayWiden: the rule for which a chain was left out, as the policy has
// no words for its condition or its destination, was not asked what it sends away.
func TestChainsOfNatThatAreLeftOutMayWiden(t *testing.T) {
	for front, widened := range map[string]int{
		"--dport 83 -m statistic --mode random --probability 0.5 -j REDIRECT --to-ports 9": 1,
		"--dport 83 -j DNAT --to-destination host.example":                                 1,
		"--dport 84 -m statistic --mode random --probability 0.5 -j REDIRECT --to-ports 9": 0,
		"--dport 83 -m statistic --mode random --probability 0.5 -j ACCEPT":                0,
	} {
		_, rep := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n-A "+
			"PREROUTING -p tcp -m tcp "+front+"\nCOMMIT\n"+
			save("DROP", "-p tcp -m tcp --dport 83 -j ACCEPT"))
		if rep.Fates.Widened != widened {
			t.Errorf("%s: %s", front, rep.Fates)
		}
	}
}

// TestChainsOfNatThatJumpOften: each chain jumps to the next one twice, so that there are 2^60 ways
// through them. Following each had no end.
func TestChainsOfNatThatJumpOften(t *testing.T) {
	var chains, jumps strings.Builder
	const n = 60
	for i := range n {
		fmt.Fprintf(&chains, ":C%d - [0:0]\n", i)
		if i > 0 {
			jump := fmt.Sprintf("-A C%d -j C%d\n", i-1, i)
			jumps.WriteString(jump + jump)
		}
	}
	redirect := fmt.Sprintf("-A C%d -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\n", n-1)
	_, rep := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		chains.String()+"-A PREROUTING -j C0\n"+jumps.String()+redirect+"COMMIT\n"+
		save("DROP", "-p tcp -m tcp --dport 8080 -j ACCEPT"))
	remarksHave(t, rep, "changed|rewrites destinations before")

	// nothing is in the chains that a packet meets, as it cannot be both
	text, _ := fromIPTables(t, importer.Rulesets{}, "*filter\n:INPUT DROP [0:0]\n"+
		":OUTPUT DROP [0:0]\n"+chains.String()+"-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"+
		"-A OUTPUT -p tcp -m tcp --sport 22 -j ACCEPT\n-A OUTPUT -p udp -j C0\n"+
		"-A C0 -p tcp -j C1\n"+strings.ReplaceAll(jumps.String(), "-A C0 -j C1\n", "")+"COMMIT\n")
	if rules := rulesOf(text); !strings.Contains(rules, "out default drop") &&
		!strings.Contains(rules, "out drop") {
		t.Errorf("what leaves is not there:\n%s", rules)
	}
}

// TestChainsInFrontOfNat: no rule of raw and mangle was imported beside a port that nat sends
// elsewhere, as of a container.
func TestChainsInFrontOfNat(t *testing.T) {
	nat := "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 53 -j DNAT " +
		"--to-destination 172.17.0.2\nCOMMIT\n"
	early := "*mangle\n:PREROUTING ACCEPT [0:0]\n:c - [0:0]\n-A PREROUTING -s 192.0.2.0/24 -j " +
		"ACCEPT\n-A PREROUTING -p udp -m udp --sport 19 -j DROP\n"
	text, rep := fromIPTables(t, importer.Rulesets{}, early+"COMMIT\n"+nat+
		save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"))
	const want = "drop ipv4 udp not from 192.0.2.0/24 from port 19\npass ipv4 udp port 53\n" +
		"pass ipv4 tcp port 22\ndrop ipv4\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" || rep.Fates.Widened > 0 {
		t.Errorf("%s (-want +got):\n%s", rep.Fates, d)
	}
	// nothing comes to nat
	text, _ = fromIPTables(t, importer.Rulesets{}, "*raw\n:PREROUTING DROP [0:0]\nCOMMIT\n"+nat+
		save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"))
	if rules := rulesOf(text); rules != "drop ipv4\ndefault pass" {
		t.Errorf("%s", rules)
	}
	// what a chain returns may need a copy of all that follows
	_, rep = fromIPTables(t, importer.Rulesets{}, early+"-A PREROUTING -p tcp -j c\n-A c -s "+
		"10.0.0.0/8 -j RETURN\n-A c -j DROP\nCOMMIT\n"+nat+save("ACCEPT"))
	remarksHave(t, rep, "changed, widens|what it drops never reaches")
}

// TestTheTableSecurity: what INPUT of the table security drops, behind that of filter, passed.
func TestTheTableSecurity(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT",
		"-s 192.0.2.0/24 -p tcp -m tcp --dport 80 -j ACCEPT")+"*security\n:INPUT ACCEPT [0:0]\n"+
		"-A INPUT -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n")
	if d := cmp.Diff("drop tcp from 192.0.2.0/24 port 80\ndrop ipv4 tcp port 80\ndefault pass",
		rulesOf(text)); d != "" || rep.Fates.Given != 2 {
		t.Errorf("%s (-want +got):\n%s", rep.Fates, d)
	}
}

// TestNatOfOneFamilyInATableOfBoth: dnat to an address of IPv4 passed IPv6, too.
func TestNatOfOneFamilyInATableOfBoth(t *testing.T) {
	const head = `{"nftables": [{"table": {"family": "inet", "name": "n"}},` +
		`{"chain": {"family": "inet", "table": "n", "name": "pre", "type": "nat", "hook": ` +
		`"prerouting", "prio": -100, "policy": "accept"}},` +
		`{"chain": {"family": "inet", "table": "n", "name": "in", "type": "filter", "hook": ` +
		`"input", "prio": 0, "policy": "drop"}},` +
		`{"rule": {"family": "inet", "table": "n", "chain": "pre", "expr": [{"match": {"op": "==",` +
		` "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 53}}, {"dnat": `
	for to, want := range map[string]string{
		`{"family": "ip", "addr": "172.17.0.2"}`: "pass ipv4 udp port 53\ndefault drop",
		`{"addr": "2001:db8::2", "port": 54}`:    "pass ipv6 udp port 53\ndefault drop",
	} {
		text, _ := nftImport(t, head+to+`}]}}]}`, importer.Rulesets{})
		if d := cmp.Diff(want, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", to, d)
		}
	}
}

// TestRedirectsToARange: nothing of a nat chain was imported where a rule sends packets to a range
// of ports by a base, or to a range of addresses or ports in nft; a range of ports in iptables was
// judged by the first rule for some port of it, though the kernel takes one.
func TestRedirectsToARange(t *testing.T) {
	rules := save("DROP", "-p udp -m udp --dport 2000:2001 -j ACCEPT",
		"-p udp -m udp --dport 5001 -j ACCEPT")
	for front, want := range map[string]string{
		"--dport 53 -j REDIRECT --to-ports 2000-2010": "pass ipv4 udp port 53\n",
		"--dport 53 -j REDIRECT --to-ports 1999-2010": "drop ipv4 udp port 53\n",
		"--dport 5000:5001 -j REDIRECT --to-ports 4990-5001": "pass ipv4 udp port " +
			"5001\ndrop ipv4 udp port 5000-5001\n",
		"--dport 53 -j REDIRECT --to-ports 2000-2001 --random": "pass ipv4 udp port 53\n",
		"--dport 1000:1005 -j DNAT --to-destination 127.0.0.1:1998-2003/1000": "pass ipv4 udp " +
			"port 1002-1003\ndrop ipv4 udp port 1000-1005\n",
		"--dport 1000:1005 -j DNAT --to-destination 127.0.0.1:2000-2002/1000": "pass ipv4 udp " +
			"port 1000-1001\ndrop ipv4 udp port 1000-1002\npass ipv4 udp port 1003-1004\n" +
			"drop ipv4 udp port 1003-1005\n",
		"--dport 53 -j DNAT --to-destination 172.17.0.2-172.17.0.9:53-55": "pass ipv4 udp port " +
			"53\n",
		"-d 192.0.2.0/24 -j NETMAP --to 172.17.0.0/24": "pass udp to 192.0.2.0/24\n",
	} {
		text, _ := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n-A "+
			"PREROUTING -p udp -m udp "+front+"\nCOMMIT\n"+rules)
		got := strings.TrimSuffix(rulesOf(text), "pass ipv4 udp port 2000-2001\npass ipv4 udp "+
			"port 5001\ndrop ipv4\ndefault pass")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", front, d)
		}
	}
}

// TestOneOfSeveralContainers: a chain of nat that draws where it sends packets was left out, as of
// services of Kubernetes, so that their ports were cut.
func TestOneOfSeveralContainers(t *testing.T) {
	const draw = "-A PREROUTING -p udp -m udp --dport 53 -j SVC\n-A SVC -m statistic --mode " +
		"random --probability 0.5 -j A\n-A SVC -j B\n-A A -s 10.0.0.0/8 -j MARK --set-xmark " +
		"0x4000/0x4000\n-A A -p udp -j DNAT --to-destination 10.0.0.2:53\n"
	const nat = "*nat\n:PREROUTING ACCEPT [0:0]\n:SVC - [0:0]\n:A - [0:0]\n:B - [0:0]\n"
	for rules, want := range map[string]string{
		draw + "-A B -p udp -j DNAT --to-destination 10.0.0.3:53\n": "pass ipv4 udp port 53\n",
		// the other half is judged by the rules
		draw + "-A B -p udp -m udp --dport 54 -j DNAT --to-destination 10.0.0.3:53\n": "",
		draw + "-A B -p udp -j REDIRECT --to-ports 54\n":                              "",
		// also where a rule for others stays on this machine
		"-A PREROUTING -p udp -m statistic --mode random --probability 0.5 -j DNAT " +
			"--to-destination 10.0.0.2\n" +
			"-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 22\n": "",
		// which connections are related no policy tells
		"-A PREROUTING -p udp -m conntrack --ctstate RELATED -j DNAT " +
			"--to-destination 10.0.0.2\n": "",
		"-A PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A PREROUTING " +
			"-p udp -j DNAT --to-destination 10.0.0.2\n": "",
		"-A PREROUTING -p udp -m statistic --mode random --probability 0.5 -j DNAT " +
			"--to-destination 10.0.0.2\n-A PREROUTING -p udp -m conntrack --ctstate NEW -j DNAT " +
			"--to-destination 10.0.0.3\n": "pass ipv4 udp\n",
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, nat+rules+"COMMIT\n"+
			save("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"))
		want += "pass ipv4 tcp port 22\ndrop ipv4\ndefault pass"
		if d := cmp.Diff(want, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s%s", rules, d, rep.Fates)
		}
		left := slices.ContainsFunc(rep.Remarks, func(m importer.Remark) bool {
			return strings.Contains(m.Text, "PREROUTING of table nat") &&
				strings.Contains(m.Text, "is not imported")
		})
		if left == strings.HasPrefix(want, "pass ipv4 udp") {
			t.Errorf("%s: that the chain is not imported is said: %v", rules, left)
		}
	}
}

// TestMapsOfNat: a chain of nat of nft was left out where a map says what its packets become.
func TestMapsOfNat(t *testing.T) {
	const head = `{"nftables": [{"table": {"family": "ip", "name": "n"}},` +
		`{"map": {"family": "ip", "table": "n", "name": "m", "type": "inet_service", "map": ` +
		`"ipv4_addr", "elem": [[53, "10.0.0.2"], [54, "10.0.0.3"]]}},` +
		`{"chain": {"family": "ip", "table": "n", "name": "pre", "type": "nat", "hook": ` +
		`"prerouting", "prio": -100, "policy": "accept"}},` +
		`{"chain": {"family": "ip", "table": "n", "name": "a", "handle": 9}},` +
		`{"chain": {"family": "ip", "table": "n", "name": "in", "type": "filter", "hook": ` +
		`"input", "prio": 0, "policy": "drop"}},` +
		`{"rule": {"family": "ip", "table": "n", "chain": "in", "expr": [{"match": {"op": "==",` +
		` "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 80}}, {"limit": ` +
		`{"rate": 9, "per": "second", "burst": 9}}, {"accept": null}]}},` +
		`{"rule": {"family": "ip", "table": "n", "chain": "a", "expr": [{"dnat": {"addr": ` +
		`"10.0.0.2"}}]}},` +
		`{"rule": {"family": "ip", "table": "n", "chain": "pre", "expr": [{"match": {"op": "==",` +
		` "left": {"meta": {"key": "l4proto"}}, "right": "udp"}}, `
	const key = `"key": {"payload": {"protocol": "udp", "field": "dport"}}, "data": `
	const end = "limit ipv4 udp port 80 rate 9/s burst 9\npass ipv4 udp port 80\ndrop ipv4\n" +
		"default pass"
	for statement, want := range map[string]string{
		`{"dnat": {"addr": {"map": {` + key + `"@m"}}}}`: "pass ipv4 udp port 53\npass ipv4 udp " +
			"port 54\n",
		`{"dnat": {"addr": {"map": {` + key + `{"set": [[5060, {"concat": ["10.0.0.9", 5070]}]]}` +
			`}}}}`: "pass ipv4 udp port 5060\n",
		`{"redirect": {"port": {"map": {` + key + `{"set": [[8080, 80], [8081, 81]]}}}}}`: "limit " +
			"ipv4 udp port 8080 rate 9/s burst 9\npass ipv4 udp port 8080\n" +
			"drop ipv4 udp port 8081\n",
		`{"dnat": {"addr": {"map": {` + key + `"@absent"}}}}`: "",
		`{"vmap": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": {"set": [` +
			`[0, {"goto": {"target": "a"}}], [1, {"goto": {"target": "a"}}]]}}}`: "pass ipv4 udp\n",
		`{"vmap": {"key": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "data": {"set": [` +
			`[0, {"goto": {"target": "a"}}], [1, {"accept": null}]]}}}`: "",
		`{"goto": {"target": "a"}}`:                                 "pass ipv4 udp\n",
		draws("numgen", 2, 0, `[0, "10.0.0.53"], [1, "10.0.0.54"]`): "pass ipv4 udp\n",
		draws("jhash", 4, 0, `[{"range": [0, 2]}, "10.0.0.53"], [3, "10.0.0.54"]`): "pass ipv4 " +
			"udp\n",
		draws("symhash", 2, 5, `[5, {"concat": ["10.0.0.53", 80]}], [6, {"concat": ["10.0.0.54", `+
			`81]}]`): "pass ipv4 udp\n",
		draws("numgen", 2, 5, `[0, "10.0.0.53"], [1, "10.0.0.54"]`): "", // none is drawn
		draws("numgen", 3, 0, `[0, "10.0.0.53"], [1, "10.0.0.54"]`): "", // 2 leads nowhere
		draws("numgen", 2, 0, `[0, "127.0.0.1"], [1, "10.0.0.54"]`): "",
		draws("numgen", 1, 0, `[0, "127.0.0.1"]`):                   "",
		draws("numgen", 1, 0, `[0, {"concat": ["10.0.0.1"]}]`):      "",
		draws("numgen", 1, 0, `[0]`):                                "",
		draws("numgen", 0, 0, `[0, "10.0.0.53"]`):                   "",
		// of the packets that have what it writes alone
		`{"mangle": {"key": {"ct": {"key": "mark"}}, "value": {"map": {` + key + `{"set": [[53, 1]]}}` +
			`}}}, {"dnat": {"addr": "10.0.0.2"}}`: "",
	} {
		text, rep := nftImport(t, head+statement+`]}}]}`, importer.Rulesets{})
		if d := cmp.Diff(want+end, rulesOf(text)); d != "" {
			t.Errorf("%s (-want +got):\n%s%s", statement, d, rep.Fates)
		}
	}
}

// draws is a dnat to one of the addresses of a map, of which an expression draws one.
func draws(how string, mod, offset int, elements string) string {
	return fmt.Sprintf(`{"dnat": {"addr": {"map": {"key": {%q: {"mod": %d, "offset": %d}}, "data": `+
		`{"set": [%s]}}}}}`, how, mod, offset, elements)
}

// TestAFilterOfWaysBackBehindNat: firewalld's look at the way back was left out where the set sends
// a port elsewhere, though it does not ask for destinations.
func TestAFilterOfWaysBackBehindNat(t *testing.T) {
	for condition, want := range map[string]string{
		`{"match": {"op": "==", "left": {"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, ` +
			`"right": false}}`: "drop ipv4 not reverse-path strict\n",
		`{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, ` +
			`"right": 54}}`: "", // which it has behind nat
		`{"set": {"op": "update", "elem": {"payload": {"protocol": "ip", "field": "daddr"}}, ` +
			`"set": "@d", "stmt": [{"limit": {"rate": 5, "per": "second", "inv": true}}]}}`: "",
	} {
		text, rep := nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "n"}},`+
			`{"chain": {"family": "ip", "table": "n", "name": "pre", "type": "nat", "hook": `+
			`"prerouting", "prio": -100, "policy": "accept"}},`+
			`{"chain": {"family": "ip", "table": "n", "name": "way", "type": "filter", "hook": `+
			`"prerouting", "prio": -90, "policy": "accept"}},`+
			`{"chain": {"family": "ip", "table": "n", "name": "in", "type": "filter", "hook": `+
			`"input", "prio": 0, "policy": "accept"}},`+
			`{"rule": {"family": "ip", "table": "n", "chain": "pre", "expr": [{"match": {"op": `+
			`"==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 53}}, `+
			`{"redirect": {"port": 54}}]}},`+
			`{"rule": {"family": "ip", "table": "n", "chain": "way", "expr": [`+condition+
			`, {"drop": null}]}}]}`, importer.Rulesets{})
		if got := rulesOf(text); !strings.HasPrefix(got, want) || want == "" &&
			(strings.Contains(got, "drop") || strings.Contains(got, "limit")) {
			t.Errorf("%s\n%s\n%s", condition, got, rep.Fates)
		}
	}
}

// TestDropsOfOneFamilyInFrontOfNat: a chain of nat of IPv4 was left out where a chain in front of
// it drops packets of IPv4, and that at input is for both families, as Docker has it.
func TestDropsOfOneFamilyInFrontOfNat(t *testing.T) {
	chain := func(family, name, kind, hook, prio, policy string) string {
		return `{"chain": {"family": "` + family + `", "table": "n", "name": "` + name +
			`", "type": "` + kind + `", "hook": "` + hook + `", "prio": ` + prio +
			`, "policy": "` + policy + `"}},`
	}
	rule := func(family, name, field, right, verdict string) string {
		return `{"rule": {"family": "` + family + `", "table": "n", "chain": "` + name +
			`", "expr": [` + match("==", field, right) + `, ` + verdict + `]}}`
	}
	text, rep := nftImport(t, `{"nftables": [{"table": {"family": "ip", "name": "n"}},`+
		`{"table": {"family": "inet", "name": "n"}},`+
		chain("ip", "raw", "filter", "prerouting", "-300", "accept")+
		chain("ip", "pre", "nat", "prerouting", "-100", "accept")+
		chain("inet", "in", "filter", "input", "0", "drop")+
		rule("ip", "raw", payload("ip", "daddr"), `"172.17.0.2"`, `{"drop": null}`)+","+
		rule("ip", "pre", payload("udp", "dport"), "53", `{"dnat": {"addr": "172.17.0.2"}}`)+","+
		rule("inet", "in", payload("tcp", "dport"), "22", `{"accept": null}`)+`]}`,
		importer.Rulesets{})
	want := "drop to 172.17.0.2\npass ipv4 udp port 53\n"
	if got := rulesOf(text); !strings.HasPrefix(got, want) {
		t.Errorf("%s\n%s", got, rep.Fates)
	}
}

// TestALimitThatReturnsBeforeOtherRules: what a rule returns up to a rate was passed in any number,
// where rules for other packets stand between it and the drop of what is above.
func TestALimitThatReturnsBeforeOtherRules(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, "*filter\n:INPUT ACCEPT [0:0]\n:L - [0:0]\n"+
		"-A INPUT -j L\n-A L -p icmp -m icmp --icmp-type 8 -m limit --limit 10/sec --limit-burst "+
		"20 -j RETURN\n-A L -p tcp -m tcp --dport 22 -j RETURN\n-A L -j DROP\nCOMMIT\n")
	if got := rulesOf(text); !strings.Contains(got, "limit icmp type 8 rate 10/s burst 20\n") ||
		rep.Fates.Widened > 0 {
		t.Errorf("%s\n%s", got, rep.Fates)
	}
}

// TestRulesForWhatNatSendsHere: a rule for what nat has sent to another port was left out, with the
// states that it asks for besides: of firewalld's, all that is established was cut.
func TestRulesForWhatNatSendsHere(t *testing.T) {
	const nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j " +
		"REDIRECT --to-ports 80\nCOMMIT\n"
	// conntrack begins a connection there
	const bare = "drop ipv4 tcp flags ack/fin,syn,rst,ack port 8080 not established\n"
	const front = "pass ipv4 tcp port 8080 established\npass ipv4 tcp syn port 8080\n"
	for rule, want := range map[string]string{
		"-m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT": front +
			"pass ipv4 established\ndrop ipv4\n",
		"-m conntrack --ctstate DNAT -j ACCEPT": front + "drop ipv4\n",
		"-m conntrack ! --ctstate DNAT -p tcp -j ACCEPT": "drop ipv4 tcp port 8080 established\n" +
			"drop ipv4 tcp syn port 8080\n" + bare + "pass ipv4 tcp\ndrop ipv4\n",
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, nat+save("DROP", rule))
		got := strings.TrimPrefix(rulesOf(text), "fragments track\n")
		if d := cmp.Diff(want+"default pass", got); d != "" || rep.Fates.LeftOut > 0 {
			t.Errorf("%s: %s (-want +got):\n%s", rule, rep.Fates, d)
		}
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		"-A PREROUTING -p tcp -m tcp -j REDIRECT --to-ports 80\nCOMMIT\n"+
		save("DROP", "-m conntrack --ctstate DNAT -j ACCEPT"))
	if passes(t, text, tcp(t, 80, 0x02)) { // of port 80 nobody knows whether its address changes
		t.Errorf("%s", text)
	}
	remarksHave(t, rep, "changed|rewrites destinations before")
}

// TestRulesForWhatNatSendsHereOfNFT is the same for nft, whose words are `ct status`.
func TestRulesForWhatNatSendsHereOfNFT(t *testing.T) {
	status := func(op, left string) string {
		return `{"match": {"op": "` + op + `", "left": ` + left + `, "right": "dnat"}}`
	}
	const ct = `{"ct": {"key": "status"}}`
	for term, want := range map[string]string{
		status("in", ct): "pass tcp port 8080 established\npass tcp syn port 8080\ndefault drop",
		status("==", `{"&": [`+ct+`, "dnat"]}`): "pass tcp port 8080 established\n" +
			"pass tcp syn port 8080\ndefault drop",
		status("!", ct): "drop tcp port 8080 established\ndrop tcp syn port 8080\n" +
			"pass established\npass tcp syn\npass udp\npass icmp type { 8, 13, 15, 17 }\n" +
			"pass icmp6 type { 128, 139 }\npass not proto { icmp, tcp, udp, icmp6 }\n" +
			"default drop", // what has no connection has no status
	} {
		text, rep := nftImport(t, `{"nftables": [{"table": {"family": "inet", "name": "n"}},`+
			`{"chain": {"family": "inet", "table": "n", "name": "pre", "type": "nat", "hook": `+
			`"prerouting", "prio": -100, "policy": "accept"}},`+
			`{"rule": {"family": "inet", "table": "n", "chain": "pre", "expr": [`+
			match("==", payload("tcp", "dport"), "8080")+`, {"redirect": {"port": 80}}]}},`+
			`{"chain": {"family": "inet", "table": "n", "name": "in", "type": "filter", "hook": `+
			`"input", "prio": 0, "policy": "drop"}},`+
			`{"rule": {"family": "inet", "table": "n", "chain": "in", "expr": [`+term+
			`, {"accept": null}]}}]}`, importer.Rulesets{})
		got := strings.TrimPrefix(rulesOf(text), "fragments track\n")
		if d := cmp.Diff(want, got); d != "" || rep.Fates.LeftOut > 0 {
			t.Errorf("%s: %s (-want +got):\n%s", term, rep.Fates, d)
		}
	}
}

// TestLimitsBehindWhatNatLeavesAlone: a limit on packets that a chain of nat accepts as they are
// ended the import by a nil pointer.
func TestLimitsBehindWhatNatLeavesAlone(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		":C - [0:0]\n-A PREROUTING -j C\n-A C -s 192.0.2.0/24 -j ACCEPT\n"+
		"-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\nCOMMIT\n"+
		save("DROP", "-p tcp -m tcp --dport 22 -m hashlimit --hashlimit-above 10/min "+
			"--hashlimit-burst 7 --hashlimit-mode srcip --hashlimit-name h -j DROP",
			"-p tcp -m tcp --dport 22 -j ACCEPT"))
	if strings.Count(text, "limit ") < 2 || rep.Fates.Widened != 1 {
		t.Errorf("%s\n%s", rep.Fates, text)
	}
	remarksHave(t, rep, "changed|the chain of nat leaves these alone")
}

// TestWhatNatSendsHereAndAState: a rule that asks for both by two modules was about no packet, and
// so its drop was lost.
func TestWhatNatSendsHereAndAState(t *testing.T) {
	const nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 8080 -j " +
		"REDIRECT --to-ports 80\nCOMMIT\n"
	for _, terms := range []string{"-m state --state NEW -m conntrack --ctstate DNAT",
		"-m conntrack --ctstate DNAT -m state --state NEW"} {
		text, rep := fromIPTables(t, importer.Rulesets{}, nat+save("ACCEPT", "-p tcp "+terms+
			" -j DROP"))
		if passes(t, text, tcp(t, 8080, 0x02)) || !passes(t, text, tcp(t, 80, 0x02)) ||
			rep.Fates.LeftOut > 0 {
			t.Errorf("%s\n%s", rep.Fates, text)
		}
	}
	_, rep := fromIPTables(t, importer.Rulesets{}, nat+save("ACCEPT", "-p tcp -m state --state "+
		"NEW -m conntrack --ctstate INVALID,DNAT -j DROP"))
	remarksHave(t, rep, "left out, widens|for states once more")
	_, rep = fromIPTables(t, importer.Rulesets{}, "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT DROP "+
		"[0:0]\n-A OUTPUT -m conntrack --ctstate ESTABLISHED,DNAT -j ACCEPT\nCOMMIT\n")
	remarksHave(t, rep, "left out|asks for what nat has sent elsewhere")
}

// TestNothingComesToNatThatItHasSent: a chain of nat that accepts all that it has not sent yet
// accepts all, and the rules behind it were followed.
func TestNothingComesToNatThatItHasSent(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		"-A PREROUTING -m conntrack ! --ctstate DNAT -j ACCEPT\n-A PREROUTING -p tcp -m tcp "+
		"--dport 8080 -j REDIRECT --to-ports 80\nCOMMIT\n"+
		save("DROP", "-p tcp -m tcp --dport 80 -j ACCEPT"))
	if passes(t, text, tcp(t, 8080, 0x02)) || !passes(t, text, tcp(t, 80, 0x02)) {
		t.Error(text)
	}
}

// TestSeveralChainsOfNat: chains of nat were followed in the order of the listing, and what the
// first accepts, which the next may redirect, was judged as it arrives.
func TestSeveralChainsOfNat(t *testing.T) {
	rule := func(chain, expr string) string {
		return `{"rule": {"family": "inet", "table": "n", "chain": "` + chain + `", "expr": [` +
			match("==", payload("tcp", "dport"), "8080") + ", " + expr + `]}},`
	}
	base := func(name, kind, hook, prio string) string {
		return `{"chain": {"family": "inet", "table": "n", "name": "` + name + `", "type": "` +
			kind + `", "hook": "` + hook + `", "prio": ` + prio + `, "policy": "accept"}},`
	}
	late := base("late", "nat", "prerouting", "-90")
	soon := base("soon", "nat", "prerouting", "-100")
	for _, chains := range []string{
		late + rule("late", `{"redirect": {"port": 80}}`) +
			soon + rule("soon", `{"redirect": {"port": 81}}`),
		soon + `{"chain": {"family": "inet", "table": "n", "name": "sub"}},` +
			rule("sub", `{"accept": null}`) + rule("soon", `{"jump": {"target": "sub"}}`) +
			late + rule("late", `{"redirect": {"port": 81}}`),
	} {
		text, rep := nftImport(t, `{"nftables": [{"table": {"family": "inet", "name": "n"}},`+
			chains+base("in", "filter", "input", "0")+`{"rule": {"family": "inet", "table": "n", `+
			`"chain": "in", "expr": [`+match("==", payload("tcp", "dport"), "81")+
			`, {"drop": null}]}}]}`, importer.Rulesets{})
		if passes(t, text, tcp(t, 8080, 0x02)) && rep.Fates.Widened == 0 {
			t.Errorf("%s\n%s", rep.Fates, text)
		}
	}
}
