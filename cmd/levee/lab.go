package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"levee/internal/cli"
)

// labProgram is the program that has the commands below.
const labProgram = "levee-lab"

// labCommands are the commands that labProgram has, with the group of each and what `levee help`
// says of it.
var labCommands = []struct{ group, use, short string }{
	{groupLab, "lab COMMAND", "Network namespaces to try all of it in"},
	{groupLab, "gen --dev IF", "Send a flood or a capture into a lab"},
	{groupLab, "bench COMMAND", "Measure on this machine what levee's claims are made of"},
	{groupLab, "probe FILE",
		"Ask your own network from outside whether it does what its policy says"},
	{groupOther, "calc QUANTITY...",
		"Convert link speed, frame size, packets a second, ns and cycles a packet"},
}

// newLabCommand returns a command in whose place labProgram runs, with all arguments: it also
// answers for help and completions.
func newLabCommand(e *env, use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			_ = e.becomeLab() // where it is not there, there is nothing to offer
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := e.becomeLab()
			if errors.Is(err, exec.ErrNotFound) {
				name, _, _ := strings.Cut(use, " ")
				return cli.Refusedf("`levee %s` is in %s, which is not installed: install the "+
					"package %s, or put its binary beside that of levee", name, labProgram,
					labProgram)
			}
			return err
		},
	}
}

// becomeLab runs labProgram in the place of this process, so that signals, streams and the exit
// status are its own. It returns only with an error.
func (e *env) becomeLab() error {
	path, err := e.findLab()
	if err != nil {
		return fmt.Errorf("find %s: %w", labProgram, err)
	}
	err = syscall.Exec(path, append([]string{path}, e.Args...), os.Environ())
	return fmt.Errorf("start %s: %w", path, err)
}

// libexec is the directory in which packages have programs that others start.
const libexec = "/usr/libexec/levee"

// findLab looks for labProgram beside this program, where packages have it, and in PATH.
func (e *env) findLab() (string, error) {
	dirs := []string{libexec}
	if self, err := e.Executable(); err == nil {
		dirs = append([]string{filepath.Dir(self)}, dirs...)
	}
	for _, dir := range dirs {
		path, err := exec.LookPath(filepath.Join(dir, labProgram))
		if !errors.Is(err, fs.ErrNotExist) {
			return path, err // one that may not be run is said to be so
		}
	}
	return exec.LookPath(labProgram)
}
