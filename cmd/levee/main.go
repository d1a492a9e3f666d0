// Command levee compiles a packet policy to eBPF, runs it on an interface and shows what it does.
//
// The command line is a table of commands over an injected environment: arguments, streams, clock
// and signals come from outside, so that a test runs the same code as a shell. In go policy files
// and packets, out come text or JSON on standard output, diagnostics on standard error and one of
// four exit statuses (exit.go). It holds no packet or policy logic of its own: every command is a
// thin layer over the packages of internal/. It must never leave an interface between two policies:
// what a command cannot finish, it undoes and says so.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"levee/internal/agent/command"
	trap "levee/internal/agent/trap/command"
	"levee/internal/cli"
	"levee/internal/dataplane/store"
	"levee/internal/host/secret"
	knock "levee/internal/knock/command"
	importer "levee/internal/lang/importer/command"
	monitor "levee/internal/monitor/command"
	"levee/internal/probe/witness"
	"levee/internal/profile"
	"levee/internal/question"
	"levee/internal/rings"
	"levee/internal/wrap"
)

func main() {
	secret.StaysHere() // keys, tokens and addresses of clients
	e := systemEnv()
	store.OnWait = func(what string) { e.Sayf("%s", what) }
	os.Exit(run(e))
}

// commands is the table: one constructor a command, in the order in which `levee help` shows them
// within their group.
var commands = []struct {
	group string
	make  func(*env) *cobra.Command
}{
	{groupPolicy, newCheck},
	{groupPolicy, newFmt},
	{groupPolicy, newLSP},
	{groupPolicy, newEval},
	{groupPolicy, newExplain},
	{groupPolicy, newTest},
	{groupPolicy, func(e *env) *cobra.Command { return question.NewDiff(e.Env, e.shown) }},
	{groupPolicy, func(e *env) *cobra.Command { return question.NewQuery(e.Env, e.shown) }},
	{groupPolicy, func(e *env) *cobra.Command { return profile.New(e.Env, e.automatic) }},
	{groupPolicy, newPropose},
	{groupPolicy, newFingerprint},
	{groupLab, newCost},
	{groupPolicy, func(e *env) *cobra.Command { return importer.New(e.Env, e.gate) }},
	{groupInterface, newInit},
	{groupInterface, newUp},
	{groupInterface, newConfirm},
	{groupInterface, newRollback},
	{groupInterface, newDown},
	{groupInterface, newStatus},
	{groupInterface, newTop},
	{groupInterface, newWatch},
	{groupInterface, newCapture},
	{groupInterface, func(e *env) *cobra.Command { return witness.New(e.Env, e.inForce) }},
	{groupInterface, func(e *env) *cobra.Command { return rings.New(e.Env, e.inForce) }},
	{groupInterface, newShow},
	{groupInterface, newMetrics},
	{groupInterface, newSet},
	{groupInterface, func(e *env) *cobra.Command { return wrap.New(e.Env) }},
	{groupInterface, func(e *env) *cobra.Command { return monitor.New(e.Env) }},
	{groupOther, func(e *env) *cobra.Command { return knock.New(e.Env) }},
	{groupInterface, func(e *env) *cobra.Command { return command.New(e.Env, e.gate) }},
	{groupLab, newDoctor},
	{groupOther, func(e *env) *cobra.Command { return trap.New(e.Env) }},
	{groupOther, func(e *env) *cobra.Command { return cli.NewVersion(e.Env) }},
}

// Groups of `levee help`.
const (
	groupPolicy    = "policy"
	groupInterface = "interface"
	groupLab       = "lab"
	groupOther     = "other"
)

const rootLong = `levee compiles a policy, one readable text file that says what traffic a
machine takes, into an eBPF program made for exactly that policy, and runs it where a packet
costs least: XDP, in the driver.

Exit status
  0  done
  1  the answer is no: the policy has errors, a test failed, the packets disagree
  2  wrong usage
  3  the machine refused: permission, missing kernel feature; one line says what to do

A FILE of "-" is standard input. Colours and progress appear on a terminal only.`

const rootExample = `  levee check edge.levee
  levee test edge.levee
  sudo levee up edge.levee --dev eth0 --confirm 60s
  sudo levee status --dev eth0`

// newRoot builds the command tree for one run.
func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:     "levee",
		Short:   "Packet defence for Linux: a policy file becomes an eBPF program",
		Long:    rootLong,
		Example: rootExample,
	}
	root.AddGroup(
		&cobra.Group{ID: groupPolicy, Title: "Policies (no privileges needed):"},
		&cobra.Group{ID: groupInterface, Title: "Interfaces (root):"},
		&cobra.Group{ID: groupLab, Title: "Trying and measuring (root):"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	for _, c := range commands {
		cmd := c.make(e)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	for _, c := range labCommands {
		cmd := newLabCommand(e, c.use, c.short)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	cli.Finish(e.Env, root)
	completePolicies(root)
	return root
}

// run executes one command line and returns its exit status.
func run(e *env) int { return cli.Run(e.Env, newRoot(e)) }
