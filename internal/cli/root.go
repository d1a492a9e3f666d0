package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"levee/docs"
	"levee/internal/dataplane"
	"levee/internal/usage"
)

// Finish gives the root command of a program, which has its commands already, all that roots have
// in common: help, pages for who makes packages, streams, errors of one line, names of values and
// completions.
func Finish(e *Env, root *cobra.Command) {
	root.Version = VersionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Args, root.RunE = cobra.ArbitraryArgs, GroupRun
	// Errors and usage are printed by execute, in one line each.
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolVar(&e.Verbose, "verbose", false,
		"say more: tests that pass, all that the kernel's verifier said")
	root.SetHelpCommand(newHelp(e, root))
	root.AddCommand(newManPages(root))
	takeAltnames(root)
	nameArgs(root)
	completeAll(root)
}

// takeAltnames lets --dev of all commands be an alternative name of an interface.
func takeAltnames(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		takeAltnames(sub)
	}
	dev, netns := cmd.Flags().Lookup("dev"), cmd.Flags().Lookup("netns")
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
func newHelp(e *Env, root *cobra.Command) *cobra.Command {
	topics := strings.Join(docs.Topics(), ", ")
	return &cobra.Command{
		Use:   "help [COMMAND... | PAGE]",
		Short: "Explain a command, or show a page of the manual",
		Long: "Explain a command, or show a page of the manual, in Markdown:\n" +
			strings.Join(Wrap(topics, 92), "\n") + ".",
		Example: `  levee help set add
  levee help language | less`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string,
			cobra.ShellCompDirective) {
			cmd, rest, err := root.Find(args)
			if err == nil && cmd.DisableFlagParsing {
				return cmd.ValidArgsFunction(cmd, rest, word)
			}
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
					fmt.Fprint(e.Stdout, page)
					return nil
				}
			}
			cmd, rest, err := root.Find(args)
			if err == nil && cmd.DisableFlagParsing { // another program has it, and explains it
				return cmd.RunE(cmd, rest)
			}
			if err != nil || len(rest) > 0 {
				hint := nearby(cmd, rest[0])
				if cmd == root && hint == "" {
					hint = "; pages are " + topics
				}
				return Usagef(cmd, "unknown command %q%s", rest[0], hint)
			}
			return cmd.Help()
		},
	}
}

// Noun returns a command that has others below it, and does nothing by itself.
func Noun(use, short, long, example string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs,
		RunE: GroupRun,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// GroupRun answers a noun without its verb (`levee`, `levee set`), or with a word that is none.
func GroupRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return Usagef(cmd, "a command is missing, one of %s", verbs(cmd))
	}
	return Usagef(cmd, "unknown command %q%s", args[0], nearby(cmd, args[0]))
}

// verbs are the commands below one, in words.
func verbs(cmd *cobra.Command) string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, sub.Name())
		}
	}
	return strings.Join(all, ", ")
}

// nearby ends a message about an unknown command with those that are written nearly so, or with all
// below a noun.
func nearby(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(word)
	if len(near) == 0 && cmd.HasParent() && cmd.HasAvailableSubCommands() {
		return ", which is none of " + verbs(cmd)
	}
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// Run runs one command line and returns its exit status.
func Run(e *Env, root *cobra.Command) int {
	root.SetArgs(e.Args)
	root.InitDefaultCompletionCmd(e.Args...)
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		// cobra's own answers a shell that it does not know with its help
		c.Args, c.RunE = cobra.ArbitraryArgs, GroupRun
	}
	cmd, err := root.ExecuteC()
	if errors.Is(err, usage.ErrWrong) {
		err = Usagef(cmd, "%w", err)
	}
	if werr := e.Stdout.Err; werr != nil && !errors.Is(werr, errBrokenPipe) &&
		!errors.Is(err, werr) {
		err = errors.Join(err, &ExitError{Code: ExitNo,
			Err: errors.New("write standard output: " + werr.Error())})
	}
	return Report(e, err)
}
