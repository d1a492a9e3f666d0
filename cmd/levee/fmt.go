package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/host/atomicfile"
	"levee/internal/lang/ast"
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
		Args:    cli.WantSome("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.write && f.check {
				return cli.Usagef(cmd, "-w and --check exclude each other")
			}
			if f.write && slices.Contains(args, cli.StdinName) {
				return cli.Usagef(cmd, "-w needs files, not standard input")
			}
			return e.EachFile(args, func(file string) error { return e.fmtOne(file, f) })
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
	src, err := e.ReadSource(file)
	if err != nil {
		return err
	}
	tree, ds := syntax.Parse(src.Title(), src.Text)
	if ds.HasErrors() {
		e.PrintDiagnostics(ds)
		return cli.ErrNo
	}
	text := ast.Format(tree)
	changed := !bytes.Equal(text, src.Text)
	if f.diff && changed {
		e.Stdout.Write(diff.Diff(src.Title()+".orig", src.Text, src.Title(), text))
	}
	switch {
	case f.check && changed:
		if !f.diff {
			fmt.Fprintln(e.Stdout, src.Title())
		}
		return cli.ErrNo
	case f.write && changed:
		return atomicfile.Write(file, text, 0o644)
	case !f.write && !f.check && !f.diff:
		e.Stdout.Write(text)
	}
	return nil
}
