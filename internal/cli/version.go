package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is the release; the build may set it with -ldflags "-X levee/internal/cli.Version=...".
var Version = "0.1.0"

type VersionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // commit, "" when built outside a repository
	Modified bool   `json:"modified"` // the working tree differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() VersionInfo {
	v := VersionInfo{Version: Version, Go: runtime.Version(),
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

func VersionLine() string {
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

func NewVersion(e *Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go release levee was built with",
		Example: "  levee version --json",
		Args:    WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return e.PrintJSON(readVersion())
			}
			fmt.Fprintln(e.Stdout, VersionLine())
			return nil
		},
	}
	JsonFlag(cmd, &asJSON)
	return cmd
}
