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
	want := "limit ipv4 tcp port 22 rate 10/m burst 5\npass ipv4 tcp port 22\n" +
		"drop ipv4 tcp port 22\n"
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
