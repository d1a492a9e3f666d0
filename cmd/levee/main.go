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
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/docs"
	"levee/internal/dataplane"
	"levee/internal/usage"
)

func main() {
	e := systemEnv()
	dataplane.OnWait = func(what string) { e.sayf("%s", what) }
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
	{groupPolicy, newPropose},
	{groupPolicy, newFingerprint},
	{groupLab, newCost},
	{groupPolicy, newImport},
	{groupInterface, newInit},
	{groupInterface, newUp},
	{groupInterface, newConfirm},
	{groupInterface, newRollback},
	{groupInterface, newDown},
	{groupInterface, newStatus},
	{groupInterface, newTop},
	{groupInterface, newWatch},
	{groupInterface, newCapture},
	{groupInterface, newShow},
	{groupInterface, newMetrics},
	{groupInterface, newSet},
	{groupInterface, newAgent},
	{groupLab, newLab},
	{groupLab, newGen},
	{groupLab, newBench},
	{groupLab, newDoctor},
	{groupOther, newTrap},
	{groupOther, newCalc},
	{groupOther, newVersion},
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
		Version: versionLine(),
		Args:    cobra.ArbitraryArgs,
		// Errors and usage are printed by run, in one line each.
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          groupRun,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolVar(&e.verbose, "verbose", false,
		"say more: tests that pass, all that the kernel's verifier said")
	root.AddGroup(
		&cobra.Group{ID: groupPolicy, Title: "Policies (no privileges needed):"},
		&cobra.Group{ID: groupInterface, Title: "Interfaces (root):"},
		&cobra.Group{ID: groupLab, Title: "Trying and measuring (root):"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommand(newHelp(e, root))
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	for _, c := range commands {
		cmd := c.make(e)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	root.AddCommand(newManPages(root))
	takeAltnames(root)
	nameArgs(root)
	completeAll(root)
	return root
}

// takeAltnames lets --dev of all commands be an alternative name of an interface.
func takeAltnames(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		takeAltnames(sub)
	}
	dev, netns := cmd.LocalNonPersistentFlags().Lookup("dev"), cmd.Flags().Lookup("netns")
	if dev == nil || dev.Value.Type() != "string" {
		return
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if name := dev.Value.String(); name != "" && (netns == nil || !netns.Changed) {
			return dev.Value.Set(dataplane.TrueName(name))
		}
		return nil
	}
}

// newHelp is `levee help`, of a command or of a page; unlike cobra's own it takes an unknown
// command for the mistake that it is.
func newHelp(e *env, root *cobra.Command) *cobra.Command {
	topics := strings.Join(docs.Topics(), ", ")
	return &cobra.Command{
		Use:   "help [COMMAND... | PAGE]",
		Short: "Explain a command, or show a page of the manual",
		Long: "Explain a command, or show a page of the manual, in Markdown:\n" +
			strings.Join(wrap(topics, 92), "\n") + ".",
		Example: `  levee help set add
  levee help language | less`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string,
			cobra.ShellCompDirective) {
			cmd, rest, err := root.Find(args)
			var all []string
			if err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						all = append(all, sub.Name())
					}
				}
			}
			if len(args) == 0 {
				all = append(all, docs.Topics()...)
			}
			slices.Sort(all)
			return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				if page, ok := docs.Page(args[0]); ok {
					fmt.Fprint(e.stdout, page)
					return nil
				}
			}
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				hint := nearby(cmd, rest[0])
				if cmd == root && hint == "" {
					hint = "; pages are " + topics
				}
				return usagef(cmd, "unknown command %q%s", rest[0], hint)
			}
			return cmd.Help()
		},
	}
}

// noun is a command that has others below it, and does nothing by itself.
func noun(use, short, long, example string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs,
		RunE: groupRun,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// groupRun answers a noun without its verb (`levee`, `levee set`), or with a word that is none.
func groupRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		var verbs []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" {
				verbs = append(verbs, sub.Name())
			}
		}
		return usagef(cmd, "a command is missing, one of %s", strings.Join(verbs, ", "))
	}
	return usagef(cmd, "unknown command %q%s", args[0], nearby(cmd, args[0]))
}

// nearby ends a message about an unknown command with those that are written nearly so.
func nearby(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(word)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// run executes one command line and returns its exit status.
func run(e *env) int {
	root := newRoot(e)
	root.SetArgs(e.args)
	root.InitDefaultCompletionCmd(e.args...)
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		// cobra's own answers a shell that it does not know with its help
		c.Args, c.RunE = cobra.ArbitraryArgs, groupRun
	}
	cmd, err := root.ExecuteC()
	if errors.Is(err, usage.ErrWrong) {
		err = usagef(cmd, "%w", err)
	}
	if werr := e.stdout.err; werr != nil && !errors.Is(werr, errBrokenPipe) &&
		!errors.Is(err, werr) {
		err = errors.Join(err, &exitError{code: exitNo,
			err: errors.New("write standard output: " + werr.Error())})
	}
	return report(e, err)
}
