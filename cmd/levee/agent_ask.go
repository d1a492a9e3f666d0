package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/enforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/lang/syntax"
)

// errNoAgent is that no agent answers.
var errNoAgent = errors.New("no agent runs: levee agent run, or systemctl start levee-agent")

// askAgent sends a request to the agent that runs; body is nil for one that only looks.
func askAgent(method, path string, body, out any) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", agentSocket())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "http://agent/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return errNoAgent
	}
	if errors.Is(err, fs.ErrPermission) {
		return cli.Refusedf(
			"only root may ask the agent at %s: run it as root (sudo); others ask its "+
				"API with a token (levee help agent)", agentSocket())
	}
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var p api.Problem
		if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&p); err != nil {
			return fmt.Errorf("the agent answers %s", res.Status)
		}
		return fmt.Errorf("the agent: %s", p.Detail)
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// askLeases are the leases that a filter chooses, of the agent that runs.
func askLeases(f *agent.Filter) (all []agent.Listed, err error) {
	all = []agent.Listed{}
	q := url.Values{"limit": {"10000"}}
	for name, v := range map[string]string{"set": f.Set, "origin": f.Origin} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for _, p := range f.Entries {
		q.Add("entry", p.String())
	}
	for {
		var page agent.LeasePage
		if err := askAgent(http.MethodGet, "leases?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Leases...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("after", page.Next)
	}
}

// agentOrLedger asks the agent that runs, or opens the ledger where none does. An agent that begins
// to run in between has the ledger, and is asked.
func agentOrLedger(ask func() error, do func(*ledger.Ledger) error) error {
	for deadline := time.Now().Add(ledger.Wait); ; {
		err := ask()
		if !errors.Is(err, errNoAgent) {
			return err
		}
		err = withLedger(do)
		if !errors.Is(err, ledger.ErrBusy) || time.Now().After(deadline) {
			return err
		}
	}
}

// withLedger opens the ledger where no agent runs.
func withLedger(do func(*ledger.Ledger) error) error {
	_, err := os.Stat(agentLedger())
	if errors.Is(err, fs.ErrPermission) {
		return cli.Refusedf("%w, and only root may read %s: run it as root (sudo)", errNoAgent,
			agentLedger())
	}
	if err != nil {
		return fmt.Errorf("%w, and there are no leases: %w", errNoAgent, err)
	}
	l, err := ledger.Open(agentLedger(), 100*time.Millisecond)
	if err != nil {
		return err
	}
	if l.Damaged != "" {
		return errors.Join(fmt.Errorf("the ledger was damaged (%w) and lies in %s now", l.Reason,
			l.Damaged), l.Close())
	}
	return errors.Join(do(l), l.Close())
}

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
			if err := askAgent(http.MethodGet, "status", nil, &s); err != nil {
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
	out := e.Stdout.Buffered()
	defer out.Flush()
	if s.Compare.At.IsZero() {
		fmt.Fprintln(out, "enforced  not known: nothing has been compared with the kernel yet")
	} else {
		fmt.Fprintf(out, "enforced  %.4g %%: %d of %s, %s; compared %s ago in %.3f s, "+
			"%d repaired\n", s.Enforced, s.Compare.Held, entryCount(s.Compare.Entries),
			cli.Plural(s.Compare.Leases, "lease"),
			ago(s.Compare.At), s.Compare.Seconds, s.Compare.Repaired)
	}
	if s.Compare.Waiting > 0 {
		fmt.Fprintf(out, "          %s the ledger could not take yet\n",
			entryCount(s.Compare.Waiting))
	}
	printParts(out, s.Parts)
	for _, src := range s.Sources {
		fmt.Fprintf(out, "source    %s: %d events, %d matched, %d malformed, %d too long; lag %d "+
			"bytes, %.1f s; %d rotations; %s\n", src.Name, src.Events, src.Matched, src.Malformed,
			src.TooLong, src.LagBytes, src.LagSeconds, src.Rotations, syntax.Quoted(src.Path))
		for _, more := range []struct {
			n    int64
			what string
		}{{int64(src.Counted), "events counted before there were enough"},
			{int64(src.Again), "events that were judged before, in a file that was written anew"},
			{int64(src.Ambiguous), "lines that could mean several addresses"},
			{int64(src.Uncounted), "events that found no room to be counted"},
			{src.LagLines, "lines wait"}, {int64(src.Peers), "programs are connected"}} {
			if more.n > 0 {
				fmt.Fprintf(out, "          %d %s\n", more.n, more.what)
			}
		}
	}
	e.printLists(out, s.Lists)
	for _, set := range s.Sets {
		fmt.Fprintf(out, "set       %s: %s, %d missing\n", set.Name, entryCount(set.Entries),
			set.Missing)
		if set.Error != "" {
			fmt.Fprintf(out, "          %s\n", syntax.Quoted(set.Error))
		}
	}
	fmt.Fprintf(out, "ledger    %s: %s, %d bytes\n", syntax.Quoted(s.Ledger.Path),
		cli.Plural(s.Ledger.Leases, "lease"), s.Ledger.Bytes)
	for _, r := range s.Refusals {
		fmt.Fprintf(out, "refused   %s of %s for %s, %d times: %s\n", r.Entry, r.Origin, r.Set,
			r.Count, syntax.Quoted(r.Why))
	}
	for _, a := range s.Alarms {
		if a.Part != "" { // it stands above
			continue
		}
		fmt.Fprintf(out, "alarm     %s %s\n", a.At.Format(time.RFC3339), syntax.Quoted(a.Text))
	}
}

// ago is the time since.
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

// filter are the leases that flags and arguments choose.
func (f *leaseFlags) filter(cmd *cobra.Command, args []string) (*agent.Filter, error) {
	out := &agent.Filter{Set: f.set, Origin: f.origin}
	for _, word := range args {
		p, err := agent.ParseEntry(word)
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
			err = agentOrLedger(func() (err error) {
				all, err = askLeases(filter)
				return err
			}, func(l *ledger.Ledger) (err error) {
				all, err = agent.List(l, filter)
				return err
			})
			if err != nil {
				return err
			}
			if f.json {
				return e.PrintJSON(leaseReport{all})
			}
			out := e.Stdout.Buffered()
			for _, l := range all {
				left := "until withdrawn"
				if l.LeaseSeconds > 0 {
					left = cli.FormatLease(time.Duration(l.LeaseSeconds*float64(time.Second))) +
						" left"
				}
				origin := l.Origin
				if strings.Contains(origin, " ") {
					origin = strconv.Quote(origin)
				}
				fmt.Fprintf(out, "%-16s  %-39s  %-16s  %s\n", l.Set, l.Entry, origin, left)
			}
			return out.Flush()
		},
	}
	f.add(cmd)
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

// leaseReport is the object of `levee agent list --json`.
type leaseReport struct {
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
			err = agentOrLedger(func() error {
				return askAgent(http.MethodPost, "leases/withdraw", in.Body, &done)
			}, func(l *ledger.Ledger) (err error) {
				k := &enforce.Kernel{}
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
