package importer_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
)

// TestCopiesAreBounded shows that returns in chains that are jumped to again and again end in an
// error and not in all the memory there is.
func TestCopiesAreBounded(t *testing.T) {
	rules := []string{":c - [0:0]"}
	for i := range 12 {
		for _, match := range []string{"-m length --length", "-p tcp -m tcp --dport",
			"-p tcp -m tcp --sport"} {
			rules = append(rules, fmt.Sprintf("-A c %s %d:%d -j RETURN", match, i*100, i*100+1000))
		}
	}
	for range 40 {
		rules = append(rules, "-j c")
	}
	var out bytes.Buffer
	_, err := iptables.Import([]importer.Source{{Name: "a",
		R: strings.NewReader(save("DROP", rules...))}}, &out, importer.Rulesets{})
	var errs *importer.Errors
	if err == nil || errors.As(err, &errs) || !strings.Contains(err.Error(), "rules") {
		t.Errorf("got %v", err)
	}
}

// longSet is a set of so many addresses, no two of which follow each other.
func longSet(n int) string {
	var b strings.Builder
	b.WriteString("create long hash:ip family inet maxelem 1000000\n")
	for i := range n {
		fmt.Fprintf(&b, "add long 10.%d.%d.%d\n", i>>15, i>>7&255, i<<1&255)
	}
	return b.String()
}

// TestLongSetsFit shows that a set far above the longest line of a policy is written, and quickly.
func TestLongSetsFit(t *testing.T) {
	var b strings.Builder
	b.WriteString(longSet(100_000) + "create ports bitmap:port range 0-65535\n")
	for p := range 300 {
		fmt.Fprintf(&b, "add ports %d\n", p*2)
	}
	text, _ := fromIPTables(t, importer.Rulesets{}, b.String(),
		save("ACCEPT", "-s 10.0.0.0/9 -m set --match-set long src -j DROP",
			"-m set --match-set long src -j DROP",
			"-p tcp -m set --match-set ports dst -j DROP",
			"-m set --match-set long src -m limit --limit 1/sec -j ACCEPT"))
	if n := strings.Count(text, "    10."); n != 2*100_000 {
		t.Errorf("%d elements", n)
	}
}

// TestLargeSetsInManyRules shows that a large set that meets other addresses in every rule is left
// out at last and does not take all the memory there is, and that a chain behind a large set is
// imported quickly.
func TestLargeSetsInManyRules(t *testing.T) {
	set := longSet(60_000)
	rules := []string{":c - [0:0]", "-m set --match-set long src -j c"}
	for i := range 5000 {
		rules = append(rules, fmt.Sprintf("-A c -s 10.0.%d.%d/32 -p tcp -m tcp --dport %d -j DROP",
			i>>7&255, i<<1&255, i))
	}
	if _, rep := fromIPTables(t, importer.Rulesets{}, set,
		save("ACCEPT", rules...)); rep.Rules != 5000 {
		t.Errorf("%d rules", rep.Rules)
	}
	rules = nil
	for i := range 100 {
		rules = append(rules, fmt.Sprintf("-s 10.0.0.0/8 -p tcp -m tcp --dport %d -m set "+
			"--match-set long src -j DROP", i))
	}
	_, rep := fromIPTables(t, importer.Rulesets{}, set, save("ACCEPT", rules...))
	remarksHave(t, rep, "left out|more than a rule can list")
}
