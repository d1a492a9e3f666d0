package question

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// TestOneInputWasTwoPolicies: the second was what the first had left of it, nothing.
func TestOneInputWasTwoPolicies(t *testing.T) {
	e, _, _, _ := clitest.New(false)
	cmd := NewDiff(e, nil)
	cmd.SetArgs([]string{"-", "-"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.Execute(); cli.StatusOf(err) != cli.ExitUsage ||
		!strings.Contains(err.Error(), "one of the two policies") {
		t.Errorf("%v", err)
	}
}

// TestAnswersBrokeAnywhere: a terminal of 60 columns broke lines within words. The steps of a test
// are to be copied, and stay whole.
func TestAnswersBrokeAnywhere(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{
		"a.levee": "drop tcp from 192.0.2.0/24 from port 4000-5000 port { 22, 80, 443, 8080 } " +
			"as \"some that are many\"\ndefault drop\n",
		"b.levee": "pass tcp from 192.0.2.0/24 from port 4000-5000 port { 22, 80, 443, 8080 } " +
			"as \"some that are many\"\ndefault drop\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	const columns = 60
	for what, of := range map[string]func(*cli.Env, InForce) *cobra.Command{
		"diff": NewDiff, "query": NewQuery} {
		for _, terminal := range []bool{true, false} {
			e, out, errs, _ := clitest.New(terminal)
			e.Stdout.Size = func() (int, int) { return columns, 24 }
			e.Signals = func() (context.Context, context.CancelFunc) {
				return context.WithCancel(t.Context())
			}
			cmd := of(e, nil)
			cmd.SetArgs(files)
			if what == "query" {
				cmd.SetArgs([]string{files[0], "tcp port { 22, 80 }"})
			}
			if err := cmd.Execute(); err != nil && !errors.Is(err, cli.ErrNo) {
				t.Fatalf("%s: %v %s", what, err, errs)
			}
			long := 0
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				one := len(strings.Fields(line)) == 1
				if utf8.RuneCountInString(line) > columns && !one &&
					!strings.HasPrefix(line, "   test     packet ") {
					long++
				}
			}
			if (long > 0) == terminal {
				t.Errorf("%s, a terminal: %v, %d lines are too long:\n%s", what, terminal, long,
					out)
			}
		}
	}
}
