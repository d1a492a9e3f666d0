package main

import (
	"os"
	"regexp"
	"testing"
)

// TestToolchainKnowsTheGoOfThisModule: a newer Go in go.mod wants its sums in scripts/toolchain.
func TestToolchainKnowsTheGoOfThisModule(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../scripts/toolchain")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(mod)
	for _, arch := range []string{"amd64", "arm64"} {
		line := "# v0.0.1-go" + string(version[1]) + ".linux-" + arch + " h1:"
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `\S{44}$`).Match(script) {
			t.Errorf("scripts/toolchain has no line %s...", line)
		}
	}
}
