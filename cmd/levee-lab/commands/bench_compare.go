package commands

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	document "levee/internal/report"
)

const benchCompareLong = `Say which differences between two reports of the same measurement are
real. A and B are what ` + "`levee bench COMMAND --json`" + ` printed; A is the one from before.

Each figure that both have is tested by the ranks of its rounds, which assumes nothing of their
distribution; the many tests are corrected so that of the differences called real at most 5 % are
expected to be chance (false discovery rate). Real is what passes and moved by --least or more. Of a
figure without rounds the 95 % intervals must not overlap. What is a lower bound on one side is
judged only where the other side lies below it.

Of two ladders it also says whether they agree in order (no pair of places that both tell apart is
the other way round), and which ratios to the empty XDP program moved by more than 10 %.

Rounds tell how a run varied within its minutes; whether two runs on one machine differ as much by
themselves, only a second run of A tells. Other machines, kernels, policies or versions are warned
of. Exit status 1 means that something got worse.`

func newBenchCompare(e *env) *cobra.Command {
	var least string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Say which differences between two reports are real",
		Long:  benchCompareLong,
		Example: "  sudo levee bench ladder --json > before.json\n  sudo levee bench ladder " +
			"--json > after.json\n  levee bench compare before.json after.json",
		Args: cli.WantArgs("A.json", "B.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			share, err := parseLeast(least)
			if err != nil {
				return cli.Usagef(cmd, "--least %v", err)
			}
			if args[0] == "-" && args[1] == "-" {
				return cli.Usagef(cmd, "only one of the two can be standard input")
			}
			var docs [2]*document.Document
			var errs [2]error
			for i, name := range args {
				docs[i], errs[i] = e.readReport(name)
			}
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			c, err := document.Compare(docs[0], docs[1], document.Options{Least: share})
			if err != nil {
				return err
			}
			if asJSON {
				err = e.PrintJSON(c)
			} else {
				_, err = io.WriteString(e.Stdout, c.Text())
			}
			if err == nil && c.Count[document.Worse] > 0 {
				return cli.ErrNo
			}
			if e.Stdout.Err != nil {
				return nil // said once, by run
			}
			return err
		},
	}
	cmd.Flags().StringVar(&least, "least", "5%",
		"the smallest percentage by which a median must change to matter, 5 or 5%")
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

// maxLeast is the largest --least: more than any change that is worth a comparison.
const maxLeast = 10_000

// parseLeast reads --least into a share. A bare number below one is refused: it may be meant as a
// share.
func parseLeast(s string) (float64, error) {
	v, err := cli.ParsePercent(s)
	switch {
	case err != nil:
		return 0, err
	case v > 0 && v < 1 && !strings.HasSuffix(s, "%"):
		return 0, fmt.Errorf("%s: is that %s%% or %g%%? Write it with the sign", s, s, v*100)
	case v <= 0 || v > maxLeast:
		return 0, fmt.Errorf("%s: a percentage above 0, to %d%%", s, maxLeast)
	}
	return v / 100, nil
}

// readReport reads a report from a file, or from standard input for "-".
func (e *env) readReport(name string) (*document.Document, error) {
	if name == "-" {
		return document.Read(e.Stdin, "standard input")
	}
	f, err := e.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return document.Read(f, name)
}
