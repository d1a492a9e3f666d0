package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"levee/internal/cli"
	"levee/internal/cli/clitest"
)

// TestManPageHasEveryCommandAndFlag compares the synopsis of the manual page with the commands.
// Flags that say where a report goes are the same for all measurements and stand in the page once.
func TestManPageHasEveryCommandAndFlag(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/man/levee.8")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, synopsis, _ := strings.Cut(page, ".Sh SYNOPSIS\n")
	synopsis, _, _ = strings.Cut(synopsis, ".Sh DESCRIPTION\n")
	usage := map[string]string{} // by command, with its flags
	for block := range strings.SplitSeq(synopsis, ".Nm levee Cm ") {
		name := regexp.MustCompile(`^[a-z]+( [a-z]+)*`).FindString(block)
		usage[name] += block
	}
	has := func(where, flag string) bool {
		return regexp.MustCompile(`Fl ` + regexp.QuoteMeta(flag) + `(\s|$)`).MatchString(where)
	}
	e, _, _, _ := testEnv(false)
	for _, cmd := range clitest.Leaves(wholeTree(e)) {
		name := strings.TrimPrefix(cmd.CommandPath(), "levee ")
		block, ok := usage[name]
		if !ok {
			t.Errorf("the synopsis lacks %s", cmd.CommandPath())
			continue
		}
		delete(usage, name)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			where := block
			if f.Name == "help" || f.Hidden { // hidden ones only say why they are refused
				return
			}
			switch f.Name {
			case "title", "csv", "html", "svg", "png":
				where = page
			}
			if !has(where, "-"+f.Name) && (f.Shorthand == "" || !has(where, f.Shorthand)) {
				t.Errorf("the synopsis of %s lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
	for name := range usage {
		if name != "" && name != "help" && name != "completion bash" {
			t.Errorf("the synopsis has %q, which is no command", name)
		}
	}
}

// TestHelpNamesValues wants a name of its own for each flag's value: pflag shows types of Go.
func TestHelpNamesValues(t *testing.T) {
	e, _, _, _ := testEnv(false)
	for _, cmd := range clitest.Leaves(wholeTree(e)) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			v, named := f.Value.(cli.NamedValue)
			switch {
			case f.Value.Type() == "bool":
			case !named:
				t.Errorf("%s --%s has a value without a name", cmd.CommandPath(), f.Name)
			case strings.HasPrefix(v.Type(), "number") &&
				strings.HasPrefix(cli.TypeOf(v), "string"):
				t.Errorf("%s --%s is no number, and has no other name", cmd.CommandPath(), f.Name)
			case f.DefValue == "[]":
				t.Errorf("%s --%s shows an empty default", cmd.CommandPath(), f.Name)
			}
		})
	}
}
