package importer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/goldentest"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// netfilterFiles are sources of testdata/netfilter, which make.sh there writes with the real tools.
func netfilterFiles(t *testing.T, names ...string) (in []importer.Source) {
	t.Helper()
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join("testdata/netfilter", n))
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, importer.Source{Name: n, R: bytes.NewReader(b)})
	}
	return in
}

type netfilterImport func(w *bytes.Buffer) (importer.Imported, error)

// checkImported fails unless what an import wrote is a policy without mistakes in the layout of
// `levee fmt`.
func checkImported(t *testing.T, text []byte, rep importer.Imported) *policy.Policy {
	t.Helper()
	checkLayout(t, text, rep.Rules)
	checkCounted(t, rep)
	p, diags := resolve.Parse("imported.levee", text, setfile.None)
	if err := diags.Err(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// checkCounted fails if a remark says that more may pass, and the summary that nothing does.
func checkCounted(t *testing.T, rep importer.Imported) {
	t.Helper()
	says := slices.ContainsFunc(rep.Remarks, func(r importer.Remark) bool { return r.Widens })
	if counts := rep.Fates.Widened > 0 || rep.Fates.States; says != counts {
		t.Errorf("remarks say that more passes: %v; the summary: %s\n%v", says, rep.Fates,
			rep.Remarks)
	}
}

// TestDumpsOfTheRealTools holds whole dumps to goldens: the policy, and behind it every remark.
func TestDumpsOfTheRealTools(t *testing.T) {
	iptables := func(opts importer.Rulesets, files ...string) netfilterImport {
		return func(w *bytes.Buffer) (importer.Imported, error) {
			return iptables.Import(netfilterFiles(t, files...), w, opts)
		}
	}
	nft := func(opts importer.Rulesets, file string) netfilterImport {
		return func(w *bytes.Buffer) (importer.Imported, error) {
			return nft.Import(netfilterFiles(t, file)[0], w, opts)
		}
	}
	for name, run := range map[string]netfilterImport{
		"iptables": iptables(importer.Rulesets{}, "v4.save", "v6.save", "ipset.save"),
		"iptables-eth0": iptables(importer.Rulesets{Device: "eth0"},
			"ipset.save", "v4.save"),
		"iptables-two": iptables(importer.Rulesets{Chains: []string{"raw/PREROUTING",
			"FORWARD"}}, "v4.save"),
		"nft": nft(importer.Rulesets{}, "ruleset.json"),
		"nft-eth1": nft(importer.Rulesets{Device: "eth1"},
			"ruleset.json"),
		"nft-ingress": nft(importer.Rulesets{Chains: []string{"netdev/nd/ing"}},
			"ruleset.json"),
		"nft-matches":      nft(importer.Rulesets{}, "matches.json"),
		"nft-matches-eth0": nft(importer.Rulesets{Device: "eth0"}, "matches.json"),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			rep, err := run(&out)
			if err != nil {
				t.Fatal(err)
			}
			checkImported(t, out.Bytes(), rep)
			for _, r := range rep.Remarks {
				out.WriteString("\n" + r.String())
			}
			golden := filepath.Join("testdata/netfilter", name+".golden")
			goldentest.Compare(t, golden, out.Bytes())
		})
	}
}

// rulesOf are the statements of a policy without its heading, labels and comments, but for those
// that stand in place of a rule.
func rulesOf(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' && !strings.HasPrefix(line, "# left out: ") &&
			!strings.HasPrefix(line, "#   nearest: ") {
			continue
		}
		rule, _, _ := strings.Cut(line, ` as "`)
		out = append(out, rule)
	}
	return strings.Join(out, "\n")
}

// remarksHave fails unless one remark has all the words.
func remarksHave(t *testing.T, rep importer.Imported, want string) {
	t.Helper()
	var all strings.Builder
	for _, r := range rep.Remarks {
		all.WriteString(r.String() + "\n")
		ok := true
		for _, w := range strings.Split(want, "|") {
			ok = ok && strings.Contains(r.String(), w)
		}
		if ok {
			return
		}
	}
	t.Errorf("no remark has %q:\n%s", want, all.String())
}
