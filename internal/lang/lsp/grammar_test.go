package lsp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/goldentest"
	"levee/internal/lang/syntax"
)

const editors = "../../../packaging/editors/"

// inGrammars are the words of the language as grammars of editors tell them apart.
func inGrammars() (statements, terms, options []string) {
	for _, w := range syntax.Words() {
		switch {
		case slices.Contains(syntax.TermWords(), w) && w != "as",
			slices.Contains(syntax.PacketWords(), w) && w != "hex" && w != "expect" &&
				w != "leaves":
			terms = append(terms, w)
		case slices.Contains(syntax.Statements(), w):
			statements = append(statements, w)
		default:
			options = append(options, w)
		}
	}
	return statements, terms, options
}

// TestGrammarsHaveEachWord holds the grammars of editors against the words of the language, and
// with -update writes these into them.
func TestGrammarsHaveEachWord(t *testing.T) {
	statements, terms, options := inGrammars()
	for file, write := range map[string]func(text string) string{
		"levee.vim": func(text string) string {
			var lists strings.Builder
			for _, l := range []struct {
				group string
				words []string
			}{{"Statement", statements}, {"Option", options}, {"Term", terms}} {
				for words := range slices.Chunk(l.words, 8) {
					fmt.Fprintf(&lists, "syn keyword levee%s %s\n", l.group,
						strings.Join(words, " "))
				}
			}
			return replace(t, text, `(?m)(^syn keyword .*\n)+`, lists.String())
		},
		"levee.tmLanguage.json": func(text string) string {
			for name, words := range map[string][]string{
				"keyword.control": statements, "keyword.other": options, "support.type": terms,
			} {
				text = replace(t, text, `(?s)("`+name+`.levee",\s*"match": "[^:]*:)[^)]*`,
					"${1}"+strings.Join(words, "|"))
			}
			return text
		},
	} {
		text, err := os.ReadFile(editors + file)
		if err != nil {
			t.Fatal(err)
		}
		goldentest.Compare(t, editors+file, []byte(write(string(text))))
	}
	text, err := os.ReadFile(editors + "levee.tmLanguage.json")
	if err != nil || !json.Valid(text) {
		t.Errorf("the TextMate grammar is no JSON, %v", err)
	}
}

// replace replaces the one place of a text that a pattern finds.
func replace(t *testing.T, text, pattern, by string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	if n := len(re.FindAllString(text, -1)); n != 1 {
		t.Fatalf("%s: %d places", pattern, n)
	}
	return re.ReplaceAllString(text, by)
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
