package main

import (
	"context"
	"os"
	"slices"

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

// completeAll gives the flags and arguments of all commands what a shell may offer: interfaces and
// sets as this machine has them now.
func completeAll(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeAll(sub)
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		var offer cobra.CompletionFunc
		switch {
		case f.Name == "dev":
			offer = offered(devices)
		case completeWords[f.Name] != nil:
			offer = offered(func(*cobra.Command) []string { return completeWords[f.Name] })
		default:
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // fails for one that has some already
	})
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
	all, _, err := dataplane.Status(context.Background(), false)
	if err != nil {
		return nil
	}
	dev, _ := cmd.Flags().GetString("dev")
	var names []string
	for i := range all {
		for _, s := range all[i].Sets {
			if dev == "" || dev == all[i].Dev {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
