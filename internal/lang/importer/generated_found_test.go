package importer_test

import (
	"strings"
	"testing"

	"levee/internal/lang/importer"
)

// Faults that generated rule sets have shown, each as a test of its own.

// TestTablesOfPFWithinWhatIsTakenOut: an address of a table within a prefix that is taken out of it
// was lost, so that what a rule blocks passed.
func TestTablesOfPFWithinWhatIsTakenOut(t *testing.T) {
	got, _ := fromPF(t, "table <t> { 10/8, !10.1/16, 10.1.2/24 }\nblock in from <t>\n",
		importer.Rulesets{Device: "em0"})
	const want = "set t = { 10.0.0.0/16, 10.1.2.0/24, 10.2.0.0-10.255.255.255 }\ndrop from t"
	if !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestRangesOfPFInLists: the dash of a range within braces was taken for a name.
func TestRangesOfPFInLists(t *testing.T) {
	got, rep := fromPF(t, "block in from { 192.0.2.1 192.0.2.4 - 192.0.2.7 ! 10/8 }\n",
		importer.Rulesets{Device: "em0"})
	if !strings.Contains(got, "drop from { 192.0.2.1, 192.0.2.4/30 }") || rep.Fates.Widened > 0 {
		t.Errorf("%d widen:\n%s", rep.Fates.Widened, got)
	}
}

// TestAnEarlyChainThatDropsByItsPolicy: what a chain in front of INPUT drops by its policy passed,
// and nobody said that more passes.
func TestAnEarlyChainThatDropsByItsPolicy(t *testing.T) {
	chain := func(policy, rules string) string {
		return "*raw\n:PREROUTING " + policy + " [0:0]\n" + rules + "COMMIT\n" +
			save("ACCEPT", "-p udp -m udp --dport 9 -j DROP")
	}
	got, rep := fromIPTables(t, importer.Rulesets{}, chain("DROP",
		"-A PREROUTING -s 192.0.2.0/24 -j ACCEPT\n"))
	const want = "drop ipv4 not from 192.0.2.0/24\ndrop ipv4 udp port 9\ndefault pass"
	if text := rulesOf(got); text != want || rep.Fates.Widened > 0 {
		t.Errorf("%d widen:\n%s", rep.Fates.Widened, text)
	}
	// a return is decided by the policy, which no rule before says
	_, rep = fromIPTables(t, importer.Rulesets{}, chain("DROP",
		"-A PREROUTING -s 192.0.2.0/24 -j RETURN\n"))
	if rep.Fates.Widened == 0 {
		t.Errorf("nobody says that more passes: %s", rep.Fates)
	}
	remarksHave(t, rep, "changed, widens|what it drops never reaches")
}

// TestWhatNatSendsAwayInTheMiddleOfAConnection: conntrack begins connections at an ACK, and nat
// sends that elsewhere too; in the policy such a segment was judged by the port that it has.
func TestWhatNatSendsAwayInTheMiddleOfAConnection(t *testing.T) {
	got, _ := fromIPTables(t, importer.Rulesets{}, "*nat\n:PREROUTING ACCEPT [0:0]\n"+
		"-A PREROUTING -p tcp --dport 53 -j REDIRECT --to-ports 80\nCOMMIT\n"+
		save("ACCEPT", "-p tcp --dport 53 -j ACCEPT", "-p tcp --dport 80 -j DROP"))
	if passes(t, got, tcp(t, 53, 0x10)) || passes(t, got, tcp(t, 53, 0x02)) ||
		!passes(t, got, tcp(t, 54, 0x10)) {
		t.Errorf("%s", got)
	}
}

// TestNothingWidensByARuleThatIsNotThere: a rule that is left out, or that nothing reaches, counted
// by what its set would have widened.
func TestNothingWidensByARuleThatIsNotThere(t *testing.T) {
	const sets = "create banned hash:ip timeout 60\nadd banned 192.0.2.3 timeout 6\n"
	for _, rules := range [][]string{
		{":c - [0:0]", "-s 192.0.2.0/24 -m set --match-set banned src -j DROP", "-j DROP"},
		{":c - [0:0]", "-p tcp -j c", "-A c -p udp -m set --match-set banned src -m statistic " +
			"--mode nth --every 2 --packet 0 -j DROP", "-j DROP"},
		{"-i docker0 -m set --match-set banned src -j DROP", "-p udp -j ACCEPT"},
	} {
		_, rep := fromIPTables(t, importer.Rulesets{Device: "eth0"}, sets+save("DROP", rules...))
		if rep.Fates.Widened != 0 {
			t.Errorf("%v: %s", rules, rep.Fates)
		}
	}
}
