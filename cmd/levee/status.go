package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/filter/state"
	"levee/internal/lang/syntax"
)

const statusLong = `Show what runs where: hook, policy, how long, packets and bytes by rule,
dynamic sets, limits. Without --dev all interfaces of this network namespace are shown, with --all
those of every namespace of this machine.

Rules that have not seen a packet are shown too; of what is built in (malformed frames, ARP,
neighbour discovery, path MTU, DHCP) only what has. --json shows everything.

At tc a packet that the kernel has merged (GRO), or has not cut yet (GSO), counts as one, with the
bytes on the wire of all that it stands for. Limits charge each of those.

--diff shows what a shadow (levee up --shadow) would have done: for each pair of a rule in force and
a rule of the shadow the verdicts and the packets, those that differ first, and then samples of the
flows that differ.

--watch shows it again and again, --interval apart, with packets and bits a second by rule since
the time before, until Ctrl-C. With --json it prints an object a line.`

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

// statusReport is the object of `levee status --json`.
type statusReport struct {
	Interfaces []statusInterface `json:"interfaces"`
	Kept       []statusKept      `json:"kept"` // policies that are bound to names
}

// statusKept is a policy that is bound to names.
type statusKept struct {
	Names   []string  `json:"names"`
	Policy  cli.Shown `json:"policy"`
	Pid     int       `json:"pid"`     // of the process that keeps it
	Running bool      `json:"running"` // that process lives
	Waiting []string  `json:"waiting"` // names that no interface has
}

type statusInterface struct {
	Dev     string `json:"dev"`
	Ifindex int    `json:"ifindex"`
	// the interfaces that have the policy together with it, and itself; [] for one alone
	Together     []string      `json:"together"`
	Netns        uint64        `json:"netns"` // cookie of the network namespace
	Policy       cli.Shown     `json:"policy"`
	Hash         string        `json:"hash"` // SHA-256 of its text
	Hook         string        `json:"hook"`
	Reason       string        `json:"reason"` // why this hook
	Since        time.Time     `json:"since"`
	Generation   int           `json:"generation"`
	TrialSeconds float64       `json:"trial_seconds"` // left to confirm; 0: not on trial
	Judging      statusJudging `json:"judging"`
	// rules that the agent has added
	Live       *dataplane.LiveRules `json:"live,omitempty"`
	RolledBack *statusBack          `json:"rolled_back,omitempty"`
	// why only the fallback of the policy is in force
	OnError string `json:"on_error,omitempty"`
	// why this policy, which was in force before, is so again in place of another
	Instead string `json:"instead,omitempty"`
	// files of the policy that hold something else than when it was put in force, or are gone
	Changed []cli.Shown           `json:"changed"`
	Program dataplane.ProgramInfo `json:"program"`
	Rules   []statusRule          `json:"rules"`
	Sets    []statusSet           `json:"sets"`
	state.Memories
	// the policy beside it, where there is one
	Shadow *statusShadow `json:"shadow,omitempty"`
	// when limits, connections, cookies, fragments, diverted and shadow were read, if not now
	Told time.Time `json:"told,omitzero"`
	// the interface that tells of the memories that this one shares with it
	SharedWith string `json:"shared_with,omitempty"`
}

// statusJudging is whether the packets of an interface come to its policy.
type statusJudging struct {
	State    string   `json:"state"`                  // not yet, seen, still or partly
	Seconds  *float64 `json:"seen_seconds,omitempty"` // since a packet was last seen to be judged
	Unjudged uint64   `json:"unjudged"`               // packets that came while it stands still
	Amiss    []string `json:"amiss"`                  // settings by which it judges wrongly
	// the largest MTU that the driver takes while the program is attached, where one is known
	LargestMTU int    `json:"largest_mtu,omitempty"`
	why        string // "" if nothing is wrong
	doubt      bool
}

func newStatusJudging(j *dataplane.Judging) statusJudging {
	s := statusJudging{State: string(j.State), Unjudged: j.Past, Amiss: []string{},
		LargestMTU: j.LargestMTU, why: j.Why(), doubt: j.Doubt}
	if j.State != dataplane.NotYet {
		ago := j.Ago.Seconds()
		s.Seconds = &ago
	}
	s.Amiss = append(s.Amiss, j.Amiss...)
	return s
}

// print says it, and what mends what is wrong.
func (s *statusJudging) print(w io.Writer, dev string) {
	switch {
	case s.why != "":
		fmt.Fprintf(w, "  error    %s; levee up FILE --dev %s takes another hook, or another "+
			"program\n", s.why, dev)
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

// failing reports whether packets of an interface come past its policy.
func (r *statusReport) failing() bool {
	return slices.ContainsFunc(r.Interfaces,
		func(s statusInterface) bool { return s.Judging.why != "" })
}

// statusBack is a policy that was not confirmed in time.
type statusBack struct {
	Policy     cli.Shown `json:"policy"`
	Generation int       `json:"generation"`
	Deadline   time.Time `json:"deadline"`
}

// statusRule is one counter; bytes are of whole frames without FCS.
type statusRule struct {
	Label   string      `json:"label"`
	Line    int         `json:"line"` // 0 for what is built in
	Packets uint64      `json:"packets"`
	Bytes   uint64      `json:"bytes"`
	Verdict string      `json:"verdict"` // pass, drop or count
	Reason  string      `json:"reason"`
	Rule    cli.Shown   `json:"rule"`
	Text    string      `json:"text"`
	CPUs    []statusCPU `json:"cpus"` // by CPU, up to the last that counted anything
	// since the time before, with --watch; none the first time that the rule is seen
	PacketsPerSecond *float64 `json:"packets_per_second,omitempty"`
	BitsPerSecond    *float64 `json:"bits_per_second,omitempty"`

	id string // across replaces
}

type statusCPU struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

type statusSet struct {
	Name         string  `json:"name"`
	Entries      int     `json:"entries"`
	Max          int     `json:"max"`
	LeaseSeconds float64 `json:"lease_seconds"` // 0: until deleted
	Refused      uint64  `json:"refused"`       // entries not taken because the set was full
	RollUp       bool    `json:"rollup"`
	Keep         bool    `json:"keep"` // entries outlive a reboot
	Type         string  `json:"type"` // of the entries: addresses, services or endpoints
}

func (e *env) status(f *statusFlags) error {
	rep, err := e.readStatus(f)
	if err != nil {
		return err
	}
	for i := range rep.Interfaces {
		s := &rep.Interfaces[i]
		if !s.Judging.doubt {
			continue
		}
		looked, err := dataplane.Compare(context.Background(), s.Dev)
		if err != nil {
			return err
		}
		looked.Amiss = s.Judging.Amiss
		s.Judging = newStatusJudging(looked)
	}
	if f.json {
		err = e.PrintJSON(rep)
	} else {
		e.printStatuses(e.Stdout, rep, f)
	}
	if err == nil && rep.failing() {
		err = cli.ErrNo
	}
	return err
}

// readStatus is what runs where now.
func (e *env) readStatus(f *statusFlags) (*statusReport, error) {
	rep, notes, err := lookAtStatus(f)
	e.notes(notes)
	return rep, err
}

// lookAtStatus is what runs where now, and what somebody may want to know of it besides.
func lookAtStatus(f *statusFlags) (*statusReport, []string, error) {
	all, notes, err := dataplane.Status(context.Background(), f.all)
	if err != nil {
		return nil, nil, err
	}
	kept, err := dataplane.Keeping(context.Background())
	if err != nil {
		return nil, notes, err
	}
	rep := &statusReport{Interfaces: []statusInterface{}, Kept: []statusKept{}}
	for _, k := range kept {
		s := statusKept{k.Names, cli.Shown(k.Policy), k.Pid, k.Running, k.Waiting}
		if s.Waiting == nil {
			s.Waiting = []string{}
		}
		rep.Kept = append(rep.Kept, s)
	}
	for i := range all {
		if f.dev == "" || all[i].Dev == f.dev {
			s := newStatusInterface(&all[i])
			if all[i].Together != "" {
				s.Together = dataplane.Others(all, all[i].Dev)
			}
			rep.Interfaces = append(rep.Interfaces, s)
		}
	}
	if f.dev != "" && len(rep.Interfaces) == 0 && !rep.waits(f.dev) {
		if err := dataplane.Exists(f.dev); err != nil {
			return nil, notes, err
		}
		return nil, notes, fmt.Errorf("levee has no policy on %s in this network namespace", f.dev)
	}
	return rep, notes, nil
}

func (e *env) printStatuses(w io.Writer, rep *statusReport, f *statusFlags) {
	if len(rep.Interfaces) == 0 {
		fmt.Fprintln(w, "no interface has a policy")
	}
	for i := range rep.Interfaces {
		if i > 0 {
			fmt.Fprintln(w)
		}
		e.printStatus(w, &rep.Interfaces[i], f)
	}
	for i := range rep.Kept {
		e.printKept(w, &rep.Kept[i])
	}
}

func (e *env) printKept(w io.Writer, k *statusKept) {
	state := fmt.Sprintf("by process %d", k.Pid)
	if !k.Running {
		state = fmt.Sprintf("but process %d has ended: start `levee up --keep` again", k.Pid)
	}
	if len(k.Waiting) > 0 {
		state = "waiting for " + strings.Join(k.Waiting, ", ") + ", " + state
	}
	fmt.Fprintf(w, "%s: %s is kept, %s\n", strings.Join(k.Names, ", "),
		syntax.Base(string(k.Policy)), state)
}

// waits reports whether a policy is kept for an interface that is not there.
func (r *statusReport) waits(dev string) bool {
	return slices.ContainsFunc(r.Kept, func(k statusKept) bool {
		return slices.Contains(k.Waiting, dev)
	})
}

func newStatusInterface(a *dataplane.Attachment) statusInterface {
	s := statusInterface{
		Dev: a.Dev, Ifindex: a.Ifindex, Netns: a.Netns, Policy: cli.Shown(a.Policy), Hash: a.Hash,
		Hook: string(a.Mode), Reason: a.Reason, Since: a.Since, Generation: a.Generation,
		TrialSeconds: a.Trial.Seconds(), Live: a.Live, OnError: a.OnError, Instead: a.Instead,
		Changed: changedSince(a), Program: a.Program, Judging: newStatusJudging(a.Judging),
		Together: []string{}, Rules: []statusRule{}, Sets: []statusSet{}, Memories: a.Memories,
		Told: a.Told, SharedWith: a.SharedWith,
	}
	if rb := a.RolledBack; rb != nil {
		s.RolledBack = &statusBack{cli.Shown(rb.Policy), rb.Generation, rb.Deadline}
	}
	for _, c := range a.Counters {
		r := statusRule{
			Label: c.Label, Line: c.Line, Packets: c.Packets, Bytes: c.Bytes,
			Verdict: c.Action, Reason: c.Reason, Rule: cli.Shown(c.Rule), Text: c.Text,
			CPUs: []statusCPU{},
			id:   c.ID,
		}
		for _, cpu := range c.CPUs {
			r.CPUs = append(r.CPUs, statusCPU(cpu))
		}
		s.Rules = append(s.Rules, r)
	}
	if s.Limits == nil {
		s.Limits = []state.Budgets{}
	}
	s.Shadow = newStatusShadow(a.Shadow)
	for _, set := range a.Sets {
		s.Sets = append(s.Sets, statusSet{set.Name, set.Entries, set.Max, set.Lease.Seconds(),
			set.Refused, set.RollUp, set.Keep, set.EntryType().String()})
	}
	return s
}

func (e *env) printStatus(w io.Writer, s *statusInterface, f *statusFlags) {
	where := s.Dev
	if f.all {
		where += fmt.Sprintf(" (network namespace %d)", s.Netns)
	}
	// the clock may have been set back
	fmt.Fprintf(w, "%s: %s, %s, for %s\n", where, syntax.Base(string(s.Policy)), s.Hook,
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
	s.Judging.print(w, s.Dev)
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
		fmt.Fprintf(w, "  live     %s of the agent, for %s unless it renews them; levee agent "+
			"incidents tells why\n", cli.Plural(len(s.Live.Rules), "rule"),
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
	if len(s.Changed) > 0 {
		var files []string
		for _, f := range s.Changed {
			files = append(files, string(f))
		}
		fmt.Fprintf(w, "  changed  %s, since it was put in force\n", strings.Join(files, ", "))
	}
	fmt.Fprintln(w)
	rules := cli.NewTable("PACKETS BYTES VERDICT RULE LABEL MATCH", ">", ">", "<", "<", "<", "<")
	if f.watch {
		rules = cli.NewTable("PACKETS BYTES PACKETS/S BIT/S VERDICT RULE LABEL MATCH", ">", ">",
			">", ">", "<", "<", "<", "<")
	}
	for _, r := range s.Rules {
		switch {
		case r.Line == 0 && r.Packets == 0 && r.Reason != "default":
		case f.watch:
			rules.Row(r.Packets, r.Bytes, shortRate(r.PacketsPerSecond), shortRate(r.BitsPerSecond),
				r.Verdict, r.Rule, r.Label, r.Text)
		default:
			rules.Row(r.Packets, r.Bytes, r.Verdict, r.Rule, r.Label, r.Text)
		}
	}
	rules.Print(w, "  ")
	printLimits(w, s.Limits)
	if len(s.Sets) == 0 {
		return
	}
	fmt.Fprintln(w)
	sets := cli.NewTable("SET ENTRIES MAX REFUSED LEASE", "<", ">", ">", ">", ">")
	for _, set := range s.Sets {
		lease := "until deleted"
		if set.LeaseSeconds > 0 {
			lease = cli.FormatLease(time.Duration(set.LeaseSeconds * float64(time.Second)))
		}
		sets.Row(set.Name, set.Entries, set.Max, set.Refused, lease)
	}
	sets.Print(w, "  ")
}

// printLimits prints how full the memories of limits are.
func printLimits(w io.Writer, limits []state.Budgets) {
	if len(limits) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := cli.NewTable("LIMIT LABEL LIVE SLOTS EVICTED INHERITED CONTENDED",
		"<", "<", ">", ">", ">", ">", ">")
	for _, l := range limits {
		debt := "-"
		if d := l.Inherited(); d > 0 {
			debt = d.String()
		}
		t.Row(l.Rule, l.Label, l.Live, l.Slots, l.Evicted, debt, l.Contended)
	}
	t.Print(w, "  ")
}
