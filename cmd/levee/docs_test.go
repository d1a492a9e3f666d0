package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	lab "levee/cmd/levee-lab/commands"
	"levee/internal/cli/clitest"
	"levee/internal/dataplane/judge/judgetest"
	"levee/internal/filter/ir"
	"levee/internal/lang/resolve"
	"levee/internal/lang/use"
)

// pages are the texts that tell people what to type and where to read on.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md",
		"LICENSES/*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[f] = string(text)
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages found", len(all))
	}
	return all
}

// TestLinksOfDocsLeadSomewhere follows the links between pages, and to the headings in them.
func TestLinksOfDocsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	all := pages(t)
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, m[1])
				continue
			}
			found := anchor == ""
			for _, h := range heading.FindAllStringSubmatch(all[to], -1) {
				found = found || anchorOf(h[1]) == anchor
			}
			if !found {
				t.Errorf("%s: %s has no heading #%s", page, file, anchor)
			}
		}
	}
}

// anchorOf returns the anchor that a forge gives a heading.
func anchorOf(heading string) string {
	kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(strings.TrimSpace(kept), " ", "-")
}

// TestFilesThatTextsNameAreThere looks up the paths that pages, and comments in Go and C, name from
// the top of the repository. Names in capitals stand for others.
func TestFilesThatTextsNameAreThere(t *testing.T) {
	named := regexp.MustCompile("(?:^|[\\s(\"`])((?:docs|internal|cmd|bpf|scripts|test|examples|" +
		"packaging|web)/[a-z][\\w./-]*\\w)")
	texts := pages(t)
	delete(texts, "../../CHANGELOG.md")                       // of versions that were
	delete(texts, "../../docs/explanation/import-figures.md") // of other repositories
	for _, top := range []string{"internal", "cmd", "scripts", "bpf", "docs", "examples"} {
		err := filepath.WalkDir("../../"+top, func(path string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || ext != ".go" && ext != ".c" && ext != ".h" {
				return err
			}
			text, err := os.ReadFile(path)
			comments := regexp.MustCompile(`(?m)^\s*//.*$`).FindAllString(string(text), -1)
			texts[path] = strings.Join(comments, "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for page, text := range texts {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			path, _, _ := strings.Cut(m[1], "...")
			if strings.ToLower(path) != path && path != "docs/explanation/ARCHITECTURE.md" {
				continue
			}
			found++
			if hit, err := filepath.Glob("../../" + path + "*"); err != nil || len(hit) == 0 {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("%d paths found", found)
	}
}

// TestMentionsOfPagesLeadSomewhere looks up each docs/... that any text of the repository has:
// messages, targets of make, scripts, units, policies, the pages of the web.
func TestMentionsOfPagesLeadSomewhere(t *testing.T) {
	mention := regexp.MustCompile(`(?:^|[^\w./-])(?:\.\./)*(docs/[\w][\w./-]*\w)`)
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(path, "../../"), "/")
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "bin"}, top):
			return fs.SkipDir
		case !d.Type().IsRegular(), filepath.Base(path) == "import-figures.md": // of others' docs
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err
		}
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("%d mentions found", found)
	}
}

// TestDecisionsAreRecords holds the decisions to the form that their page promises.
func TestDecisionsAreRecords(t *testing.T) {
	const dir = "../../docs/explanation/decisions/"
	list, err := os.ReadFile(dir + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for page, text := range pages(t) {
		number, _, _ := strings.Cut(filepath.Base(page), "-")
		if filepath.Dir(page) != filepath.Clean(dir) || number == "README.md" {
			continue
		}
		if n := len(strings.Fields(text)); n < 150 || n > 600 {
			t.Errorf("%s has %d words, not 150 to 600", page, n)
		}
		for _, part := range []string{"Question", "Choice", "Not chosen"} {
			if !strings.Contains(text, "\n**"+part) {
				t.Errorf("%s says nothing under %q", page, part)
			}
		}
		title, _, _ := strings.Cut(text, "\n")
		title = strings.ToLower(strings.TrimPrefix(title, "# "+number+": "))
		want = append(want, number+" "+filepath.Base(page)+" "+title)
	}
	row := regexp.MustCompile(`(?m)^\| \[(\d+)\]\((\S+)\) \| (.*) \|$`)
	for _, m := range row.FindAllStringSubmatch(string(list), -1) {
		got = append(got, m[1]+" "+m[2]+" "+strings.ToLower(m[3]))
	}
	slices.Sort(want)
	if d := diff.Diff("want", []byte(strings.Join(want, "\n")), "got",
		[]byte(strings.Join(got, "\n"))); d != nil {
		t.Errorf("the list of decisions:\n%s", d)
	}
}

// wholeTree is all commands that users know: those of levee, and those for which it starts
// levee-lab, in the place of its own.
func wholeTree(e *env) *cobra.Command {
	root := newRoot(e)
	for _, cmd := range lab.Root(e.Env).Commands() {
		for _, own := range root.Commands() {
			if own.Name() == cmd.Name() {
				root.RemoveCommand(own)
			}
		}
		root.AddCommand(cmd)
	}
	return root
}

// TestCommandsInDocsExist looks up each command that pages and help texts show, with its flags: in
// blocks, and in words set like them.
func TestCommandsInDocsExist(t *testing.T) {
	e, _, _, _ := testEnv(false)
	root := wholeTree(e)
	texts := pages(t)
	for _, cmd := range clitest.Leaves(root) {
		texts[cmd.CommandPath()+" --help"] = cmd.Example
	}
	shown := regexp.MustCompile("(?m)(?:`|^ *(?:\\$ )?|\\| |exec [\\w$-]+ )(?:sudo )?levee " +
		"([^`\n|>#]*)")
	n := 0
	for where, text := range texts {
		// A command in words set like code may be broken over two lines.
		text = regexp.MustCompile("`(levee [^`]*)\n([^`]*)`").ReplaceAllString(text, "`$1 $2`")
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			n += wantCommand(t, root, where, m[1])
		}
	}
	if n < 60 {
		t.Errorf("only %d commands found", n)
	}
}

// TestNounsRefuseWhatTheyDoNotKnow: `levee profile lst` and `levee monitor mpgts` printed help, and
// scripts saw the exit status of what is done.
func TestNounsRefuseWhatTheyDoNotKnow(t *testing.T) {
	e, _, _, _ := testEnv(false)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.HasSubCommands() && cmd.RunE == nil {
			t.Errorf("%s takes any word for one that it knows", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(wholeTree(e))
}

// TestEachCommandIsOnItsPage: docs/reference/commands.md has a row for each command. Before, it
// lacked `levee agent token renew`.
func TestEachCommandIsOnItsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (`.+?) \\| ")
	for _, row := range row.FindAllStringSubmatch(string(page), -1) {
		var before []string // words in front of the last one
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			words := strings.Fields(m[1])
			if words[0] != "levee" {
				known[strings.Join(append(slices.Clone(before), words[0]), " ")] = true
				continue
			}
			end := 1 + slices.IndexFunc(append(words[1:], "-"), func(w string) bool {
				return !regexp.MustCompile(`^[a-z]+(\\\|[a-z]+)*$`).MatchString(w)
			})
			before = words[:end-1]
			for _, last := range strings.Split(words[end-1], `\|`) {
				known[strings.Join(append(slices.Clone(before), last), " ")] = true
			}
		}
	}
	e, _, _, _ := testEnv(false)
	root := wholeTree(e)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range clitest.Leaves(root) {
		path := cmd.CommandPath()
		if !known[path] && !strings.HasPrefix(path, "levee bench ") &&
			!strings.HasPrefix(path, "levee completion ") {
			t.Errorf("docs/reference/commands.md has no row for %s", path)
		}
		delete(known, path)
	}
	for path := range known {
		if cmd, _, err := root.Find(strings.Fields(path)[1:]); err != nil ||
			cmd.CommandPath() != path {
			t.Errorf("docs/reference/commands.md has a row for %s, which is no command", path)
		}
	}
}

// wantCommand is 1 if the words begin with a command, which then must have the flags behind it.
func wantCommand(t *testing.T, root *cobra.Command, where, line string) int {
	t.Helper()
	words := strings.Fields(line)
	if len(words) == 0 || !regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) {
		return 0
	}
	cmd, _, err := root.Find(words[:1])
	if err != nil {
		if strings.HasPrefix(where, "levee ") || len(words) > 1 &&
			strings.HasPrefix(words[len(words)-1], "--") {
			t.Errorf("%s: levee %s: there is no such command", where, line)
		}
		return 0 // prose: "levee compiles ..."
	}
	if sub, _, err := cmd.Find(words[1:]); err == nil && len(words) > 1 {
		cmd = sub
	}
	for _, w := range words {
		name, long := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, ".,;:)"), "=")
		if long && name != "" && name != "help" && !hasFlag(cmd, name) {
			t.Errorf("%s: %s has no flag --%s (levee %s)", where, cmd.CommandPath(), name, line)
		}
	}
	return 1
}

// hasFlag reports whether a command has a flag, or, of a noun such as `levee bench`, one of its
// verbs.
func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flag(name) != nil || cmd.InheritedFlags().Lookup(name) != nil ||
		slices.ContainsFunc(cmd.Commands(),
			func(sub *cobra.Command) bool { return hasFlag(sub, name) })
}

// TestPoliciesInDocsKeepWhatIsEssential checks the policies that pages show whole, or mark as
// `levee`, and runs their tests. Their set files hold what a list of bogons does.
func TestPoliciesInDocsKeepWhatIsEssential(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```(\\w*)[^\n]*\n(.*?)^```$")
	whole := regexp.MustCompile(`(?m)^default (drop|pass)$`)
	n := 0
	for page, text := range pages(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[1] != "levee" && (m[1] != "" || !whole.MatchString(m[2])) {
				continue
			}
			n++
			p, diags := resolve.Parse(filepath.Base(page), []byte(m[2]),
				func(path string) (io.ReadCloser, error) {
					if _, profile, _ := use.Shipped(path); profile {
						return nil, os.ErrNotExist // that of the program
					}
					return io.NopCloser(
							strings.NewReader("10.0.0.0/8\n169.254.0.0/16\nfc00::/7\n")),
						nil
				})
			if len(diags) > 0 {
				t.Fatalf("%s: %v", page, diags)
			}
			for _, f := range ir.Build(p).Findings {
				t.Errorf("%s: line %d of its policy: %s", page, f.Pos.Line, f.Message)
			}
			results, err := judgetest.Run(p)
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
			for _, res := range results {
				for _, r := range res.Packets {
					if r.Fault != "" {
						t.Errorf("%s: %s: %s", page, res.Test.Name, r.Fault)
					}
				}
			}
		}
	}
	if n < 2 {
		t.Errorf("only %d policies found", n)
	}
}

// TestTheProfileOfTheGuideFitsItsExample: with the profile in the place of its rule, the tests of
// the game host's example expected a label that no packet of theirs has.
func TestTheProfileOfTheGuideFitsItsExample(t *testing.T) {
	guide := pages(t)["../../docs/guides/game.md"]
	says := regexp.MustCompile("(?s)```\n(use [^\n]*)\n```.*by \"game\"` then expect `" +
		"(by \"[^\"]*\")`").FindStringSubmatch(guide)
	example, err := os.ReadFile("../../examples/game.levee")
	if err != nil || says == nil {
		t.Fatal(err, says)
	}
	text := strings.NewReplacer(`pass udp port game as "game"`, says[1], `by "game"`, says[2]).
		Replace(string(example))
	p, ds := resolve.Parse("game.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	results, err := judgetest.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range results {
		for _, r := range res.Packets {
			if r.Fault != "" {
				t.Errorf("%s: %s", res.Test.Name, r.Fault)
			}
		}
	}
}

// TestExamplesOfStreamsWork refuses two pipelines: one that adds nothing, as --from is read to its
// end, which never comes, and one that empties a set, or cuts it short, when a download fails.
func TestExamplesOfStreamsWork(t *testing.T) {
	e, _, _, _ := testEnv(false)
	texts := pages(t)
	for _, cmd := range clitest.Leaves(wholeTree(e)) {
		texts[cmd.CommandPath()+" --help"] = cmd.Example
	}
	wrong := regexp.MustCompile(`(tail -\w*[fF].*|(curl|wget) .*)\| *(sudo )?levee .*--from -`)
	for where, text := range texts {
		if m := wrong.FindString(text); m != "" {
			t.Errorf("%s: %s", where, m)
		}
	}
}
