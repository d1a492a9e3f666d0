package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
	"levee/internal/host/session"
)

// testEnv is an environment without a world, for commands of levee.
func testEnv(terminal bool, args ...string) (e *env, out, errs *bytes.Buffer, clock *time.Time) {
	base, out, errs, clock := clitest.New(terminal, args...)
	return &env{Env: base,
		sessions: func(string) ([]session.Session, error) { return nil, nil }}, out, errs, clock
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestFailedOutputIsAnError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{syscall.ENOSPC, cli.ExitNo}, {syscall.EPIPE, cli.ExitDone}} {
		e, _, errs, _ := testEnv(false, "version")
		e.Stdout.W = failingWriter{c.err}
		if got := run(e); got != c.want ||
			strings.Contains(errs.String(), "write standard output") != (c.want != 0) {
			t.Errorf("%v: exit status %d, %q; want %d", c.err, got, errs, c.want)
		}
	}
}

func TestColoursOnATerminalUnlessUnwanted(t *testing.T) {
	for _, c := range []struct{ terminal, noColor, want bool }{{false, false, false},
		{true, true, false}, {true, false, true}} {
		e, _, errs, _ := testEnv(c.terminal, "check", "-")
		e.NoColor = c.noColor
		e.Stdin = strings.NewReader("dorp\n")
		if got := run(e); got != cli.ExitNo {
			t.Errorf("exit status %d", got)
		}
		if got := strings.Contains(errs.String(), "\x1b["); got != c.want {
			t.Errorf("terminal %v, NO_COLOR %v: colours %v\n%s", c.terminal, c.noColor, got, errs)
		}
	}
}
