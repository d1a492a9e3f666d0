package main

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
)

// completePolicies gives the flags and arguments of all commands what is in force (sets and
// labels), and earlier policies.
func completePolicies(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completePolicies(sub)
	}
	for name, words := range map[string]func(*cobra.Command) []string{"past": pastNumbers,
		"rule": labels} {
		if cmd.LocalNonPersistentFlags().Lookup(name) != nil {
			// fails for a flag that has a completion already
			_ = cmd.RegisterFlagCompletionFunc(name, cli.Offered(words))
		}
	}
	if cmd.Name() == "rollback" {
		cmd.ValidArgsFunction = cli.Offered(pastNumbers)
	}
	if p := cmd.Parent(); p != nil && p.Name() == "set" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string,
			cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return dynamicSets(cmd), cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// dynamicSets returns those in force, where this process may read them: on --dev, or on any.
func dynamicSets(cmd *cobra.Command) []string {
	return inPolicies(cmd, func(at *inspect.Attachment) (names []string) {
		for _, s := range at.Sets {
			names = append(names, s.Name)
		}
		return names
	})
}

// labels returns the labels of the rules in force, in the same way.
func labels(cmd *cobra.Command) []string {
	return inPolicies(cmd, func(at *inspect.Attachment) (names []string) {
		for _, c := range at.Counters {
			if c.Label != "" {
				names = append(names, c.Label)
			}
		}
		return names
	})
}

// pastNumbers returns those of the policies that were in force on --dev, or on any interface that
// has one, where this process may read them.
func pastNumbers(cmd *cobra.Command) (numbers []string) {
	dev, _ := cmd.Flags().GetString("dev")
	if running, _, err := inspect.Status(context.Background(), false); dev == "" && err == nil &&
		len(running) > 0 {
		dev = running[0].Dev
	}
	all, _, err := dataplane.Past(context.Background(), dev)
	if err != nil || dev == "" {
		return nil
	}
	for _, p := range all {
		numbers = append(numbers, strconv.Itoa(p.Number))
	}
	return numbers
}

// inPolicies collects names from the policies in force on --dev, or on any interface.
func inPolicies(cmd *cobra.Command, of func(*inspect.Attachment) []string) (names []string) {
	all, _, err := inspect.Status(context.Background(), false)
	if err != nil {
		return nil
	}
	dev, _ := cmd.Flags().GetString("dev")
	for i := range all {
		if dev == "" || dev == all[i].Dev {
			names = append(names, of(&all[i])...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
