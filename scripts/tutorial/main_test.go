package main

import (
	"strings"
	"testing"
)

// TestStepsOfAPage: commands with their here-documents and outputs, by the words of their blocks.
func TestStepsOfAPage(t *testing.T) {
	const page = "# A\n\n```\nsudo not a step\n```\n\n" +
		"```console\n$ cat <<'END'\none\n$ two\nEND\none\n$ two\n```\ntext\n" +
		"```console soon\n$ three\n```\n```console second\n$ four\nfive\n```\n"
	got, err := steps(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []step{
		{"cat <<'END'\none\n$ two\nEND\n", "one\n", ""},
		{"two\n", "", ""},
		{"three\n", "", "soon"},
		{"four\n", "five\n", "second"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d is %q, want %q", i, got[i], want[i])
		}
	}
	for _, bad := range []string{"", "```console\nfirst\n```\n", "```console\n$ a <<'E'\n```\n"} {
		if _, err := steps(bad); err == nil {
			t.Errorf("%q has steps", bad)
		}
	}
}

// TestPatternOfOutput: numbers and blanks may differ, what is left out may be anything.
func TestPatternOfOutput(t *testing.T) {
	for _, c := range []struct {
		want, printed string
		same          bool
	}{
		{"a 12  b\n", "a 3.5 b\n", true},
		{"a 12 b\n", "a x b\n", false},
		{"", "", true},
		{"", "something\n", false},
		{"...\n", "", true},
		{"...\nend\n", "1\n2\nend\n", true},
		{"...\nend\n", "1\n2\n", false},
		{"works ... since ...\n...\n", "works    a, since now\nmore\n", true},
		{"a.b*\n", "aXb*\n", false},
	} {
		if pattern(c.want).MatchString(c.printed) != c.same {
			t.Errorf("%q and %q: want %v", c.want, c.printed, c.same)
		}
	}
}

// TestWalkOfAPage: what a page says is compared, and a command that waits is ended from the second
// terminal.
func TestWalkOfAPage(t *testing.T) {
	t.Chdir(t.TempDir())
	page := "```console waits\n$ mkfifo pipe; cat pipe\ngo 7\n```\n```console second\n" +
		"$ test -p pipe && echo go 5 >pipe\n```\n```console\n$ echo end\nend\n```\n"
	all, err := steps(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := walkAll(all); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{
		"$ echo yes\nno\n",
		"$ echo yes; (exit 3)\nyes\n",
		"$ exit 0\n",
	} {
		all, err := steps("```console\n" + wrong + "```\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := walkAll(all); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
