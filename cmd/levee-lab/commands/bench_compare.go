package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	document "levee/internal/report"
)

const benchCompareLong = `Say which differences between reports of the same measurement are
real. A and B are what ` + "`levee bench COMMAND --json`" + ` printed; A is the one from before. Of more
reports than two, each is compared with the first. With --html, --svg, --png or --csv all are laid
beside each other: in each chart the lines, bars and boxes of every run, called as the run was by
--title, or as its file.

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
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare A.json B.json...",
		Short: "Say which differences between reports are real, and lay them beside each other",
		Long:  benchCompareLong,
		Example: "  sudo levee bench ladder --json > before.json\n  sudo levee bench ladder " +
			"--json > after.json\n  levee bench compare before.json after.json\n" +
			"  levee bench compare fifo.json fq.json cake.json --html beside.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.WantArgs("A.json", "B.json")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.benchCompare(cmd, args, &f)
		},
	}
	cmd.Flags().StringVar(&f.least, "least", "5%",
		"the smallest percentage by which a median must change to matter, 5 or 5%")
	cmd.Flags().StringSliceVar(&f.titles, "titles", nil,
		"what the reports are called, in their order (default: as --title had it, else the file)")
	cli.JsonFlag(cmd, &f.out.json)
	f.out.registerFiles(cmd)
	return cmd
}

type compareFlags struct {
	least  string
	titles []string
	out    benchOutput
}

// maxCompared bounds the reports of one comparison: a page of more says nothing.
const maxCompared = 100

func (e *env) benchCompare(cmd *cobra.Command, args []string, f *compareFlags) error {
	share, err := parseLeast(f.least)
	switch {
	case err != nil:
		return cli.Usagef(cmd, "--least %v", err)
	case len(args) > maxCompared:
		return cli.Usagef(cmd, "%d reports: %d are the most", len(args), maxCompared)
	case len(f.titles) > 0 && len(f.titles) != len(args):
		return cli.Usagef(cmd, "--titles: %d for %d reports", len(f.titles), len(args))
	}
	stdin := 0
	for _, name := range args {
		if name == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return cli.Usagef(cmd, "only one report can be standard input")
	}
	if err := f.out.check(cmd); err != nil {
		return err
	}
	docs, errs := make([]*document.Document, len(args)), make([]error, len(args))
	for i, name := range args {
		docs[i], errs[i] = e.readReport(name)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	titles := titlesOf(docs, args, f.titles)
	var all document.Comparisons
	for i, d := range docs[1:] {
		c, err := document.Compare(docs[0], d, document.Options{Least: share})
		if err != nil {
			return err
		}
		all.Add(titles[i+1], c)
	}
	if f.out.files() {
		d, err := document.Beside(docs, titles)
		if err != nil {
			return err
		}
		d.Command = e.command()
		if err := f.out.write(d); err != nil {
			return err
		}
	}
	if f.out.json {
		err = e.PrintJSON(all.JSON())
	} else {
		_, err = io.WriteString(e.Stdout, all.Text())
	}
	if err == nil && all.Worse() {
		return cli.ErrNo
	}
	if e.Stdout.Err != nil {
		return nil // said once, by run
	}
	return err
}

// titlesOf calls each report by its own name: as is said, else as the run was called, else as its
// file. Of equal ones the later have a number.
func titlesOf(docs []*document.Document, files, said []string) []string {
	var titles []string
	for i, d := range docs {
		title := cmp.Or(d.Run, strings.TrimSuffix(filepath.Base(files[i]), ".json"))
		if len(said) > 0 {
			title = said[i]
		}
		unique := title
		for n := 2; slices.Contains(titles, unique); n++ {
			unique = fmt.Sprintf("%s (%d)", title, n)
		}
		titles = append(titles, unique)
	}
	return titles
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
