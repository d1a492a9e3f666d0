package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notInLevee are packages that only measurements need: what plots, fonts and pictures are drawn
// with, hash functions to compare, labs and reports.
var notInLevee = regexp.MustCompile(`^(gonum\.org/|codeberg\.org/|git\.sr\.ht/|` +
	`golang\.org/x/(image|perf)/|.*(HdrHistogram|moremath|svgo|freetype)|` +
	`.*/(murmur3|xxh3)$|` +
	`levee/internal/(bench|lab|report)($|/)|levee/cmd/levee-lab)`)

// TestLeveeHasNothingOfTheLab that would run as root with it.
func TestLeveeHasNothingOfTheLab(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	for _, p := range all {
		if notInLevee.MatchString(p) {
			t.Errorf("levee links %s", p)
		}
	}
	if len(all) < 100 {
		t.Errorf("only %d packages", len(all))
	}
}

// TestDependenciesAreThoseOfThePage: each module that go.mod asks for itself has a row, which says
// what links it.
func TestDependenciesAreThoseOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z-]+) \\| \\S.* \\|$")
	_, table, _ := strings.Cut(string(page), "\n## Direct dependencies\n")
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		said[m[1]] = m[2]
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, direct, _ := strings.Cut(string(mod), "require (\n")
	direct, _, _ = strings.Cut(direct, "\n)")
	in := [2][]string{modules(t, "."), modules(t, "../levee-lab")}
	for line := range strings.Lines(direct) {
		module := strings.Fields(line)[0]
		want := map[[2]bool]string{{true, true}: "both", {true, false}: "levee",
			{false, true}: "levee-lab", {false, false}: "tests"}[[2]bool{
			slices.Contains(in[0], module), slices.Contains(in[1], module)}]
		if said[module] != want {
			t.Errorf("docs/explanation/dependencies.md: %s is in %q, want %q",
				module, said[module], want)
		}
		delete(said, module)
	}
	for module := range said {
		t.Errorf("docs/explanation/dependencies.md: go.mod does not ask for %s", module)
	}
}

// modules are those of which a program links packages.
func modules(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}",
		program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
