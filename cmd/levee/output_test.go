package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/host/session"
	"levee/internal/kernel"
)

// testEnv is an environment without a world: what is written to it can be read, its clock is set by
// hand.
func testEnv(terminal bool, args ...string) (e *env, out, errs *bytes.Buffer, clock *time.Time) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	now := time.Unix(1_000_000_000, 0)
	return &env{
		args: args, stdin: strings.NewReader(""),
		stdout: &output{w: out, terminal: terminal}, stderr: &output{w: errs, terminal: terminal},
		now: func() time.Time { return now },
		privileged: func() error {
			return kernel.Refuse(syscall.EPERM,
				"no privileges in this test")
		},
		executable: func() (string, error) { return "/usr/bin/levee", nil },
		sessions:   func(string) ([]session.Session, error) { return nil, nil },
	}, out, errs, &now
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	e, _, errs, _ := testEnv(false)
	p := e.progress()
	p.printf("%d packets", 1)
	p.clear()
	if errs.Len() > 0 {
		t.Errorf("progress in a pipe: %q", errs)
	}

	e, _, errs, clock := testEnv(true)
	p = e.progress()
	p.printf("%d packets", 1)
	p.printf("%d packets", 2) // too early to be read
	*clock = clock.Add(redraw)
	p.printf("%d packets", 3)
	p.clear()
	p.clear()
	if want := "\r\x1b[K1 packets\r\x1b[K3 packets\r\x1b[K"; errs.String() != want {
		t.Errorf("progress on a terminal: %q, want %q", errs, want)
	}
}

func TestTableLinesUp(t *testing.T) {
	tab := newTable("N NAME LAST", ">", "<", "<")
	tab.row(1, "±", "x")
	tab.row(100, "name", "")
	var b bytes.Buffer
	tab.print(&b, "  ")
	if want := "    N  NAME  LAST\n    1  ±     x\n  100  name\n"; b.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", &b, want)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestFailedOutputIsAnError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{syscall.ENOSPC, exitNo}, {syscall.EPIPE, exitDone}} {
		e, _, errs, _ := testEnv(false, "version")
		e.stdout.w = failingWriter{c.err}
		if got := run(e); got != c.want ||
			strings.Contains(errs.String(), "write standard output") != (c.want != 0) {
			t.Errorf("%v: exit status %d, %q; want %d", c.err, got, errs, c.want)
		}
	}
}

func TestStatusOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("plain"), exitNo},
		{errNo, exitNo},
		{&exitError{code: exitUsage, err: errors.New("x")}, exitUsage},
		{kernel.Refuse(nil, "no XDP"), exitRefused},
		{errors.Join(errors.New("a"), syscall.EACCES), exitRefused},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("status of %q: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestACanceledContextWasASignal(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{context.Canceled, "interrupted"},
		{fmt.Errorf("bench: %w", context.Canceled), "bench: interrupted"},
		{fmt.Errorf("interrupted; the lab is removed: %w", context.Canceled),
			"interrupted; the lab is removed"},
		{errors.New("a file called context canceled"), "a file called context canceled"},
	} {
		if got := message(c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestColoursOnATerminalUnlessUnwanted(t *testing.T) {
	for _, c := range []struct{ terminal, noColor, want bool }{{false, false, false},
		{true, true, false}, {true, false, true}} {
		e, _, errs, _ := testEnv(c.terminal, "check", "-")
		e.noColor = c.noColor
		e.stdin = strings.NewReader("dorp\n")
		if got := run(e); got != exitNo {
			t.Errorf("exit status %d", got)
		}
		if got := strings.Contains(errs.String(), "\x1b["); got != c.want {
			t.Errorf("terminal %v, NO_COLOR %v: colours %v\n%s", c.terminal, c.noColor, got, errs)
		}
	}
}
