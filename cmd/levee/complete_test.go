package main

import (
	"strings"
	"testing"
)

// TestShellsAreOfferedWhatThereIs on this machine, and what any machine has.
func TestShellsAreOfferedWhatThereIs(t *testing.T) {
	for line, want := range map[string]string{
		"up edge.levee --dev ":  "lo\n",
		"up edge.levee --mode ": "clsact\n",
		"gen --kind ":           "fragment\n",
		"test --engine ":        "oracle\n",
		"check --link ":         "l3\n",
		"help ":                 "explain\n",
		"help t":                "troubleshooting\n",
		"help set ":             "replace\n",
	} {
		e, out, _, _ := testEnv(false)
		e.args = append([]string{"__complete"}, strings.Split(line, " ")...)
		if status := run(e); status != exitDone || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q, want %q among them", line, status, out, want)
		}
	}
}

// TestPagesAreMadeOfHelp for each command, and nothing in them is a request to the formatter.
func TestPagesAreMadeOfHelp(t *testing.T) {
	e, _, _, _ := testEnv(false)
	pages := map[string]string{}
	err := eachPage(newRoot(e), func(name, text string) error {
		pages[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range leaves(newRoot(e)) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".8"
		if !strings.Contains(pages[name], ".SH SYNOPSIS\n") && cmd.Name() != "help" {
			t.Errorf("no page %s", name)
		}
	}
	if got := roff(".x -y `z` \\ 'q'"); got != `\&.x \-y \(gaz\(ga \e \(aqq\(aq` {
		t.Errorf("%s", got)
	}
}
