package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	lab "levee/cmd/levee-lab/commands"
	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// TestShellsAreOfferedWhatThereIs on this machine, and what any machine has.
func TestShellsAreOfferedWhatThereIs(t *testing.T) {
	for line, want := range map[string]string{
		"up edge.levee --dev ":  "lo\n",
		"up edge.levee --mode ": "clsact\n",
		"test --engine ":        "oracle\n",
		"check --link ":         "l3\n",
		"help ":                 "explain\n",
		"help t":                "troubleshooting\n",
		"help set ":             "replace\n",
	} {
		e, out, _, _ := testEnv(false)
		e.Args = append([]string{"__complete"}, strings.Split(line, " ")...)
		if status := run(e); status != cli.ExitDone || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q, want %q among them", line, status, out, want)
		}
	}
}

// TestPagesAreMadeOfHelp for each command, by the program that has it.
func TestPagesAreMadeOfHelp(t *testing.T) {
	dir := t.TempDir()
	e, _, errs, _ := testEnv(false, "man-pages", dir)
	if got := run(e); got != cli.ExitDone {
		t.Fatalf("levee: exit status %d, %s", got, errs)
	}
	if got := cli.Run(e.Env, lab.Root(e.Env)); got != cli.ExitDone {
		t.Fatalf("levee-lab: exit status %d, %s", got, errs)
	}
	for _, cmd := range clitest.Leaves(wholeTree(e)) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".8"
		text, err := os.ReadFile(filepath.Join(dir, name))
		if cmd.Name() != "help" && !strings.Contains(string(text), ".SH SYNOPSIS\n") {
			t.Errorf("no page %s: %v", name, err)
		}
	}
}
