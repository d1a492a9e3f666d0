package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"levee/internal/dataplane/store"
)

// completeWords are the values that flags have on any machine, by what help calls them or, where
// they differ, by the flag.
var completeWords = map[string][]string{
	"mode": {string(store.Auto), string(store.XDPNative), string(store.TCX),
		string(store.Clsact), string(store.XDPGeneric)},
	"engine":  {"oracle", "bpf", "both"},
	"link":    {"ethernet", "l3"},
	"verdict": {"pass", "drop", "redirect"},
	"reason":  {"malformed", "protect", "rule", "essential", "default"},
	"role":    {"viewer", "operator", "admin"},
}

// completeAll gives the flags of all commands what a shell may offer on any machine, and its
// interfaces.
func completeAll(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeAll(sub)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var offer cobra.CompletionFunc
		switch {
		case f.Name == "dev":
			offer = Offered(devices)
		case completeWords[f.Name] != nil:
			offer = Offered(func(*cobra.Command) []string { return completeWords[f.Name] })
		default:
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // fails for one that has some already
	})
}

// Offered makes a completion of words.
func Offered(words func(*cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return words(cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// devices returns the interfaces of this network namespace.
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
