// Package command has the commands `levee import`: policies made from the rules of other tools.
//
// In go files of rules; out come a policy, and what of the rules it does not carry over. It must
// never print a policy with --strict that passes what the rules drop, or put one in force.
package command

import (
	"bufio"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/lockout"
	"levee/internal/lang/diag"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/classbench"
	"levee/internal/lang/importer/tool"
)

const long = `Print a policy made from the rules of another tool. What cannot be carried
over is said on standard error, and beside the rules. Formats: classbench, iptables, nft, pf.`

const example = `  levee import iptables rules.v4 rules.v6 > edge.levee
  levee import classbench acl1_1k > acl1.levee`

// env is the environment of these commands: that of every program here, and the gate that knows
// whom a policy would lock out.
type env struct {
	*cli.Env
	gate func() *lockout.Gate
}

// New is the command `levee import`.
func New(base *cli.Env, gate func() *lockout.Gate) *cobra.Command {
	e := &env{base, gate}
	cmd := cli.Noun("import FORMAT FILE", "Turn rules of another tool into a policy", long,
		example,
		newClassBench(e), newIPTables(e), newNFT(e), newPF(e))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if give := tool.Instead(args[0]); give != "" {
				return cli.Usagef(cmd, "there is no format %q: %s", args[0], give)
			}
		}
		return cli.GroupRun(cmd, args)
	}
	return cmd
}

const classBenchLong = `Print a policy made from a ClassBench filter set: the order of the rules
stays, they are labelled r0, r1, ..., and the policy's default is pass. The flags column is
ignored, as all users of these sets do. ClassBench sets have no actions; --action chooses them.`

func newClassBench(e *env) *cobra.Command {
	var action string
	cmd := &cobra.Command{
		Use:     "classbench FILE",
		Short:   "Turn a ClassBench filter set into a policy",
		Long:    classBenchLong,
		Example: "  levee import classbench acl1_1k --action alternate > acl1.levee",
		Args:    cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := importer.ParseAction(action)
			if err != nil {
				return cli.Usagef(cmd, "--action: %v", err)
			}
			return e.importClassBench(args[0], a)
		},
	}
	cmd.Flags().StringVar(&action, "action", "drop", "what the rules do: drop, pass or alternate")
	return cmd
}

func (e *env) importClassBench(path string, action importer.Action) error {
	f, err := e.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	name := cli.StdinTitle
	if path != cli.StdinName {
		name = diag.Quoted(filepath.Base(path))
	}
	out := e.Stdout.Buffered()
	rep, err := classbench.Import(bufio.NewReader(f), out,
		importer.Options{Action: action, Name: name})
	var bad *importer.Errors
	if errors.As(err, &bad) {
		for line := range strings.Lines(bad.Error()) {
			fmt.Fprint(e.Stderr, line)
		}
		fmt.Fprintln(e.Stderr)
		return cli.ErrNo
	}
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	out.Flush()
	for _, n := range rep.Notes {
		if n.Line > 0 {
			fmt.Fprintf(e.Stderr, "%s:%d: %s\n", name, n.Line, n.Text)
		} else {
			fmt.Fprintf(e.Stderr, "%s: %s\n", name, n.Text)
		}
	}
	return nil
}
