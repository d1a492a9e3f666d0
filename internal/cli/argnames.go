package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ArgNames holds the names of flags' values in help, by the flag. A number is called so without
// being listed, and a flag whose usage has a word in `backquotes` by that word.
var ArgNames = map[string]string{
	"act": "time", "action": "action", "after": "time", "against": "published",
	"bandwidth": "rate", "before": "time", "capture": "file", "chain": "chain",
	"collateral": "percent",
	"command":    "file", "countries": "file",
	"confirm": "time", "csv": "file", "data": "file", "defence": "name",
	"dev": "interface", "duration": "time", "during": "time",
	"engine":  "engine",
	"entries": "kind", "entry": "set=entry", "expires": "time", "family": "4|6", "flags": "flags",
	"flame": "file", "flood": "kind", "for": "time", "from": "file", "from-mac": "mac",
	"from-port": "port", "gone": "time", "good": "file", "host": "name", "host-key": "file",
	"html":     "file",
	"interval": "time", "kind": "kind", "lease": "time", "least": "percent",
	"limit": "limit", "link": "layer", "listen": "address", "load": "rate", "log": "file",
	"mail": "address", "matrix": "url", "matrix-token-file": "file",
	"mode": "mode", "netns": "name", "on": "kind", "only": "name",
	"origin": "source", "packet": "packet",
	"path": "path", "patience": "time", "peer-dev": "interface",
	"pcap": "file", "picture": "file", "png": "directory",
	"policy": "file", "port": "port", "queue": "name", "rate": "rate", "rates": "rate",
	"reason": "reason",
	"role":   "role", "rule": "label", "rung": "name", "sample": "time",
	"sender": "address", "service": "name", "set": "name", "smtp": "address",
	"shape": "shape", "share": "percent", "slack": "url",
	"stream": "kind", "svg": "directory", "table": "kind", "target": "prefix",
	"template": "file", "tests": "file", "tls-cert": "file", "tls-key": "file",
	"timeout": "time", "title": "words", "titles": "name", "to": "address", "to-mac": "mac",
	"traffic": "kind",
	"trafgen": "file", "verdict": "verdict",
	"version": "version", "way": "name", "webhook": "url", "window": "time", "write": "file",
	"events": "file", "fault": "kind=number", "forget": "time",
	"silence": "time",
}

// NamedValue is a flag's value that help calls by a name of its own, where pflag would show a type
// of Go.
type NamedValue struct {
	pflag.Value
	name string
}

func (v NamedValue) Type() string { return v.name }

// nameArgs gives all flags of a command and of those below it values with names.
func nameArgs(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" {
			return
		}
		name, list := ArgNames[f.Name], strings.HasSuffix(f.Value.Type(), "Slice")
		switch {
		case strings.Contains(f.Usage, "`"):
			name, f.Usage = pflag.UnquoteUsage(f)
		case name == "":
			name = "number"
		case f.Name == "from" && list:
			name = "prefix"
		}
		name = strings.ToLower(name)
		if list {
			name += ",..."
		}
		if f.DefValue == "[]" {
			f.DefValue = ""
		}
		f.Value = NamedValue{f.Value, name}
	})
	for _, sub := range cmd.Commands() {
		nameArgs(sub)
	}
}
