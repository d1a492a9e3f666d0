package main

import (
	"errors"
	"strings"
	"testing"
)

// TestLabsNeedTheSuperuser, whoever runs the test.
func TestLabsNeedTheSuperuser(t *testing.T) {
	for _, verb := range []string{"up", "down"} {
		e, out, errs, _ := testEnv(false, "lab", verb, "nosuchlab")
		if got := run(e); got != exitRefused || out.Len() > 0 ||
			!strings.Contains(errs.String(), "needs root; run it with sudo") {
			t.Errorf("lab %s: exit status %d, %q%q", verb, got, out, errs)
		}
	}
}

// TestTheDemoNamesItsOwnProgram: it starts its service and its visitors from the file that runs.
func TestTheDemoNamesItsOwnProgram(t *testing.T) {
	e, _, errs, _ := testEnv(false, "lab", "demo")
	e.executable = func() (string, error) { return "", errors.New("no /proc") }
	if got := run(e); got != exitNo ||
		!strings.Contains(errs.String(),
			"find this program, of which the demo starts more: no /proc") {
		t.Errorf("exit status %d, %q", got, errs)
	}
}
