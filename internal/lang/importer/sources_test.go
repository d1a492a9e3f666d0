package importer_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/importer/pf"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// importFile imports a rule set in the format that its name says.
func importFile(t *testing.T, file, dev string) ([]byte, importer.Imported) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	src, opts := importer.Source{Name: filepath.Base(file), R: in}, importer.Rulesets{Device: dev}
	rep, err := importAs(filepath.Ext(file), src, &out, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, out.Bytes(), rep)
	return out.Bytes(), rep
}

func importAs(ext string, src importer.Source, w io.Writer,
	opts importer.Rulesets) (importer.Imported, error) {
	switch ext {
	case ".json":
		return nft.Import(src, w, opts)
	case ".conf":
		return pf.Import(src, w, opts)
	}
	return iptables.Import([]importer.Source{src}, w, opts)
}

// sourceFiles are rule sets of the kinds that people have, and those of a directory that
// LEVEE_RULESETS names.
func sourceFiles(t *testing.T, exts ...string) (files []string) {
	t.Helper()
	for _, dir := range []string{"testdata/sources", os.Getenv("LEVEE_RULESETS")} {
		for _, ext := range exts {
			if dir == "" {
				continue
			}
			found, err := filepath.Glob(filepath.Join(dir, "*"+ext))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
	}
	return files
}

// TestSources holds the rule sets of testdata/sources to goldens: the policy, and behind it what is
// printed on standard error.
func TestSources(t *testing.T) {
	files := sourceFiles(t, ".save", ".json", ".conf")
	if len(files) < 12 {
		t.Fatal(files)
	}
	for _, file := range files {
		if filepath.Dir(file) != "testdata/sources" {
			continue // of LEVEE_RULESETS: there are no goldens
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			dev := "eth0"
			if filepath.Ext(file) == ".conf" {
				dev = "em0"
			}
			text, rep := importFile(t, file, dev)
			for _, g := range rep.Groups() {
				text = append(text, "\n"+g.String()...)
			}
			goldentest.Compare(t, file+".golden", fmt.Appendf(text, "\n%s\n", rep.Fates))
		})
	}
}

// held are the commands above dynamic sets that put their entries back.
var held = regexp.MustCompile(`(?m)^#   levee set add (\S+) (.*?)(?: --lease \S+)?$`)

// filledIn is a policy whose dynamic sets hold what they held when they were saved.
func filledIn(text string) string {
	entries := map[string][]string{}
	for _, m := range held.FindAllStringSubmatch(text, -1) {
		entries[m[1]] = append(entries[m[1]], strings.Fields(m[2])...)
	}
	for name, in := range entries {
		set := regexp.MustCompile(`(?m)^set ` + regexp.QuoteMeta(name) + ` = dynamic\(max.*$`)
		text = set.ReplaceAllString(text, "set "+name+" = { "+strings.Join(in, ", ")+" }")
	}
	return text
}

// What begins the rules of a policy, and its limits.
var (
	statements = regexp.MustCompile(`(?m)^(fragments|limit|log|pass|drop|count|default) `)
	limits     = regexp.MustCompile(`(?m)^limit (.*) rate .* as (".*")$`)
)

// asked are terms about a named set.
var asked = regexp.MustCompile(` (not )?(from port|from|to|port) [a-zA-Z][\w:./-]*`)

// excused is a policy that passes the packets of which an import says that they may pass though
// the source drops them.
func excused(t *testing.T, text string, rep importer.Imported) *policy.Policy {
	t.Helper()
	sets := text
	if at := statements.FindStringIndex(text); at != nil {
		sets = text[:at[0]]
	}
	var b strings.Builder
	b.WriteString(sets + "\n")
	// the kernel fills sets that begin empty while packets come
	filled := regexp.MustCompile(`(?m)^set (\S+) = dynamic\((?:of \w+, )?max`).
		FindAllStringSubmatch(sets, -1)
	for i, m := range rep.Passes {
		m = asked.ReplaceAllStringFunc(m, func(term string) string {
			words := strings.Fields(term)
			last := words[len(words)-1]
			if strings.Contains("any self port suffix", last) || strings.ContainsAny(last, ":./") ||
				strings.Contains(sets, "set "+last+" = ") {
				return term
			}
			return "" // the set of a rule that is not in the policy
		})
		for _, set := range filled {
			for _, term := range [...]string{" not from ", " not to ", " from ", " to "} {
				m = strings.ReplaceAll(m+" ", term+set[1]+" ", " ")
			}
		}
		if m = strings.TrimRight(m, " "); m == "" {
			m = " from any"
		}
		fmt.Fprintf(&b, "pass%s as \"%d\"\n", m, i)
	}
	// what is above a limit depends on the time
	for _, m := range limits.FindAllStringSubmatch(text, -1) {
		fmt.Fprintf(&b, "pass %s as %s\n", m[1], m[2])
	}
	p, diags := resolve.Parse("excused.levee", []byte(b.String()+"essential off\ndefault drop\n"),
		setfile.None)
	if err := diags.Err(); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return p
}

// compareOneWay sends a thousand packets and fails where the policy passes what the kernel drops,
// unless the import says so.
func (k *kernelSide) compareOneWay(rnd *rand.Rand, text string, rep importer.Imported) {
	k.t.Helper()
	text = filledIn(text)
	p, diags := resolve.Parse("imported.levee", []byte(text), setfile.None)
	if err := diags.Err(); err != nil {
		k.t.Fatal(err)
	}
	frames := make([][]byte, 1000)
	for i := range frames {
		frames[i] = k.packet(rnd, i)
	}
	got := k.verdicts(frames)
	if len(got) < len(frames)/2 { // what is dropped before INPUT comes there without the rules
		k.withoutRules(frames, got)
	}
	judge, excuse, slots := oracle.New(p), oracle.New(excused(k.t, text, rep)), p.Slots()
	dropped, wide, narrow := 0, 0, 0
	for i, ok := range got {
		res := judge.Eval(frames[i])
		pass := res.Action == action.Pass
		switch {
		case slots[res.Slot].Reason == policy.ByEssential:
		case ok && !pass && (trackedOtherwise(frames[i]) || rep.Fates.LeftOut > 0 ||
			excuse.Eval(frames[i]).Action == action.Pass): // a limit, in no time here
			narrow++
		case ok && !pass:
			k.t.Fatalf("packet %d %x: the kernel passes it, the policy drops it by line %d "+
				"(%s)\n%s", i, frames[i], slots[res.Slot].Line, slots[res.Slot].Name, text)
		case ok:
		case !pass:
			dropped++
		case excuse.Eval(frames[i]).Action == action.Pass:
			wide++
		default:
			k.t.Fatalf("packet %d %x: the kernel drops it, the policy passes it by line %d (%s), "+
				"and nothing says so\n%s\n%s", i, frames[i], slots[res.Slot].Line,
				slots[res.Slot].Name, strings.Join(rep.Passes, "\n"), text)
		}
	}
	k.t.Logf("%d packets came: %d dropped by both, %d pass as the import says, %d dropped by the "+
		"policy alone", len(got), dropped, wide, narrow)
	if len(got) < 100 {
		k.t.Errorf("only %d packets came to INPUT", len(got))
	}
}

// withoutRules adds to the verdicts those frames which come to INPUT where no rule drops them
// before: the kernel drops them.
func (k *kernelSide) withoutRules(frames [][]byte, got map[int]bool) {
	k.t.Helper()
	for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
		k.run(noRules, restore)
	}
	k.run("flush ruleset\n"+observer, "nft", "-f", "-")
	if err := k.inner.Forget(); err != nil {
		k.t.Fatal(err)
	}
	k.round = 0
	for i := range k.verdicts(renumbered(frames)) {
		if _, came := got[i]; !came {
			got[i] = false
		}
	}
}

// renumbered returns frames with the numbers of the first round.
func renumbered(frames [][]byte) (out [][]byte) {
	for i, f := range frames {
		f = slices.Clone(f)
		number(f, f[14]>>4 == 6, uint16(i+1))
		out = append(out, f)
	}
	return out
}

// noRules are the tables of iptables without a rule.
const noRules = "*filter\n:INPUT ACCEPT\nCOMMIT\n*mangle\nCOMMIT\n*nat\nCOMMIT\n*raw\nCOMMIT\n"

// matchSet is a condition on a set of ipset.
var matchSet = regexp.MustCompile(`--match-set (\S+) (\S+)`)

// lackingSets are commands that make the sets that rules ask for and the input lacks. They are
// empty, as those of the policy are here.
func lackingSets(rules []string, has []string, six bool) (out []string) {
	for _, m := range matchSet.FindAllStringSubmatch(strings.Join(rules, ""), -1) {
		if slices.ContainsFunc(slices.Concat(has, out), func(line string) bool {
			return strings.HasPrefix(line, "create "+m[1]+" ")
		}) {
			continue
		}
		kind := "hash:ip" + strings.Repeat(",port", strings.Count(m[2], ","))
		if six {
			kind += " family inet6"
		}
		out = append(out, "create "+m[1]+" "+kind+"\n")
	}
	return out
}

// trackedOtherwise tells whether conntrack may take a frame for one of a connection where levee
// does not, as the documentation says: TCP that goes on with what was begun elsewhere, and requests
// of ICMP that came before.
func trackedOtherwise(frame []byte) bool {
	ip := frame[14:]
	proto, at := ip[9], int(ip[0]&15)*4
	if ip[0]>>4 == 6 {
		proto, at = ip[6], 40
	}
	switch above := ip[at:]; {
	case proto == 6 && len(above) > 13:
		return above[13]&0x17 != packet.SYN
	case proto == 1 && len(above) > 0:
		return slices.Contains([]byte{8, 13, 15, 17}, above[0])
	case proto == 58 && len(above) > 0:
		return above[0] == 128
	}
	return false
}

// TestNothingPassesThatTheSourceDrops loads the rule sets into the kernel, and compares its
// verdicts with those of the imported policies, for 1,000 packets each: none passes that the source
// drops, and none is dropped that it passes, but for those of which the import says so.
func TestNothingPassesThatTheSourceDrops(t *testing.T) {
	const seed = 20261123
	t.Logf("seed %d", seed)
	k := newKernelSide(t)
	for _, file := range sourceFiles(t, ".save", ".json") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			k.t = t
			defer func() { // whose packets conntrack knows: nat leaves them alone
				if err := k.inner.Forget(); err != nil {
					t.Error(err)
				}
			}()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, rep := importFile(t, file, "eth0")
			k.near = namedIn(string(raw))
			if filepath.Ext(file) == ".json" {
				k.run("flush ruleset\n"+observer, "nft", "-f", "-")
				// no version of nft reads all that it prints
				if rules, err := os.ReadFile(strings.TrimSuffix(file, "json") + "nft"); err == nil {
					k.run(string(rules), "nft", "-f", "-")
				} else {
					k.run(string(raw), "nft", "-j", "-f", "-")
				}
			} else {
				k.run("flush ruleset\n"+observer, "nft", "-f", "-")
				var sets, rules []string
				for line := range strings.Lines(string(raw)) {
					if strings.HasPrefix(line, "create ") || strings.HasPrefix(line, "add ") {
						sets = append(sets, line)
					} else {
						rules = append(rules, line)
					}
				}
				restore := "iptables-restore"
				six := bytes.Contains(text, []byte("says nothing about IPv4"))
				if six {
					restore = "ip6tables-restore"
				}
				sets = append(sets, lackingSets(rules, sets, six)...)
				k.run(strings.Join(sets, ""), "ipset", "restore")
				k.run(strings.Join(rules, ""), restore)
				defer func() {
					k.run(noRules, restore)
					k.run("", "ipset", "destroy")
				}()
			}
			k.compareOneWay(rand.New(rand.NewPCG(seed, 0)), string(text), rep)
			if rep.Leaving.Same+rep.Leaving.Changed > 0 {
				if err := k.inner.Forget(); err != nil { // what was let in, and is answered
					t.Fatal(err)
				}
				k.routed()
				k.run("delete table inet observer\n"+leaving, "nft", "-f", "-")
				k.compareOut(rand.New(rand.NewPCG(seed, 1)), text, rep, string(raw))
			}
		})
	}
}
