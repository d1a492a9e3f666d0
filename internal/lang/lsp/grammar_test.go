package lsp

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"levee/internal/lang/syntax"
)

const editors = "../../../packaging/editors/"

// TestGrammarsHaveEachWord compares the grammars of editors with the words of the language.
func TestGrammarsHaveEachWord(t *testing.T) {
	for file, lists := range map[string]*regexp.Regexp{
		"levee.vim":             regexp.MustCompile(`(?m)^syn keyword \w+ (.*)$`),
		"levee.tmLanguage.json": regexp.MustCompile(`"match": "\(\?<!\[\\\\w-\]\)\(\?:(.*)\)\(\?!`),
	} {
		text, err := os.ReadFile(editors + file)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, m := range lists.FindAllSubmatch(text, -1) {
			have = append(have, regexp.MustCompile(`[a-z][a-z0-9-]*`).FindAllString(string(m[1]),
				-1)...)
		}
		for _, w := range syntax.Words() {
			if !slices.Contains(have, w) {
				t.Errorf("%s lacks %q", file, w)
			}
		}
		for _, w := range have {
			if !slices.Contains(syntax.Words(), w) {
				t.Errorf("%s has %q, which is no word", file, w)
			}
		}
	}
	text, err := os.ReadFile(editors + "levee.tmLanguage.json")
	if err != nil || !json.Valid(text) {
		t.Errorf("the TextMate grammar is no JSON, %v", err)
	}
}

// TestVimReadsTheGrammar asks vim, where there is one, what it sees in a policy.
func TestVimReadsTheGrammar(t *testing.T) {
	if _, err := exec.LookPath("vim"); err != nil {
		t.Skip("there is no vim")
	}
	dir := t.TempDir()
	file, seen := filepath.Join(dir, "a.levee"), filepath.Join(dir, "seen")
	if err := os.WriteFile(file, []byte("drop tcp inner-vlan 7 as \"a # b\" # why\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	name := func(col string) string {
		return "synIDattr(synID(1, " + col + ", 1), 'name')"
	}
	out, err := exec.Command("vim", "-u", "NONE", "-i", "NONE", "-n", "-es", "-c", "syntax on",
		"-c", "source "+editors+"levee.vim", "-c", "call writefile(["+name("1")+", "+name("6")+
			", "+name("10")+", "+name("16")+", "+name("21")+", "+name("29")+", "+name("36")+
			"], '"+seen+"')", "-c", "qa!", file).CombinedOutput()
	got, rerr := os.ReadFile(seen)
	const want = "leveeStatement\nleveeTerm\nleveeTerm\nleveeTerm\nleveeNumber\nleveeString\n" +
		"leveeComment\n"
	if rerr != nil || string(got) != want {
		t.Errorf("%s, %v, %s\n%s\nwant\n%s", out, err, rerr, got, want)
	}
}
