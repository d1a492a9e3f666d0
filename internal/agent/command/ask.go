package command

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/client"
	"levee/internal/agent/enforce"
	"levee/internal/agent/inforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/lang/diag"
)

func newAgentStatus(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the agent reads, holds and refuses",
		Long: `Show how many of the leased entries the kernel held at the last comparison; each part of the
agent, such as detectors, sources, lists, targets of notifications and files that are written: since
when it works and what it saw last, or why it does not and what to do; how far behind each source
is; what was refused and why; and alarms. The exit status is 1 if no agent runs, if a part does not
work, or if the kernel does not hold all entries.`,
		Example: "  sudo levee agent status --json | jq .enforced_percent",
		Args:    cli.WantArgs(),
		RunE: func(*cobra.Command, []string) error {
			var s agent.Status
			if err := client.Ask(http.MethodGet, "status", nil, &s); err != nil {
				return err
			}
			if asJSON {
				if err := e.PrintJSON(s); err != nil {
					return err
				}
			} else {
				e.printAgent(&s)
			}
			if s.Compare.Held < s.Compare.Entries || len(part.Failing(s.Parts)) > 0 {
				return cli.ErrNo
			}
			return nil
		},
	}
	cli.JsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) printAgent(s *agent.Status) {
	out := e.Stdout.Screen()
	defer out.Flush()
	if s.Compare.At.IsZero() {
		fmt.Fprintln(out, "enforced  not known: nothing has been compared with the kernel yet")
	} else {
		fmt.Fprintf(out, "enforced  %.4g %%: %d of %s, %s; compared %s ago in %.3f s, "+
			"%d repaired\n", s.Enforced, s.Compare.Held, entries(s.Compare.Entries),
			cli.Plural(s.Compare.Leases, "lease"),
			ago(s.Compare.At), s.Compare.Seconds, s.Compare.Repaired)
	}
	if s.Compare.Waiting > 0 {
		fmt.Fprintf(out, "          %s the ledger could not take yet\n",
			entries(s.Compare.Waiting))
	}
	printParts(out, s.Parts)
	for _, src := range s.Sources {
		fmt.Fprintf(out, "source    %s: %d events, %d matched, %d malformed, %d too long; lag %d "+
			"bytes, %.1f s; %d rotations; %s\n", src.Name, src.Events, src.Matched, src.Malformed,
			src.TooLong, src.LagBytes, src.LagSeconds, src.Rotations, diag.Quoted(src.Path))
		for _, more := range []struct {
			n    int64
			what string
		}{{int64(src.Counted), "events counted before there were enough"},
			{int64(src.Again), "events that were judged before, in a file that was written anew"},
			{int64(src.Ambiguous), "lines that could mean several addresses"},
			{int64(src.Uncounted), "events that found no room to be counted"},
			{src.LagLines, "lines wait"}, {int64(src.Peers), "programs are connected"},
			{int64(src.Flows), "flows were read"},
			{int64(src.Unknown), "flows said something else, or nothing that could be read"},
			{int64(src.Lost), "packets of flows were lost, as there was no room"}} {
			if more.n > 0 {
				fmt.Fprintf(out, "          %d %s\n", more.n, more.what)
			}
		}
	}
	e.printLists(out, s.Lists)
	for _, set := range s.Sets {
		fmt.Fprintf(out, "set       %s: %s, %d missing\n", set.Name, entries(set.Entries),
			set.Missing)
		if set.Error != "" {
			fmt.Fprintf(out, "          %s\n", diag.Quoted(set.Error))
		}
	}
	fmt.Fprintf(out, "ledger    %s: %s, %d bytes\n", diag.Quoted(s.Ledger.Path),
		cli.Plural(s.Ledger.Leases, "lease"), s.Ledger.Bytes)
	for _, r := range s.Refusals {
		fmt.Fprintf(out, "refused   %s of %s for %s, %s: %s\n", r.Entry, r.Origin, r.Set,
			cli.Plural(r.Count, "time"), diag.Quoted(r.Why))
	}
	for _, a := range s.Alarms {
		if a.Part != "" { // it stands above
			continue
		}
		fmt.Fprintf(out, "alarm     %s %s\n", a.At.Format(time.RFC3339), diag.Quoted(a.Text))
	}
}

// entries returns how many there are.
func entries(n int) string { return cli.Plural(n, "entry") }

// ago returns the time since.
func ago(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// leaseFlags choose leases.
type leaseFlags struct {
	set, origin string
	json        bool
}

func (f *leaseFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.set, "set", "", "only those of this set")
	cmd.Flags().StringVar(&f.origin, "origin", "", "only those of this source, or of command")
}

// filter returns the leases that flags and arguments choose.
func (f *leaseFlags) filter(cmd *cobra.Command, args []string) (*agent.Filter, error) {
	out := &agent.Filter{Set: f.set, Origin: f.origin}
	for _, word := range args {
		p, err := agent.ParseLeased(word)
		if err != nil {
			return nil, cli.Usagef(cmd, "%v", err)
		}
		out.Entries = append(out.Entries, p)
	}
	return out, nil
}

func newAgentList(e *env) *cobra.Command {
	var f leaseFlags
	cmd := &cobra.Command{
		Use:   "list [ENTRY...]",
		Short: "List leases with their origin",
		Long: `List the leases of the ledger: set, entry, origin, and the time that is left. An entry of
several origins has a line for each. It works whether an agent runs or not.`,
		Example: "  sudo levee agent list --origin ids",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(cmd, args)
			if err != nil {
				return err
			}
			var all []agent.Listed
			err = client.OrLedger(func() (err error) {
				all, err = client.Leases(filter)
				return err
			}, func(l *ledger.Ledger) (err error) {
				all, err = agent.List(l, filter)
				return err
			})
			if err != nil {
				return err
			}
			if f.json {
				return e.PrintJSON(LeaseReport{all})
			}
			out := e.Stdout.Buffered()
			var set, entry, by int // columns
			for i := range all {
				all[i].Origin = quotedOrigin(all[i].Origin)
				set, entry = max(set, len(all[i].Set)), max(entry, len(all[i].Entry))
				by = max(by, len(all[i].Origin))
			}
			for _, l := range all {
				left := "until withdrawn"
				if l.LeaseSeconds > 0 {
					left = cli.FormatLease(time.Duration(l.LeaseSeconds*float64(time.Second))) +
						" left"
				}
				fmt.Fprintf(out, "%-*s  %-*s  %-*s  %s\n", set, l.Set, entry, l.Entry, by,
					l.Origin, left)
			}
			return out.Flush()
		},
	}
	f.add(cmd)
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// quotedOrigin returns an origin as one word.
func quotedOrigin(origin string) string {
	if strings.Contains(origin, " ") {
		return strconv.Quote(origin)
	}
	return origin
}

// LeaseReport is the object of `levee agent list --json`.
type LeaseReport struct {
	Leases []agent.Listed `json:"leases"`
}

func newAgentWithdraw(e *env) *cobra.Command {
	var f leaseFlags
	var every bool
	cmd := &cobra.Command{
		Use:   "withdraw [ENTRY...]",
		Short: "Take leases back",
		Long: `Take leases out of the ledger and the kernel: of an origin, of a set, of entries, or what is all
of these. An entry stays while another origin leases it. How many leases there were is printed. It
works whether an agent runs or not. The next event leases an entry again.`,
		Example: `  sudo levee agent withdraw --origin ids
  sudo levee agent withdraw 203.0.113.9`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(cmd, args)
			if err != nil {
				return err
			}
			if none := len(args) == 0 && f.origin == "" && f.set == ""; none != every {
				return cli.Usagef(cmd, "say which: --origin, --set, ENTRY, or --all alone")
			}
			var in agent.WithdrawInput
			in.Body.Set, in.Body.Origin, in.Body.All = filter.Set, filter.Origin, every
			for _, p := range filter.Entries {
				in.Body.Entries = append(in.Body.Entries, p.String())
			}
			var done agent.Withdrawn
			err = client.OrLedger(func() error {
				return client.Ask(http.MethodPost, "leases/withdraw", in.Body, &done)
			}, func(l *ledger.Ledger) (err error) {
				k := &enforce.Kernel{Counted: new(inforce.Watcher).Counted}
				defer k.Close()
				done.Withdrawn, err = agent.Withdraw(context.Background(), l, k,
					filter.Noting(&done))
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s withdrawn\n", cli.Plural(done.Withdrawn, "lease"))
			if len(done.Wider) > 0 {
				fmt.Fprintf(e.Stdout, "a wider one holds it, and stays: levee agent withdraw %s\n",
					strings.Join(done.Wider, " "))
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&every, "all", false, "all leases")
	return cmd
}
