package main

import (
	"strings"
	"testing"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// TestWrongValuesAreWrongUsage gives flags values that they do not take: the exit status is 2,
// before anything is measured, with or without privileges, and the text is for people.
func TestWrongValuesAreWrongUsage(t *testing.T) {
	run := func(e *cli.Env) int { return run(&env{Env: e}) }
	for _, args := range []string{
		"cost f --repeat x", "cost f --repeat 0", "cost f --rules 0", "explain f --pcap p --n x",
		"diff - -",
	} {
		clitest.WantUsage(t, run, strings.Fields(args)...)
	}
}
