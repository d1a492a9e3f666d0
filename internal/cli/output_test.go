package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
	"levee/internal/kernel"
)

func TestProgressIsForTerminalsOnly(t *testing.T) {
	e, _, errs, _ := clitest.New(false)
	p := e.Progress()
	p.Printf("%d packets", 1)
	p.Clear()
	if errs.Len() > 0 {
		t.Errorf("progress in a pipe: %q", errs)
	}

	e, _, errs, clock := clitest.New(true)
	p = e.Progress()
	p.Printf("%d packets", 1)
	p.Printf("%d packets", 2) // too early to be read
	*clock = clock.Add(time.Second)
	p.Printf("%d packets", 3)
	p.Clear()
	p.Clear()
	if want := "\r\x1b[K1 packets\r\x1b[K3 packets\r\x1b[K"; errs.String() != want {
		t.Errorf("progress on a terminal: %q, want %q", errs, want)
	}
}

func TestTableLinesUp(t *testing.T) {
	tab := cli.NewTable("N NAME LAST", ">", "<", "<")
	tab.Row(1, "±", "x")
	tab.Row(100, "name", "")
	var b bytes.Buffer
	tab.Print(&b, "  ")
	if want := "    N  NAME  LAST\n    1  ±     x\n  100  name\n"; b.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", &b, want)
	}
}

func TestStatusOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("plain"), cli.ExitNo},
		{cli.ErrNo, cli.ExitNo},
		{&cli.ExitError{Code: cli.ExitUsage, Err: errors.New("x")}, cli.ExitUsage},
		{kernel.Refuse(nil, "no XDP"), cli.ExitRefused},
		{errors.Join(errors.New("a"), syscall.EACCES), cli.ExitRefused},
	} {
		if got := cli.StatusOf(c.err); got != c.want {
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
		e, _, errs, _ := clitest.New(false)
		cli.Report(e, c.err)
		if got := errs.String(); got != "levee: "+c.want+"\n" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
