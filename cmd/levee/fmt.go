package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"levee/internal/host/atomicfile"
	"levee/internal/lang/syntax"
)

const fmtLong = `Print policies in their canonical layout: one statement a line, one blank
between tokens, the terms of a rule in one order. Comments stay where they are, the meaning
never changes, and formatting twice changes nothing. A file with syntax errors is left alone.

With -w a file is replaced in one step (mode and owner stay), and only if it changes.`

const fmtExample = `  levee fmt edge.levee
  levee fmt -w *.levee
  levee fmt --check *.levee     # for CI: exit status 1 and the names of what is not formatted
  levee fmt -d edge.levee`

type fmtFlags struct{ write, diff, check bool }

func newFmt(e *env) *cobra.Command {
	var f fmtFlags
	cmd := &cobra.Command{
		Use:     "fmt FILE...",
		Short:   "Print policies in canonical layout, or rewrite them so",
		Long:    fmtLong,
		Example: fmtExample,
		Args:    wantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.write && f.check {
				return usagef(cmd, "-w and --check exclude each other")
			}
			if f.write && slices.Contains(args, stdinName) {
				return usagef(cmd, "-w needs files, not standard input")
			}
			return e.eachFile(args, func(file string) error { return e.fmtOne(file, f) })
		},
	}
	cmd.Flags().BoolVarP(&f.write, "write", "w", false,
		"write the result to the file instead of printing it")
	cmd.Flags().BoolVarP(&f.diff, "diff", "d", false, "print what would change, as a unified diff")
	cmd.Flags().BoolVar(&f.check, "check", false,
		"print the names of files that are not formatted; exit status 1 if there are any")
	return cmd
}

func (e *env) fmtOne(file string, f fmtFlags) error {
	src, err := e.readSource(file)
	if err != nil {
		return err
	}
	tree, ds := syntax.Parse(src.title(), src.text)
	if ds.HasErrors() {
		e.printDiagnostics(ds)
		return errNo
	}
	text := syntax.Format(tree)
	changed := !bytes.Equal(text, src.text)
	if f.diff && changed {
		e.stdout.Write(diff.Diff(src.title()+".orig", src.text, src.title(), text))
	}
	switch {
	case f.check && changed:
		if !f.diff {
			fmt.Fprintln(e.stdout, src.title())
		}
		return errNo
	case f.write && changed:
		return atomicfile.Write(file, text, 0o644)
	case !f.write && !f.check && !f.diff:
		e.stdout.Write(text)
	}
	return nil
}
