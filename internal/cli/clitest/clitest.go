// Package clitest makes environments for tests of commands: no process goes in, what a command
// wrote and the clock come out. Only tests may import it.
package clitest

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/kernel"
)

// New returns an environment without a world: what is written to it can be read, its clock is set
// by hand.
func New(terminal bool, args ...string) (e *cli.Env, out, errs *bytes.Buffer, clock *time.Time) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	now := time.Unix(1_000_000_000, 0)
	return &cli.Env{
		Args: args, Stdin: strings.NewReader(""),
		Stdout: &cli.Output{W: out, Terminal: terminal},
		Stderr: &cli.Output{W: errs, Terminal: terminal},
		Now:    func() time.Time { return now },
		Privileged: func() error {
			return kernel.Refuse(syscall.EPERM,
				"no privileges in this test")
		},
		Executable: func() (string, error) { return "/usr/bin/levee", nil },
	}, out, errs, &now
}

// Leaves returns the commands that do something, as `levee help` lists them.
func Leaves(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	if cmd.HasParent() && cmd.RunE != nil && cmd.HasLocalFlags() {
		out = append(out, cmd) // it does something itself, too
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			out = append(out, Leaves(sub)...)
		}
	}
	return out
}

// notForPeople matches words of Go's errors that users should not see.
var notForPeople = regexp.MustCompile(
	`strconv|\["|\[[0-9]|context canceled|unexpected EOF|invalid argument|%!`)

// WantUsage gives commands arguments that they do not take: the exit status says so before anything
// is done, with or without privileges, and the text is for people.
func WantUsage(t testing.TB, run func(*cli.Env) int, args ...string) {
	t.Helper()
	e, out, errs, _ := New(false, args...)
	// What is taken for right ends before it has begun.
	e.Signals = func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}
	if got := run(e); got != cli.ExitUsage || out.Len() > 0 {
		t.Errorf("%q: exit status %d, want %d: %s%s", args, got, cli.ExitUsage, out, errs)
	}
	if bad := notForPeople.FindString(errs.String()); bad != "" ||
		!strings.Contains(errs.String(), "--help`)") {
		t.Errorf("%q: %q in %q", args, bad, errs)
	}
}
