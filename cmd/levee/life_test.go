package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the parts of pages whose every sentence is lived: a page, and the headings of its
// parts, or none for all of it.
var documented = []struct {
	page  string
	parts []string
}{
	{"guides/install.md", nil},
	{"guides/agent.md", []string{"## As a service"}},
}

// TestEverySentenceOfInstallingIsLived: scripts/life/sentences names what holds each: steps of make
// life-test, targets of make, stories, tests. One without, or a line about none, is an error.
func TestEverySentenceOfInstallingIsLived(t *testing.T) {
	text, err := os.ReadFile("../../scripts/life/sentences")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{} // by sentence: what holds it
	var order []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "", strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "\t") && len(order) > 0:
			held[order[len(order)-1]] = strings.TrimSpace(line)
		default:
			if _, twice := held[line]; twice {
				t.Errorf("twice: %s", line)
			}
			held[line] = ""
			order = append(order, line)
		}
	}
	var said []string
	for _, d := range documented {
		page, err := os.ReadFile("../../docs/" + d.page)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, sentences(string(page), d.parts)...)
	}
	for _, s := range said {
		if held[s] == "" {
			t.Errorf("nothing holds this:\n%s", s)
		}
	}
	for _, s := range order {
		if !slices.Contains(said, s) {
			t.Errorf("no page says this:\n%s", s)
		}
	}
	there := things(t)
	for s, by := range held {
		for _, one := range strings.Split(by, ", ") {
			if !there[one] {
				t.Errorf("%q, which is to hold this, is not there:\n%s", one, s)
			}
		}
	}
}

// things returns the names that may hold a sentence: steps, targets, tests, stories, and `nothing
// to hold`, which is for sentences that only introduce a subject or point to other pages.
func things(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{"nothing to hold": true}
	steps := ""
	for _, file := range []string{"steps", "agent"} {
		text, err := os.ReadFile("../../scripts/life/" + file)
		if err != nil {
			t.Fatal(err)
		}
		steps += string(text)
	}
	orders, err := os.ReadFile("../../scripts/life/orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^step_(\w+)\(\)`).FindAllStringSubmatch(steps, -1) {
		if regexp.MustCompile(`[: ]` + m[1] + `( |$|\n)`).Match(orders) {
			all["step "+m[1]] = true
		} else {
			t.Errorf("no order has the step %s", m[1])
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile),
		-1) {
		all["make "+m[1]] = true
	}
	stories, err := filepath.Glob("../../test/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stories {
		all["story "+strings.TrimSuffix(filepath.Base(s), ".txtar")] = true
	}
	out, err := exec.Command("grep", "-rhoE", "--include=*_test.go", `^func Test\w+`,
		"../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		all[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	return all
}

// sentences are those of a page of Markdown, or of some of its parts: of paragraphs and lists, the
// rows of tables, the lines of examples.
func sentences(page string, parts []string) (out []string) {
	inside, code := len(parts) == 0, false
	var paragraph []string
	flush := func() {
		text := strings.Join(paragraph, " ")
		paragraph = nil
		for text != "" {
			end := regexp.MustCompile("[.:] (`|[A-Z0-9*])").FindStringIndex(text)
			one := text
			if text = ""; end != nil {
				one, text = one[:end[0]+1], one[end[0]+2:]
			}
			out = append(out, plain(one))
		}
	}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case !code && strings.HasPrefix(line, "#"):
			flush()
			if len(parts) > 0 {
				inside = slices.Contains(parts, line)
			}
		case !inside:
		case code || strings.HasPrefix(line, "|"):
			flush()
			if strings.Trim(line, "|- ") != "" {
				out = append(out, plain(line))
			}
		case strings.TrimSpace(line) == "":
			flush()
		default:
			if strings.HasPrefix(line, "- ") {
				flush()
			}
			paragraph = append(paragraph, strings.TrimSpace(strings.TrimPrefix(line, "- ")))
		}
	}
	flush()
	return out
}

// plain is text without what leads to other pages.
func plain(text string) string {
	text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(text), " ")
}

func TestSentences(t *testing.T) {
	const page = "# A\n\nOne `x.y`\nis [two](b.md). Three: `four`, five.\n\n```\nrun it   # why\n" +
		"```\n\n| a | b |\n|---|---|\n| c | d |\n\n- six\n  seven.\n- eight\n## B\n\nnine\n"
	want := []string{"One `x.y` is two.", "Three:", "`four`, five.", "run it # why", "| a | b |",
		"| c | d |", "six seven.", "eight", "nine"}
	if got := sentences(page, nil); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if got := fmt.Sprint(sentences(page, []string{"## B"})); got != "[nine]" {
		t.Error(got)
	}
}
