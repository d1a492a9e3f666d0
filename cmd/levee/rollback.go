package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/past"
	"levee/internal/lang/diag"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

const rollbackLong = `Put a policy back that was in force on an interface before: the last one that
is another than the one in force, or that of a NUMBER of --list. It comes with what its set files
held then, in one step, as by "levee up": dynamic sets keep their entries, sessions are looked for,
--confirm puts it on trial.

The last ten policies of each interface are kept in /var/lib/levee, each whole; what was on trial is
one of them once it was confirmed. --list shows them, the newest first, with what is otherwise in
each than in the one before it. "levee show --past NUMBER" prints one.

The file of the policy stays as it is, and is read again at the next boot and reload.`

const rollbackExample = `  sudo levee rollback --list --dev eth0
  sudo levee rollback --dev eth0
  sudo levee rollback 7 --dev eth0 --confirm 60s
  sudo levee show --past 7 --dev eth0 | diff /etc/levee/eth0.levee -`

type rollbackFlags struct {
	upFlags

	dev  string
	list bool
}

func newRollback(e *env) *cobra.Command {
	var f rollbackFlags
	cmd := &cobra.Command{
		Use:     "rollback [NUMBER] [--dev IF]",
		Short:   "Put a policy back that was in force before, or list the last ten",
		Long:    rollbackLong,
		Example: rollbackExample,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.rollback(cmd, args, &f)
		},
	}
	cli.DevFlag(cmd, &f.dev, "the interface")
	cli.NoService(cmd, "levee wrap puts the file of before in force again")
	cmd.Flags().BoolVar(&f.list, "list", false, "show the policies that were in force")
	cmd.Flags().StringVar(&f.confirm, "confirm", "",
		"on trial for this time, 100ms to 7d: 30s, 5m; go back unless levee confirm comes")
	cmd.Flags().BoolVar(&f.force, "force", false,
		"also if the policy drops an SSH session of this machine")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) rollback(cmd *cobra.Command, args []string, f *rollbackFlags) error {
	trial, err := trialTime(cmd, f.confirm)
	if err != nil {
		return err
	}
	if f.list && (len(args) > 0 || trial > 0 || f.force) {
		return cli.Usagef(cmd, "--list takes no NUMBER, --confirm or --force")
	}
	at, err := e.pastOf(cmd, f.dev)
	if err != nil {
		return err
	}
	if f.list {
		return e.listPast(at, f.json)
	}
	was, err := at.choose(cmd, args)
	if err != nil {
		return err
	}
	b, err := e.again(was, &f.upFlags)
	if err != nil {
		return err
	}
	b.opts.Names, b.opts.Confirm = at.names, trial
	if err := e.prepare(b, at.devs); err != nil {
		return err
	}
	if err := e.bringUp(b, at.devs); err != nil {
		return err
	}
	path := diag.Unquoted(was.Path)
	if text, err := os.ReadFile(path); err == nil && !bytes.Equal(text, was.Source) {
		e.Sayf("%s still holds another policy, which the next boot or reload reads; to write this "+
			"one there: levee show --dev %s > FILE", was.Path, at.devs[0])
	}
	return nil
}

// trialTime reads --confirm: 0 is no trial.
func trialTime(cmd *cobra.Command, confirm string) (time.Duration, error) {
	if confirm == "" {
		return 0, nil
	}
	trial, err := cli.ParseDuration(confirm)
	if err != nil {
		return 0, cli.Usagef(cmd, "--confirm: %v", err)
	}
	if trial < dataplane.MinTrial || trial > dataplane.MaxTrial {
		return 0, cli.Usagef(cmd, "--confirm %s: a trial lasts %s to %s", confirm,
			cli.FormatLease(dataplane.MinTrial), cli.FormatLease(dataplane.MaxTrial))
	}
	return trial, nil
}

// pastPolicies are those that were in force on an interface, and what is now.
type pastPolicies struct {
	devs    []string         // that have the policy as one
	names   []string         // that they are found by
	inForce *inspect.InForce // nil: nothing is
	all     []past.Policy    // the newest first; at least one
}

// pastOf reads the policies that were in force on dev or, if it is "", on the one interface of this
// network namespace that has a policy.
func (e *env) pastOf(cmd *cobra.Command, dev string) (*pastPolicies, error) {
	if err := e.Privileged(); err != nil {
		return nil, err
	}
	ctx := context.Background()
	running, notes, err := inspect.Status(ctx, false)
	e.notes(notes)
	if err != nil {
		return nil, err
	}
	at := &pastPolicies{devs: []string{dev}, names: []string{dev}}
	if dev == "" {
		if at.devs, err = e.devsOf(ctx, cmd, "", "a policy",
			func(*inspect.Attachment) bool { return true }); err != nil {
			return nil, err
		}
		dev = at.devs[0]
	}
	for i := range running {
		if a := &running[i]; a.Dev == dev {
			at.devs, at.names = dataplane.Others(running, dev), a.Names
			if at.inForce, _, err = inspect.Show(ctx, dev); err != nil {
				return nil, err
			}
		}
	}
	at.all, notes, err = dataplane.Past(ctx, dev)
	e.notes(notes)
	if err == nil && len(at.all) == 0 {
		err = fmt.Errorf("no policy that was in force on %s is kept", dev)
	}
	return at, err
}

// is reports whether a policy is the one in force.
func (at *pastPolicies) is(p *past.Policy) bool {
	in := at.inForce
	return in != nil && in.OnError == "" && p.Same(&past.Policy{Path: in.Path, Names: p.Names,
		Source: in.Source, Files: in.Files})
}

// choose returns the policy of a number, or the newest that is not in force.
func (at *pastPolicies) choose(cmd *cobra.Command, args []string) (*past.Policy, error) {
	number := 0
	if len(args) > 0 {
		var err error
		if number, err = strconv.Atoi(args[0]); err != nil || number < 1 {
			return nil, cli.Usagef(cmd, "%q is no number of --list", args[0])
		}
	}
	for i := range at.all {
		p := &at.all[i]
		if number == p.Number || number == 0 && !at.is(p) {
			return p, nil
		}
	}
	if number > 0 {
		return nil, fmt.Errorf("no policy of number %d is kept for %s; `levee rollback --list` "+
			"shows those that are", number, at.devs[0])
	}
	return nil, fmt.Errorf("no other policy than the one in force is kept for %s", at.devs[0])
}

// again prepares an earlier policy to be put in force once more.
func (e *env) again(was *past.Policy, f *upFlags) (*bringing, error) {
	src := &cli.Source{Path: was.Name(), Text: was.Source}
	pr := &cli.Parsed{Src: src}
	tree, ds := syntax.Parse(src.Title(), src.Text)
	p, more := resolve.Consume(tree, setfile.Recorded(was.Files))
	pr.Tree, pr.Policy, pr.Diags = tree, p, diag.Merge(ds, more)
	if pr.Diags.HasErrors() {
		e.PrintDiagnostics(pr.Diags)
		return nil, cli.ErrNo
	}
	return &bringing{file: was.Path, flags: f, parsed: pr, opts: dataplane.UpOptions{
		PolicyPath: was.Path, Source: was.Source, Files: was.Files}}, nil
}

func (e *env) listPast(at *pastPolicies, asJSON bool) error {
	rep := past.NewReport(at.devs[0], at.all, at.is, func(err error) { e.Sayf("%v", err) })
	if asJSON {
		return e.PrintJSON(rep)
	}
	changes := cli.NewTable("NUMBER SINCE POLICY STATE CHANGE", ">", "<", "<", "<", "<")
	for _, p := range rep.Policies {
		state, change := "-", ""
		if p.InForce {
			state = "in force"
		}
		if p.Older {
			change = "nothing that rules mean"
			if p.Change != nil {
				change = cmp.Or(p.Change.String(), change)
			}
		}
		changes.Row(p.Number, p.Since.Format(time.DateTime), p.Policy, state, change)
	}
	changes.Print(e.Stdout, "")
	return nil
}

// showPast prints a policy that was in force as `levee show` does.
func (e *env) showPast(cmd *cobra.Command, dev string, number int) error {
	at, err := e.pastOf(cmd, dev)
	if err != nil {
		return err
	}
	was, err := at.choose(cmd, []string{strconv.Itoa(number)})
	if err != nil {
		return err
	}
	text, err := resolve.Whole(was.Name(), was.Source, was.Files)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%s", text)
	return nil
}
