// Package question has the commands that ask what a policy does: which packets two policies decide
// otherwise, and who gets to what.
//
// In go policies, from files or in force; out come kinds of packets in words. Nothing here puts a
// policy in force.
package question

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/region"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

const diffLong = `Tell which packets two policies decide otherwise: not lines, but packets. Each kind
is shown with what decided before and what decides now, and with the steps of a test that shows a
packet of it, for the second policy.

With one FILE the first policy is the one in force, on --dev or on the one interface of this network
namespace that has one (root); with --service it is that of a service ("levee wrap").

What dynamic sets hold, limits, connections and proofs is not known here: they may be either, and
are the same for both policies where they have the same name or text. What rules count and log is
not compared. Exit status 1 means that some packet is decided otherwise.`

const diffExample = `  levee diff edge.levee stricter.levee
  sudo levee diff edge.levee
  levee diff --json old.levee new.levee`

type diffFlags struct {
	dev  string
	all  bool
	json bool
}

// InForce reads the policy in force on an interface ("": the only one with a policy), and prints
// notes about it.
type InForce func(cmd *cobra.Command, dev string) (*inspect.InForce, error)

// env holds the streams and options of the commands.
type env struct {
	*cli.Env
	inForce InForce
}

// NewDiff returns the command `levee diff`.
func NewDiff(with *cli.Env, inForce InForce) *cobra.Command {
	e := &env{with, inForce}
	var f diffFlags
	cmd := &cobra.Command{
		Use:     "diff [FILE] FILE",
		Short:   "Show which packets two policies decide otherwise",
		Long:    diffLong,
		Example: diffExample,
		Args:    oneOrTwo("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.diff(cmd, args, &f)
		},
	}
	cli.DevFlag(cmd, &f.dev, "compare with the policy in force on this interface")
	cli.ServiceFlag(cmd, &f.dev, store.Service, "compare with the policy of this service")
	cmd.Flags().BoolVar(&f.all, "all", false, "show all kinds, not the first 20")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// oneOrTwo wants an argument of a name, and perhaps another in front.
func oneOrTwo(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < 1:
			return cli.Usagef(cmd, "%s is missing", name)
		case len(args) > 2:
			return cli.Usagef(cmd, "%q is one argument too many", args[2])
		}
		return nil
	}
}

// mostDifferences is the number of kinds of packets that are shown.
const mostDifferences = 20

func (e *env) diff(cmd *cobra.Command, args []string, f *diffFlags) error {
	if len(args) == 2 && f.dev != "" {
		return cli.Usagef(cmd, "two FILEs and --dev or --service exclude each other")
	}
	if len(args) == 2 && args[0] == cli.StdinName && args[1] == cli.StdinName {
		return cli.Usagef(cmd, "standard input can be one of the two policies, and not both")
	}
	after, err := e.policyOf(args[len(args)-1])
	if err != nil {
		return err
	}
	var before *policy.Policy
	if len(args) == 2 {
		before, err = e.policyOf(args[0])
	} else {
		before, err = e.policyInForce(cmd, f.dev)
	}
	if err != nil {
		return err
	}
	ctx, stop := e.Signals()
	defer stop()
	told := region.Compare(ctx, before, after).Tell(before, after)
	if f.json {
		err = e.PrintJSON(told)
	} else {
		most := mostDifferences
		if f.all {
			most = len(told.Differences)
		}
		out := e.Stdout.Screen()
		fmt.Fprintln(out, told.Short())
		told.Print(out, most)
		err = out.Flush()
	}
	if err == nil && (len(told.Differences) > 0 || told.Cut || told.Open > 0) {
		return cli.ErrNo
	}
	return err
}

// policyOf returns the policy in a file, whose mistakes are printed.
func (e *env) policyOf(file string) (*policy.Policy, error) {
	pr, err := e.Parse(file)
	if err != nil {
		return nil, err
	}
	if pr.Policy == nil {
		e.PrintDiagnostics(pr.Diags)
		return nil, cli.ErrNo
	}
	return pr.Policy, nil
}

// policyInForce returns the policy in force on an interface.
func (e *env) policyInForce(cmd *cobra.Command, dev string) (*policy.Policy, error) {
	in, err := e.inForce(cmd, dev)
	if err != nil {
		return nil, err
	}
	p, ds := judges(in)
	if p == nil {
		e.PrintDiagnostics(ds)
		return nil, errors.New("the policy in force cannot be read again by this levee: levee up " +
			"puts it in force anew")
	}
	return p, nil
}

// judges returns the policy by which packets are judged now: all of it, or what "on error" says.
func judges(in *inspect.InForce) (*policy.Policy, diag.Diagnostics) {
	p, ds := in.Parse()
	if p != nil && in.OnError != "" {
		p = p.Fallback(true)
	}
	return p, ds
}
