// Package commands has the commands of levee-lab: arguments go in, measurements, labs and packets
// come out, by the packages of internal/bench and internal/lab. It must never put a policy on an
// interface that is not of a lab. It is a package so that tests of levee run it as a process.
package commands

import (
	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/store"
)

// env is the environment of these commands.
type env struct{ *cli.Env }

// Main runs the command line of this process and returns its exit status.
func Main() int {
	e := cli.System()
	store.OnWait = func(what string) { e.Sayf("%s", what) }
	return cli.Run(e, Root(e))
}

const rootLong = `levee-lab has the commands of levee that try and measure it. levee starts it for them: type
levee bench, levee lab, levee gen, levee probe or levee calc.`

// Root returns the tree of these commands. It is called levee, as whoever types them calls it.
func Root(base *cli.Env) *cobra.Command {
	e := &env{base}
	root := &cobra.Command{
		Use:     "levee",
		Short:   "The commands of levee that try and measure it",
		Long:    rootLong,
		Example: "  sudo levee bench ladder",
	}
	// levee completes for both.
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newLab(e), newGen(e), newBench(e), newCalc(e), newProbe(e), newPeer(e))
	cli.Finish(e.Env, root)
	return root
}
