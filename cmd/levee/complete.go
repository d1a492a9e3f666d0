package main

import (
	"context"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"levee/internal/dataplane"
	"levee/internal/lab/gen"
)

// completeWords are the values that flags have on any machine, by what help calls them or, where
// they differ, by the flag.
var completeWords = map[string][]string{
	"mode": {string(dataplane.Auto), string(dataplane.XDPNative), string(dataplane.TCX),
		string(dataplane.Clsact), string(dataplane.XDPGeneric)},
	"engine":  {"oracle", "bpf", "both"},
	"link":    {"ethernet", "l3"},
	"verdict": {"pass", "drop"},
	"reason":  {"malformed", "protect", "rule", "essential", "default"},
	"role":    {"viewer", "operator", "admin"},
	"kind": {gen.UDP.String(), gen.SYN.String(), gen.ACK.String(), gen.ICMPEcho.String(),
		gen.Fragment.String()},
}

// completeAll gives the flags and arguments of all commands what a shell may offer: interfaces, and
// sets and labels that are in force.
func completeAll(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeAll(sub)
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		var offer cobra.CompletionFunc
		switch {
		case f.Name == "dev":
			offer = offered(devices)
		case f.Name == "past":
			offer = offered(pastNumbers)
		case f.Name == "rule":
			offer = offered(labels)
		case completeWords[f.Name] != nil:
			offer = offered(func(*cobra.Command) []string { return completeWords[f.Name] })
		default:
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // fails for one that has some already
	})
	if cmd.Name() == "rollback" {
		cmd.ValidArgsFunction = offered(pastNumbers)
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

// offered makes a completion of words.
func offered(words func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return words(cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// devices are the interfaces of this network namespace.
func devices(*cobra.Command) []string {
	entries, _ := os.ReadDir("/sys/class/net")
	var names []string
	for _, e := range entries {
		if e.Name() != "bonding_masters" {
			names = append(names, e.Name())
		}
	}
	return names
}

// dynamicSets are those in force, where this process may read them: on --dev, or on any.
func dynamicSets(cmd *cobra.Command) []string {
	return inPolicies(cmd, func(at *dataplane.Attachment) (names []string) {
		for _, s := range at.Sets {
			names = append(names, s.Name)
		}
		return names
	})
}

// labels are those of the rules in force, in the same way.
func labels(cmd *cobra.Command) []string {
	return inPolicies(cmd, func(at *dataplane.Attachment) (names []string) {
		for _, c := range at.Counters {
			if c.Label != "" {
				names = append(names, c.Label)
			}
		}
		return names
	})
}

// pastNumbers are those of the policies that were in force on --dev, or on any interface that has
// one, where this process may read them.
func pastNumbers(cmd *cobra.Command) (numbers []string) {
	dev, _ := cmd.Flags().GetString("dev")
	if running, _, err := dataplane.Status(context.Background(), false); dev == "" && err == nil &&
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
func inPolicies(cmd *cobra.Command, of func(*dataplane.Attachment) []string) (names []string) {
	all, _, err := dataplane.Status(context.Background(), false)
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
