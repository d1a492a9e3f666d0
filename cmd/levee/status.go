package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
	"levee/internal/lang/diag"
	"levee/internal/statustext"
)

const statusLong = `Show what runs where: hook, policy, how long, packets and bytes by rule,
dynamic sets, limits. Without --dev all interfaces of this network namespace are shown, with --all
those of every namespace of this machine.

Rules that have not seen a packet are shown too; built-in ones (malformed frames, ARP, neighbour
discovery, path MTU, DHCP) only if they have. --json shows everything.

At tc a packet that the kernel has merged (GRO), or has not cut yet (GSO), counts as one, with the
bytes that all its segments have on the wire. Limits charge each segment.

--diff shows what a shadow (levee up --shadow) would have done: for each pair of a rule in force and
a rule of the shadow the verdicts and the packets, those that differ first, and then samples of the
flows that differ.

--watch shows it again and again, --interval apart, until Ctrl-C, with packets and bits a second by
rule since the last time. With --json it prints an object a line.`

const statusExample = `  sudo levee status
  sudo levee status --watch
  sudo levee status --diff
  sudo levee status --dev eth0 --json | jq '.interfaces[].rules[] | select(.packets > 0)'`

type statusFlags struct {
	dev       string
	all, json bool
	watch     bool
	diff      bool
	interval  string
}

func newStatus(e *env) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show what runs where, with packets and bytes by rule",
		Long:    statusLong,
		Example: statusExample,
		Args:    cli.WantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.all && f.dev != "" {
				return cli.Usagef(cmd, "--all and --dev exclude each other")
			}
			if f.diff && f.watch {
				return cli.Usagef(cmd, "--diff and --watch exclude each other")
			}
			if f.diff {
				return e.statusDiff(&f)
			}
			if f.watch {
				return e.watchStatus(cmd, &f)
			}
			if cmd.Flags().Changed("interval") {
				return cli.Usagef(cmd, "--interval is for --watch")
			}
			return e.status(&f)
		},
	}
	cli.DevFlag(cmd, &f.dev, "only this interface")
	cmd.Flags().BoolVar(&f.all, "all", false, "of all network namespaces")
	cli.JsonFlag(cmd, &f.json)
	cmd.Flags().BoolVar(&f.diff, "diff", false, "what the shadow would do otherwise")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "again and again, with rates, until Ctrl-C")
	cmd.Flags().StringVar(&f.interval, "interval", "1s", "of --watch, 100ms to 1h")
	return cmd
}

// print says it, and what mends what is wrong.
func printJudging(w io.Writer, s *status.Judging, dev string) {
	switch {
	case s.Why != "":
		fmt.Fprintf(w, "  error    %s; levee up FILE --dev %s takes another hook, or another "+
			"program\n", s.Why, dev)
	case s.Seconds == nil:
		fmt.Fprintf(w, "  judging  not yet seen: no packet has come\n")
	default:
		ago := time.Duration(*s.Seconds * float64(time.Second))
		fmt.Fprintf(w, "  judging  seen %s ago\n", ago.Round(time.Second))
	}
	if s.LargestMTU > 0 {
		fmt.Fprintf(w, "  mtu      up to about %d while the policy is attached; levee down before "+
			"a larger one\n", s.LargestMTU)
	}
}

func (e *env) status(f *statusFlags) error {
	rep, err := e.readStatus(f)
	if err != nil {
		return err
	}
	if err := rep.Settle(context.Background()); err != nil {
		return err
	}
	if f.json {
		err = e.PrintJSON(rep)
	} else {
		out := e.Stdout.Screen()
		e.printStatuses(out, rep, f)
		err = out.Flush()
	}
	if err == nil && rep.Failing() {
		err = cli.ErrNo
	}
	return err
}

// readStatus returns what runs where now.
func (e *env) readStatus(f *statusFlags) (*status.Report, error) {
	rep, notes, err := status.Look(context.Background(), f.dev, f.all)
	e.notes(notes)
	return rep, err
}

func (e *env) printStatuses(w io.Writer, rep *status.Report, f *statusFlags) {
	if len(rep.Interfaces) == 0 {
		fmt.Fprintln(w, "no interface has a policy")
	}
	for i := range rep.Interfaces {
		if i > 0 {
			fmt.Fprintln(w)
		}
		e.printStatus(w, &rep.Interfaces[i], f)
	}
	statustext.Services(w, rep.Services, e.Now(), f.watch)
	for i := range rep.Kept {
		e.printKept(w, &rep.Kept[i])
	}
}

func (e *env) printKept(w io.Writer, k *status.Kept) {
	if k.Starting && k.Running {
		fmt.Fprintf(w, "%s: process %d puts %s in force, to keep it\n",
			strings.Join(k.Names, ", "), k.Pid, diag.Base(string(k.Policy)))
		return
	}
	state := fmt.Sprintf("by process %d", k.Pid)
	if !k.Running {
		state = fmt.Sprintf("but process %d has ended: start `levee up --keep` again", k.Pid)
	}
	if len(k.Waiting) > 0 {
		state = "waiting for " + strings.Join(k.Waiting, ", ") + ", " + state
	}
	fmt.Fprintf(w, "%s: %s is kept, %s\n", strings.Join(k.Names, ", "),
		diag.Base(string(k.Policy)), state)
}

func (e *env) printStatus(w io.Writer, s *status.Interface, f *statusFlags) {
	where := s.Dev
	if f.all {
		where += fmt.Sprintf(" (network namespace %d)", s.Netns)
	}
	// the clock may have been set back
	fmt.Fprintf(w, "%s: %s, %s, for %s\n", where, diag.Base(string(s.Policy)), s.Hook,
		max(0, e.Now().Sub(s.Since)).Round(time.Second))
	fmt.Fprintf(w, "  policy   %s, sha256 %.12s\n", s.Policy, s.Hash)
	fmt.Fprintf(w, "  hook     %s\n", s.Reason)
	if len(s.Together) > 0 {
		fmt.Fprintf(w, "  together %s\n", strings.Join(s.Together, ", "))
	}
	fmt.Fprintf(w, "  program  id %d, %s of machine code\n", s.Program.ID,
		cli.Plural(s.Program.JitedLen, "byte"))
	if !s.Told.IsZero() {
		fmt.Fprintf(w, "  told     limits and what else remembers are of %s ago, when root last "+
			"looked\n", max(0, e.Now().Sub(s.Told)).Round(time.Second))
	}
	printJudging(w, &s.Judging, s.Dev)
	if s.SharedWith != "" {
		fmt.Fprintf(w, "  shared   limits and what else remembers: see %s\n", s.SharedWith)
	}
	for _, l := range s.Words(s.Dev) {
		if l.Key != "" {
			fmt.Fprintf(w, "  %-8s %s\n", l.Key, l.Status)
		}
	}
	if sh := s.Shadow; sh != nil {
		fmt.Fprintf(w, "  shadow   %s, since %s: %s judged otherwise, of %d; see levee status "+
			"--diff\n", sh.Policy, sh.Since.Format(time.DateTime),
			cli.Plural(int(sh.Differ), "packet"),
			sh.Packets)
	}
	if s.Live != nil {
		fmt.Fprintf(w, "  live     %s of the agent%s, for %s unless it renews them; levee "+
			"agent rules list names them\n", cli.Plural(len(s.Live.Rules), "rule"), s.Live.Of(),
			time.Duration(s.Live.LeaseSeconds*float64(time.Second)).Round(time.Second))
	}
	if s.TrialSeconds > 0 {
		left := time.Duration(s.TrialSeconds * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(w, "  trial    %s left; to keep it: levee confirm --dev %s\n", left, s.Dev)
	}
	if rb := s.RolledBack; rb != nil {
		fmt.Fprintf(w, "  note     %s was not confirmed by %s\n", rb.Policy,
			rb.Deadline.Format(time.DateTime))
	}
	if s.OnError != "" {
		fmt.Fprintf(w, "  error    the policy could not be put in force, this is what \"on "+
			"error\" asks for: %s\n", s.OnError)
	}
	if s.Instead != "" {
		fmt.Fprintf(w, "  error    this policy was in force before, and stands in for another "+
			"that cannot be: %s\n", s.Instead)
	}
	statustext.Changed(w, s.Changed)
	fmt.Fprintln(w)
	statustext.Tables(w, s.Rules, s.Limits, s.Sets, f.watch)
}
