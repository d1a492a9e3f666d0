package importer_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/classbench"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/importer/pf"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// Tests of what stood between an imported policy and its use, each named after what was seen.

func nftImport(t *testing.T, in string, opts importer.Rulesets) (string, importer.Imported) {
	t.Helper()
	var out bytes.Buffer
	rep, err := nft.Import(importer.Source{Name: "a", R: strings.NewReader(in)}, &out, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, out.Bytes(), rep)
	return out.String(), rep
}

// tcp is a segment to a port of this machine.
func tcp(t *testing.T, port uint16, flags uint8) []byte {
	t.Helper()
	f, err := packet.Build(packet.Spec{From: netip.MustParseAddr("192.0.2.1"),
		To: netip.MustParseAddr("198.51.100.1"), Proto: new(uint8(6)), FromPort: new(uint16(40000)),
		ToPort: &port, Flags: &flags})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// passes tells whether a policy passes a frame.
func passes(t *testing.T, text string, frame []byte) bool {
	t.Helper()
	p, diags := resolve.Parse("imported.levee", []byte(text), setfile.None)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return oracle.New(p).Eval(frame).Action == action.Pass
}

// TestNewAcceptIsNoLockOut: `--state NEW --dport 22 ACCEPT` was left out, and the policy ended in
// `drop ipv4`.
func TestNewAcceptIsNoLockOut(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{Stateless: true}, save("DROP",
		"-m state --state RELATED,ESTABLISHED -j ACCEPT",
		"-p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT"))
	for _, flags := range []uint8{packet.SYN, packet.ACK, packet.ACK | packet.FIN, packet.RST} {
		if !passes(t, text, tcp(t, 22, flags)) {
			t.Errorf("flags %#x to port 22 are dropped:\n%s", flags, text)
		}
	}
	if passes(t, text, tcp(t, 23, packet.SYN)) {
		t.Errorf("a SYN to port 23 passes:\n%s", text)
	}
}

// TestSynLimitIsNoDrop: a limit on SYNs, by a chain that returns up to a rate and drops the rest,
// became a drop of every SYN.
func TestSynLimitIsNoDrop(t *testing.T) {
	const syn = "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN "
	for name, rules := range map[string][]string{
		"a return": {":flood - [0:0]", syn + "-j flood",
			"-A flood -m limit --limit 25/sec --limit-burst 50 -j RETURN", "-A flood -j DROP"},
		"an accept": {":flood - [0:0]", syn + "-m limit --limit 1/sec -j ACCEPT", syn + "-j DROP"},
		"a drop above": {syn + "-m hashlimit --hashlimit-above 20/sec --hashlimit-mode srcip " +
			"--hashlimit-name x -j DROP"},
		"connections": {syn + "-m connlimit --connlimit-above 9 --connlimit-mask 32 " +
			"--connlimit-saddr -j REJECT --reject-with tcp-reset"},
		"a drop up to": {syn + "-m limit --limit 1/sec -j DROP"},
		"a chain that drops": {":ban - [0:0]", syn + "-m limit --limit 1/sec -j ban",
			"-A ban -j DROP"},
		"seen lately": {syn + "-m recent --set --name s --mask 255.255.255.255 --rsource",
			syn + "-m recent --update --seconds 60 --hitcount 4 --name s --mask " +
				"255.255.255.255 --rsource -j DROP"},
	} {
		text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", rules...))
		if !passes(t, text, tcp(t, 80, packet.SYN)) {
			t.Errorf("%s: every SYN is dropped:\n%s", name, text)
		}
		if rep.Fates.Widened == 0 && !strings.Contains(text, "\nlimit ") {
			t.Errorf("%s: nobody says that more passes: %+v", name, rep.Fates)
		}
	}
	const limit = `{"limit": {"rate": 25, "burst": 50, "per": "second"}}`
	for _, expr := range []string{
		strings.Replace(limit, `25,`, `25, "inv": true,`, 1) + dropped,
		`{"ct count": {"val": 20, "inv": true}}` + dropped, limit + dropped,
		`{"set": {"op": "add", "elem": ` + payload("ip", "saddr") + `, "set": "@s", "stmt": [` +
			`{"limit": {"rate": 5, "per": "second", "inv": true}}]}}` + dropped,
		`{"meter": {"key": ` + payload("ip", "saddr") + `, "stmt": {"limit": {"rate": 5, "per": ` +
			`"second", "inv": true}}, "size": 65535, "name": "m"}}` + dropped,
	} {
		text, rep := nftImport(t, nftInput(expr), importer.Rulesets{})
		if !passes(t, text, tcp(t, 80, packet.SYN)) ||
			rep.Fates.Widened == 0 && !strings.Contains(text, "\nlimit ") {
			t.Errorf("%s: %+v\n%s", expr, rep.Fates, text)
		}
	}
}

// fail2ban is 16 rules: five jails in front of what a small server lets in.
func fail2ban() string {
	rules := []string{}
	for i, jail := range []string{"sshd", "dovecot", "postfix"} {
		rules = append(rules, ":f2b-"+jail+" - [0:0]",
			fmt.Sprintf("-p tcp -m multiport --dports %d -j f2b-%s", 22+i, jail),
			fmt.Sprintf("-A f2b-%s -s 192.0.2.%d/32 -j REJECT --reject-with "+
				"icmp-port-unreachable", jail, i), "-A f2b-"+jail+" -j RETURN")
	}
	for _, p := range []int{22, 25, 80, 143, 443, 993} {
		rules = append(rules, fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", p))
	}
	return save("DROP", append(rules, "-p icmp -j ACCEPT")...)
}

// TestTrailingReturnsAreNotCopied: each chain of fail2ban ends in RETURN, for which all that
// follows was copied: 16 rules became 53.
func TestTrailingReturnsAreNotCopied(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, fail2ban())
	if rep.Rules != 3+6+1+1 {
		t.Errorf("%d rules:\n%s", rep.Rules, text)
	}
}

// TestReturnsByOneFieldAreNotCopied shows the same for the returns of ufw and Docker, which ask for
// one thing.
func TestReturnsByOneFieldAreNotCopied(t *testing.T) {
	rules := []string{":local - [0:0]", "-j local",
		"-A local -d 224.0.0.0/4 -j RETURN", "-A local -s 10.0.0.0/8 -j RETURN",
		"-A local -p icmp -j RETURN", "-A local -j DROP"}
	for p := range 40 {
		rules = append(rules, fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", p+1))
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, save("DROP", rules...))
	if rep.Rules != 42 {
		t.Errorf("%d rules:\n%s", rep.Rules, text)
	}
	want := "drop ipv4 not icmp not from 10.0.0.0/8 not to 224.0.0.0/4\npass ipv4 tcp port 1\n"
	if !strings.HasPrefix(rulesOf(text), want) {
		t.Errorf("%s", text)
	}
}

// TestFilledSetsWithTimeoutsStayDynamic: such a set became a static one, for ever.
func TestFilledSetsWithTimeoutsStayDynamic(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{},
		"create f2b hash:ip family inet hashsize 1024 maxelem 65536 timeout 600\n"+
			"add f2b 192.0.2.1 timeout 540\nadd f2b 192.0.2.2 timeout 540\n"+
			"add f2b 192.0.2.3 timeout 0\n"+
			"create own hash:net timeout 0\nadd own 10.0.0.0/8\n"+
			"create ends hash:ip,port timeout 60\nadd ends 192.0.2.9,tcp:80 timeout 7\n"+
			"create p bitmap:port range 0-1023 timeout 5\nadd p 22 timeout 3\n"+
			save("DROP", "-m set --match-set f2b src -j DROP",
				"-m set --match-set own src -j ACCEPT",
				"-m set --match-set ends dst,dst -j ACCEPT",
				"-p tcp -m set --match-set p dst -j ACCEPT"))
	for _, want := range []string{"set f2b = dynamic(max 65536, lease 600s)",
		"#   levee set add f2b 192.0.2.1 192.0.2.2 --lease 540s\n" +
			"#   levee set add f2b 192.0.2.3 --lease forever\n",
		"set own = dynamic(max 65536)", "#   levee set add own 10.0.0.0/8\n",
		"set ends = dynamic(of endpoints, max 65536, lease 60s)",
		"#   levee set add ends 192.0.2.9 tcp/80 --lease 7s\n",
		"set set-p = dynamic(of services, max 131072, lease 5s)",
		"#   levee set add set-p tcp/22 udp/22 --lease 3s\n",
		"drop ipv4 from f2b as", "pass ipv4 from own as", "pass ipv4 to ends as",
		"pass ipv4 tcp to set-p as"} {
		if !strings.Contains(text, strings.ReplaceAll(want, "set-p", "p")) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	remarksHave(t, rep, `changed, widens|"f2b"|begins empty`)
	remarksHave(t, rep, `changed: |"own"|begins empty`)
	in := strings.Replace(nftInput(match("==", payload("ip", "saddr"), `"@s"`)+dropped),
		`"type": "ipv4_addr", "handle": 2}`,
		`"type": "ipv4_addr", "handle": 2, "flags": ["timeout"], "timeout": 3600}`, 1)
	in = strings.Replace(in, `"comment": "x"`, `"timeout": 600, "expires": 599`, 1)
	text, rep = nftImport(t, in, importer.Rulesets{})
	for _, want := range []string{"set s = dynamic(max 65536, lease 3600s)",
		"#   levee set add s 192.0.2.1\n", "#   levee set add s 192.0.2.2 --lease 599s\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	remarksHave(t, rep, `changed, widens|"s"|begins empty`)
}

// TestManyEntriesAreBounded shows that the comments above a dynamic set do not grow with it.
func TestManyEntriesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("create f2b hash:ip timeout 600 maxelem 100\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "add f2b 10.0.%d.%d timeout %d\n", i>>8, i&255, i%600+1)
	}
	text, _ := fromIPTables(t, importer.Rulesets{},
		b.String()+save("ACCEPT", "-m set --match-set f2b src -j DROP"))
	if n := strings.Count(text, "\n"); n > 1100 || !strings.Contains(text, "and 4000 more") ||
		!strings.Contains(text, "max 5000") {
		t.Errorf("%d lines", n)
	}
}

// TestEmptyPortSetsStay: a rule about a set of ports that was empty vanished.
func TestEmptyPortSetsStay(t *testing.T) {
	text, rep := fromIPTables(t, importer.Rulesets{}, "create open bitmap:port range 0-65535\n"+
		save("DROP", "-p tcp -m set --match-set open dst -j ACCEPT"))
	want := "set open = dynamic(of services, max 131072)\npass ipv4 tcp to open\ndrop ipv4"
	if !strings.HasPrefix(rulesOf(text), want) {
		t.Errorf("%s", text)
	}
	remarksHave(t, rep, `note|"open" is empty`)
	rule := match("==", payload("tcp", "dport"), `"@p"`) + `, {"accept": null}`
	in := strings.Replace(nftInput(rule), `{"chain"`,
		`{"set": {"family": "inet", "name": "p", "table": "f", "type": `+
			`"inet_service", "handle": 9}},`+"\n"+`{"chain"`, 1)
	text, rep = nftImport(t, in, importer.Rulesets{})
	want = "set p = dynamic(of services, max 65536)\npass tcp to p"
	if !strings.HasPrefix(rulesOf(text), want) {
		t.Errorf("%s", text)
	}
	remarksHave(t, rep, `note|"p" is empty`)
}

// TestAnonymousChainsLeaveTheirRuleOut: nft 1.0.6 prints an anonymous chain as text in its JSON,
// which ended the whole import.
func TestAnonymousChainsLeaveTheirRuleOut(t *testing.T) {
	in := nftInput(match("==", payload("tcp", "dport"), "22") +
		`, "jump {\n\t\t\tip saddr 192.0.2.1 accept\n\t\t\tdrop\n\t\t}"`)
	in = strings.Replace(in, "\n]}", `,
{"rule": {"family": "inet", "table": "f", "chain": "input", "handle": 7, "expr": [`+
		match("==", payload("tcp", "dport"), "80")+`, {"drop": null}]}}`+"\n]}", 1)
	text, rep := nftImport(t, in, importer.Rulesets{})
	want := "# left out: inet f input handle 6: tcp dport 22\ndrop tcp port 80\ndefault pass"
	if d := cmp.Diff(want, rulesOf(text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	remarksHave(t, rep, "left out, widens|handle 6|jump { ip saddr 192.0.2.1 accept drop }|"+
		"everything behind it is uncertain|give a chain without a name one")
}

// TestFamiliesThatAreNotGivenAreSaid: the policy of one family ended in a `default pass` without a
// word.
func TestFamiliesThatAreNotGivenAreSaid(t *testing.T) {
	text, _ := fromIPTables(t, importer.Rulesets{}, save("DROP", "-p tcp -j ACCEPT"))
	if !strings.Contains(text, "# The source says nothing about IPv6, so all of it passes: import "+
		"the rules for IPv6 too\n#   (ip6tables-save), or write `drop ipv6` in front of this "+
		"line.\ndefault pass\n") {
		t.Errorf("%s", text)
	}
}

// TestRunsBecomeSets: 245 drops of single addresses stayed 245 rules.
func TestRunsBecomeSets(t *testing.T) {
	var rules []string
	for i := range 245 {
		rules = append(rules, fmt.Sprintf("-s 192.0.2.%d/32 -j DROP", i))
	}
	for i := range 9 {
		rules = append(rules, fmt.Sprintf("-d 198.51.100.%d/32 -p tcp -m tcp --dport 22 -j ACCEPT",
			2*i))
	}
	for i := range 7 {
		rules = append(rules, fmt.Sprintf("-s 203.0.113.%d/32 -j DROP", i))
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", rules...))
	if rep.Rules != 9 || rep.Sets != 2 ||
		!strings.Contains(text, `drop from INPUT-drop-from as "INPUT:1 and 244 more"`) ||
		!strings.Contains(text, `pass tcp to INPUT-pass-to port 22 as "INPUT:246 and 8 more"`) ||
		!strings.Contains(text, "set INPUT-drop-from = {") {
		t.Errorf("%d rules, %d sets:\n%s", rep.Rules, rep.Sets, text)
	}
	// Labels of one's own are counters of one's own.
	rules = nil
	for i := range 20 {
		rules = append(rules, fmt.Sprintf("-s 192.0.2.%d/32 -m comment --comment c%d -j DROP", i,
			i))
	}
	if _, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", rules...)); rep.Rules != 20 {
		t.Errorf("%d rules", rep.Rules)
	}
}

// TestRemarksAreSaidOnceEachKind shows the groups in which remarks are printed.
func TestRemarksAreSaidOnceEachKind(t *testing.T) {
	var rules []string
	for i := range 30 {
		rules = append(rules, fmt.Sprintf("-p tcp -m tcp --dport %d -j REJECT", i*2+1))
	}
	text, rep := fromIPTables(t, importer.Rulesets{}, save("ACCEPT", rules...))
	if n := strings.Count(text, "REJECT becomes a drop"); n != 1 {
		t.Errorf("said %d times beside the rules", n)
	}
	found := ""
	for _, g := range rep.Groups() {
		if strings.Contains(g.String(), "REJECT becomes") {
			found += g.String()
		}
	}
	if !strings.HasPrefix(found, "a:4: changed: -A INPUT -p tcp -m tcp --dport 1 -j REJECT") ||
		!strings.HasSuffix(found, " (the same: line 5, line 6, line 7, line 8, line 9, line 10, "+
			"line 11, line 12, line 13, line 14 and 19 more)") {
		t.Errorf("%s", found)
	}
}

// endless yields one line for ever.
type endless struct{ line string }

func (e endless) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		n += copy(b[n:], e.line)
	}
	return n, nil
}

// TestEndlessInputEnds: an import of endless input read for ever, or all the memory there was.
func TestEndlessInputEnds(t *testing.T) {
	for _, line := range []string{"\n", "y\n", "\x00", "-A INPUT -j DROP\n", "pass in all\n"} {
		for name, run := range map[string]func(r io.Reader, w io.Writer) error{
			"classbench": func(r io.Reader, w io.Writer) error {
				_, err := classbench.Import(r, w, importer.Options{Name: "a"})
				return err
			},
			"iptables": func(r io.Reader, w io.Writer) error {
				_, err := iptables.Import([]importer.Source{{Name: "a", R: r}}, w,
					importer.Rulesets{})
				return err
			},
			"nft": func(r io.Reader, w io.Writer) error {
				_, err := nft.Import(importer.Source{Name: "a", R: r}, w, importer.Rulesets{})
				return err
			},
			"pf": func(r io.Reader, w io.Writer) error {
				_, err := pf.Import(importer.Source{Name: "a", R: r}, w, importer.Rulesets{})
				return err
			},
		} {
			done := make(chan error, 1)
			go func() { done <- run(endless{line}, io.Discard) }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "a:") {
					t.Errorf("%s of %q: %v", name, line, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s of %q does not end", name, line)
			}
		}
	}
}
