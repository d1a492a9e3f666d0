package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release; the build may set it with -ldflags "-X main.version=...".
var version = "0.1.0"

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // commit, "" when built outside a repository
	Modified bool   `json:"modified"` // the working tree differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func versionLine() string {
	v := readVersion()
	s := "levee " + v.Version
	if len(v.Revision) >= 12 {
		s += " (" + v.Revision[:12]
		if v.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + v.Go + " " + v.Platform
}

func newVersion(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go release levee was built with",
		Example: "  levee version --json",
		Args:    wantArgs(),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return e.printJSON(readVersion())
			}
			fmt.Fprintln(e.stdout, versionLine())
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
