package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"levee/internal/cli"
)

// TestWrongValuesAreWrongUsage gives flags values that they do not take: the exit status is 2,
// before anything is measured, with or without privileges, and the text is for people.
func TestWrongValuesAreWrongUsage(t *testing.T) {
	for _, args := range []string{
		"cost f --repeat x", "cost f --repeat 0", "cost f --rules 0", "explain f --pcap p --n x",
	} {
		wantUsage(t, strings.Fields(args)...)
	}
}

// notForPeople is what Go says and users should not see.
var notForPeople = regexp.MustCompile(
	`strconv|\["|\[[0-9]|context canceled|unexpected EOF|invalid argument|%!`)

func wantUsage(t *testing.T, args ...string) {
	t.Helper()
	e, out, errs, _ := testEnv(false, args...)
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
