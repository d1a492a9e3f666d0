package docs

import (
	"os"
	"strings"
	"testing"
)

// TestEachTopicIsAPageOfItsOwn: what Topics lists can be shown, and no two names show one page.
func TestEachTopicIsAPageOfItsOwn(t *testing.T) {
	by := map[string]string{}
	for _, topic := range Topics() {
		text, ok := Page(topic)
		if !ok || text == "" {
			t.Errorf("%s has no page", topic)
		}
		if other, twice := by[text]; twice {
			t.Errorf("%s and %s are one page", topic, other)
		}
		by[text] = topic
	}
	for _, topic := range []string{"", "README", "../docs", "guides", "no-such-page"} {
		if _, ok := Page(topic); ok {
			t.Errorf("%q is a page", topic)
		}
	}
	short, _ := Page("language")
	if long, ok := Page("reference/language"); !ok || long != short {
		t.Error("reference/language is not the page language")
	}
}

// TestTheLanguageHasAPageForEachSubject: each page of the reference is there, and the first one
// names all others.
func TestTheLanguageHasAPageForEachSubject(t *testing.T) {
	first, _ := Page("language")
	for _, name := range languagePages {
		page, ok := Page(name)
		if !ok || !strings.Contains(Language(), page) {
			t.Errorf("there is no page %s, or Language lacks it", name)
		}
		if name != "language" && !strings.Contains(first, "| ["+name+"]("+name+".md) |") {
			t.Errorf("the page language has no row for %s", name)
		}
	}
}

// TestTheFirstPolicyOfREADMELetsAnswersIn: without it DNS and apt stand still.
func TestTheFirstPolicyOfREADMELetsAnswersIn(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, policy, _ := strings.Cut(string(text), "Save this as `edge.levee`:\n\n```\n")
	policy, _, _ = strings.Cut(policy, "```")
	for _, want := range []string{"\npass established\n", "\ndefault drop\n"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %q in the first policy, %q", want, policy)
		}
	}
}

// TestPagesNameThePlaceOfTheProgram: units and hooks of pages are copied, and Debian has the
// program in /usr/sbin alone.
func TestPagesNameThePlaceOfTheProgram(t *testing.T) {
	for _, topic := range Topics() {
		text, _ := Page(topic)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "/bin/levee ") && !strings.Contains(line, "install") {
				t.Errorf("%s: %s", topic, line)
			}
		}
	}
}
