// Package profile has the commands `levee profile`: which profiles there are, what one says, and
// whether its tests pass.
//
// In goes the name of a profile of levee's, or a file; out come its text and the results of its
// tests. It never puts anything in force.
package profile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/judge"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/use"
	"levee/profiles"
)

const long = `A profile is a part of a policy for one service: rules with parameters, and tests.
A policy has it by "use":

  use source-engine port { 27015-27030 }

The head of a profile says which floods it takes, what gets past it, what it costs, and with which
clients and servers it was tried. A file of your own is named in quotes, relative to the policy:
use "my-game.levee" port 7777.`

// New returns the command `levee profile`.
func New(e *cli.Env, choose func() judge.Choice) *cobra.Command {
	return cli.Noun("profile COMMAND",
		"List, show and test profiles, parts of policies for one service", long,
		"  levee profile list\n  levee profile show source-engine\n"+
			"  levee profile test my-game.levee", newList(e), newShow(e), newTest(e, choose))
}

// Listing is the object of `levee profile list --json`.
type Listing struct {
	Profiles []listed `json:"profiles"`
}

// listed is one profile.
type listed struct {
	Name       string      `json:"name"`
	Version    int         `json:"version"`
	About      string      `json:"about"`
	Takes      []string    `json:"takes"`
	Misses     []string    `json:"misses"`
	Costs      []string    `json:"costs"`
	Tried      []string    `json:"tried"`
	Parameters []parameter `json:"parameters"`
}

type parameter struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
	About   string `json:"about"`
}

func newList(e *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the profiles that levee comes with",
		Example: "  levee profile list",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			all := []listed{}
			for _, name := range profiles.Names() {
				p, err := read(e, name)
				if err != nil {
					return err
				}
				all = append(all, list(p.head))
			}
			if asJSON {
				return e.PrintJSON(Listing{all})
			}
			t := cli.NewTable("profile version about", "<", ">", "<")
			for _, p := range all {
				t.Row(p.Name, p.Version, p.About)
			}
			t.Print(e.Stdout, "")
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func list(p *use.Head) listed {
	some := func(s []string) []string { return append([]string{}, s...) }
	out := listed{Name: p.Name, Version: p.Version, About: p.About, Takes: some(p.Takes),
		Misses: some(p.Misses), Costs: some(p.Costs), Tried: some(p.Tried),
		Parameters: []parameter{}}
	for _, q := range p.Parameters {
		out.Parameters = append(out.Parameters, parameter{q.Name, q.Type, q.Default, q.About})
	}
	return out
}

func newShow(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Print a profile, its head, rules and tests",
		Example:           "  levee profile show source-engine",
		Args:              cli.WantArgs("NAME"),
		ValidArgsFunction: offered,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := read(e, args[0])
			if err != nil {
				return err
			}
			_, err = e.Stdout.Write(p.text)
			return err
		},
	}
}

// offered returns the names that a shell may offer.
func offered(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profiles.Names(), cobra.ShellCompDirectiveDefault
}

// profile is one that was read, by itself.
type profile struct {
	title string
	text  []byte
	head  *use.Head
	rules *policy.Policy
	ds    diag.Diagnostics
}

// read reads a profile of levee's, or a file. What is wrong with it is printed.
func read(e *cli.Env, name string) (*profile, error) {
	p := &profile{title: name + ".levee"}
	var err error
	dir := "."
	if strings.ContainsAny(name, "/.") || name == cli.StdinName { // no name of a profile
		src, err := e.ReadSource(name)
		if err != nil {
			return nil, err
		}
		p.title, p.text, dir = src.Title(), src.Text, src.Dir()
	} else if p.text, err = profiles.Text(name); err != nil {
		hint := "\"levee profile list\" shows them"
		if near := diag.Nearest(name, profiles.Names()); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return nil, fmt.Errorf("there is no profile %q; %s", name, hint)
	}
	p.head, p.rules, p.ds = resolve.ParseProfile(p.title, p.text, setfile.In(dir))
	if p.rules == nil {
		e.PrintDiagnostics(p.ds)
		return nil, cli.ErrNo
	}
	return p, nil
}

func newTest(e *cli.Env, choose func() judge.Choice) *cobra.Command {
	return &cobra.Command{
		Use:   "test [NAME|FILE]...",
		Short: "Run the tests of profiles, of all without a name",
		Long: `Run the tests that stand in profiles, each by itself, with the values that its parameters
have where a policy does not say. The reference evaluator judges; with privileges the compiled
program judges too, in the kernel.`,
		Example: `  levee profile test
  levee profile test source-engine ./my-game.levee`,
		ValidArgsFunction: offered,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = profiles.Names()
			}
			choice, passed, failed := choose(), 0, 0
			err := e.EachFile(args, func(name string) error {
				p, err := read(e, name)
				if err != nil {
					return err
				}
				e.PrintDiagnostics(p.ds)
				ok, bad, err := p.test(e, &choice)
				passed, failed = passed+ok, failed+bad
				return err
			})
			fmt.Fprintf(e.Stdout, "%d passed, %d failed (%s)\n", passed, failed, &choice)
			if err == nil && failed > 0 {
				return cli.ErrNo
			}
			return err
		},
	}
}

// test runs the tests of a profile.
func (p *profile) test(e *cli.Env, choice *judge.Choice) (passed, failed int, err error) {
	j, err := choice.New(p.rules)
	if err != nil {
		return 0, 0, err
	}
	defer j.Close()
	if len(p.rules.Tests) == 0 {
		e.Sayf("%s has no tests", p.title)
	}
	for _, t := range p.rules.Tests {
		res, err := j.Test(p.title, t)
		if err != nil {
			return passed, failed, err
		}
		var faults bytes.Buffer
		for _, q := range res.Packets {
			if q.Fault != "" {
				fmt.Fprintf(&faults, "     %s:%d %s\n     %s\n", filepath.Base(p.title),
					q.Step.Pos.Line, q.Step.Text, q.Fault)
			}
		}
		mark := "ok  "
		if faults.Len() > 0 {
			mark = "FAIL"
			failed++
		} else {
			passed++
		}
		if e.Verbose || faults.Len() > 0 {
			fmt.Fprintf(e.Stdout, "%s %s:%d %q\n%s", mark, filepath.Base(p.title), t.Pos.Line,
				t.Name, faults.String())
		}
	}
	return passed, failed, nil
}
