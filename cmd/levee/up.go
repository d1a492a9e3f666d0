package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"levee/internal/agent/defend"
	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/region"
	"levee/internal/lang/action"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/setfile"
	"levee/internal/quantity"
	"levee/internal/question"
)

const upLong = `Compile a policy and put it into force on an interface, or replace the one in
force there in one step: no packet is judged by half a policy, counters survive by rule, dynamic
sets keep their entries. The program stays when this command ends.

The hook is native XDP where the driver has it, else tc ingress, else generic XDP; --mode forces
one. Programs are at tc ingress by TCX from Linux 6.6 on; before it by a filter of tc (clsact).
The choice and its reason are printed. Another XDP program on the interface is never replaced.
Where packets begin with the IP header (WireGuard, tun, GRE, IPIP, PPP) the policy is compiled for
that; one that asks for Ethernet addresses, EtherTypes or VLANs is an error there.

A policy that could drop a packet of an established SSH session of this machine, or of the TCP
connection over which the command is being run, is refused, with the rule that would do it and the
packet. So is one that drops the ARP or neighbour discovery without which such a session ends.
What dynamic sets hold now is taken into account. --force overrides. Where a session goes on and the
policy drops the first packet of another like it, or the answer to that, so that nobody can log in
again, a warning says so.

If the machine cannot load or attach a policy that says "on error pass" or "on error drop", its
protect rules, the essential rules and that default are put in force instead, in the same way, and
the exit status is 3. Without it the policy before stays.

With --or-last the policy that was in force last on the interface (see "levee rollback") is put
there where FILE cannot be: it cannot be read, has errors, would cut a session, or the machine
refuses it. Where none was, what "on error" says is, also if FILE has errors elsewhere. The exit
status is 0 when any of these is in force; "levee status" says which. What begins at boot does so.
A FILE that was on trial and that nobody confirmed is not put in force so; where nothing was in
force before it, nothing is. A trial that goes on is left alone, unless --keep is given.

With --keep the policy is bound to the names: the command keeps running, and gives the policy to
each interface of these names that comes, or comes back, with the entries of its dynamic sets. A
name may have no interface yet. SIGTERM ends the command and leaves the policy in force;
` + "`levee down`" + ` ends both. systemd is told when the policy is in force.

With --shadow the policy judges the packets of an interface beside the one in force, and changes
nothing: ` + "`levee status --diff`" + ` tells what it would have done otherwise, by rule and by
flow. Its limits, connections and fragments have memories of their own, its cookies answer nobody,
its logs tell of nothing. It stays when the policy in force is replaced. It ends with
` + "`levee down --shadow`" + `, with the policy in force, and with ` + "`levee up`" + ` of its own
file, whose rules go on with what they have counted.

Live rules of the agent go on in the policy that takes the place of another, from its first packet
on. Those that do not fit it, or whose detector is gone, end, and are named. A policy on trial is
without them.

Where another policy was in force, the packets that are decided otherwise now are told in short;
--dry-run tells only that, and changes nothing ("levee diff" has the whole).

With --confirm the policy is on trial: the command waits, and unless ` + "`levee confirm`" + ` comes
in time, from wherever you can still reach the machine, the kernel itself goes back to the policy
before, also if this command is killed. Ctrl-C goes back at once. Exit status 0 means confirmed, 1
means that the old policy is back.`

const upExample = `  sudo levee up edge.levee --dev eth0
  sudo levee up edge.levee --dev eth0 --confirm 60s    # then, over a new connection: sudo levee confirm
  sudo levee up edge.levee --dev eth0 --mode xdp-generic
  sudo levee up edge.levee --dev ppp0 --keep
  sudo levee up --shadow stricter.levee --dev eth0     # then: levee status --diff`

type upFlags struct {
	devs    []string
	mode    string
	confirm string
	force   bool
	keep    bool
	orLast  bool
	shadow  bool
	dryRun  bool
	json    bool
}

func newUp(e *env) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:     "up FILE [--dev IF]",
		Short:   "Put a policy into force on an interface, or replace the one there",
		Long:    upLong,
		Example: upExample,
		Args:    cli.WantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.up(cmd, args[0], &f)
		},
	}
	cmd.Flags().StringArrayVar(&f.devs, "dev", nil, "the interface, or a pattern as eth*; may be "+
		"repeated (default: what the policy says after interface)")
	cli.NoService(cmd, "levee wrap puts its policy in force; in the place of a trial or a shadow "+
		"write count for drop")
	cmd.Flags().StringVar(&f.mode, "mode", string(store.Auto),
		"auto, xdp-native, tcx, clsact or xdp-generic")
	cmd.Flags().StringVar(&f.confirm, "confirm", "",
		"on trial for this time, 100ms to 7d: 30s, 5m; go back unless levee confirm comes")
	cmd.Flags().BoolVar(&f.keep, "keep", false,
		"bind the policy to the names: keep running, and give it to interfaces that come")
	cmd.Flags().BoolVar(&f.orLast, "or-last", false,
		"put the policy that was in force last there if FILE cannot be, else what on error says")
	cmd.Flags().BoolVar(&f.force, "force", false,
		"also if the policy drops an SSH session of this machine")
	cmd.Flags().BoolVar(&f.shadow, "shadow", false,
		"judge packets beside the policy in force, without any effect, and count what differs")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false,
		"only tell which packets would be decided otherwise than now")
	cli.JsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) up(cmd *cobra.Command, file string, f *upFlags) error {
	mode, err := store.ParseMode(f.mode)
	if err != nil {
		return cli.Usagef(cmd, "--mode: %v", err)
	}
	trial, err := trialTime(cmd, f.confirm)
	if err != nil {
		return err
	}
	if f.shadow && (f.keep || f.force || f.orLast || trial > 0 || mode != store.Auto) {
		return cli.Usagef(cmd,
			"--shadow takes no --keep, --or-last, --confirm, --mode or --force: it "+
				"runs where the policy in force does, and drops nothing")
	}
	if f.dryRun && (f.shadow || f.keep || f.orLast || trial > 0) {
		return cli.Usagef(cmd,
			"--dry-run puts nothing in force: it takes no --shadow, --keep, --or-last or --confirm")
	}
	if f.orLast && trial > 0 {
		return cli.Usagef(cmd,
			"--or-last and --confirm exclude each other: what comes back after a "+
				"trial is the policy before it")
	}
	if f.keep && trial > 0 {
		return cli.Usagef(cmd, "--keep and --confirm exclude each other: confirm first, then keep")
	}
	b := &bringing{file: file, flags: f, opts: dataplane.UpOptions{Mode: mode, Confirm: trial}}
	if err := e.read(b); err != nil {
		return err
	}
	names := f.devs
	if len(names) == 0 && b.policy() != nil {
		names = b.policy().Interfaces
	}
	if len(names) == 0 {
		return cli.Usagef(cmd, "no interface: use --dev, or `interface NAME` in the policy")
	}
	if err := e.Privileged(); err != nil {
		return err
	}
	for i, name := range names {
		names[i] = dataplane.TrueName(name)
	}
	devs, err := e.interfaces(names, f.keep)
	if err != nil {
		return err
	}
	b.opts.Names = names
	if f.dryRun {
		return question.DryRun(e.Env, b.policy(), devs, f.json)
	}
	if f.shadow {
		return e.upShadow(b.parsed, devs, b.opts, f)
	}
	if err := e.prepare(b, devs); err != nil {
		return err
	}
	then := ""
	if trial > 0 {
		then = "; the time to confirm begins when it is back"
	}
	b.opts.Before = e.interrupts(then)
	if f.keep {
		return e.keep(b)
	}
	if f.orLast {
		if on := onTrial(devs); on != "" {
			e.Sayf("a policy is on trial on %s; %s is not put there meanwhile", on, b.name())
			return nil
		}
	}
	return e.bringUp(b, devs)
}

// interrupts returns a function that announces how an interface is interrupted, and what follows.
func (e *env) interrupts(then string) func(what string) {
	return func(what string) { e.Sayf("%s%s", what, then) }
}

// bringing is a policy on its way to be in force.
type bringing struct {
	file   string
	flags  *upFlags
	opts   dataplane.UpOptions
	parsed *cli.Parsed // nil: the file cannot be read
	// why it cannot be in force, and something else is to be (--or-last)
	unusable      error
	nothingBefore bool         // no policy that was in force stands in for it
	changes       *region.Told // against the policy before, nil if there was none
}

// policy returns nil where it has errors.
func (b *bringing) policy() *policy.Policy {
	if b.parsed == nil {
		return nil
	}
	return b.parsed.Policy
}

// name returns the policy as messages call it.
func (b *bringing) name() string {
	if p := b.policy(); p != nil {
		return p.File
	}
	return diag.Base(b.opts.PolicyPath)
}

// compiler returns what compiles it.
func (b *bringing) compiler() dataplane.CompileFunc {
	if b.unusable != nil {
		return dataplane.Unusable(b.unusable)
	}
	return dataplane.Compiler(b.policy())
}

// read reads the policy, and prints what is wrong with it. That is an error, unless something else
// is to be in force then.
func (e *env) read(b *bringing) error {
	var files setfile.Recording
	b.opts.PolicyPath = absolute(&cli.Source{Path: b.file})
	pr, err := e.ParseThrough(b.file, &files)
	if err != nil {
		b.unusable = err
	} else {
		e.PrintDiagnostics(pr.Diags)
		b.parsed, b.opts.Source, b.opts.Files = pr, pr.Src.Text, files.Files()
		if pr.Policy == nil {
			err, b.unusable = cli.ErrNo, pr.Diags.Err()
		}
	}
	if b.flags.orLast {
		return nil
	}
	return err
}

// prepare returns an error for a policy that one of the interfaces cannot have, or may not, unless
// something else is to be in force then.
func (e *env) prepare(b *bringing, devs []string) error {
	if b.unusable == nil && b.flags.orLast {
		b.unusable = e.unconfirmed(b, devs)
	}
	if b.unusable == nil {
		err := e.allowed(b, devs)
		if err != nil && !b.flags.orLast {
			return err
		}
		if b.unusable = err; errors.Is(err, cli.ErrNo) { // which has been printed
			b.unusable = errors.New("it asks packets of the interface for what they lack")
		}
	}
	if p := b.policy(); p != nil {
		b.opts.Carry = defend.Carry(p, e.gate().Live, b.flags.force)
	}
	if b.flags.orLast {
		e.orLast(b, devs)
	}
	return nil
}

// allowed returns an error for a policy that one of the interfaces cannot have, or may not; it adds
// what may be put in force instead.
func (e *env) allowed(b *bringing, devs []string) (err error) {
	for _, dev := range devs {
		if err := e.linkFor(b.parsed, dev); err != nil {
			return err
		}
	}
	ctx, stop := e.Signals()
	defer stop()
	b.opts.Fallbacks, err = e.gate().Allowed(ctx, b.policy(), devs, b.flags.force)
	return err
}

// readAnew reads the policy of a keeper again, for an interface that has come.
func (e *env) readAnew(b *bringing, dev string) (dataplane.UpOptions, dataplane.CompileFunc,
	error) {
	if b.file == cli.StdinName {
		return b.opts, nil, errors.New("standard input has been read already")
	}
	again := *b
	again.unusable = nil
	err := e.read(&again)
	if errors.Is(err, cli.ErrNo) {
		err = fmt.Errorf("%s has errors", again.parsed.Src.Title())
	}
	if err != nil {
		return b.opts, nil, err
	}
	err = e.prepare(&again, []string{dev})
	return again.opts, again.compiler(), err
}

// absolute returns the policy's path as status shows it, from whatever directory that is asked.
func absolute(s *cli.Source) string {
	if s.Path != cli.StdinName {
		if abs, err := filepath.Abs(s.Path); err == nil {
			return diag.Quoted(abs)
		}
	}
	return s.Title()
}

func (e *env) bringUp(b *bringing, devs []string) error {
	ctx, stop := e.Signals()
	defer stop()
	b.changes = question.Changes(ctx, devs[0], b.policy()) // the others have the same one, mostly
	reps, err := dataplane.UpAll(ctx, devs, b.opts, b.compiler())
	if len(reps) == 0 {
		switch {
		case err == nil:
			err = errors.New("nothing was done")
		case b.nothingBefore && errors.Is(err, errUnconfirmed):
			e.Sayf("%v; no policy is kept that was in force on %s before, and none is put there",
				b.unusable, strings.Join(devs, ", "))
			return nil
		}
		return err
	}
	e.notes(reps[0].Notes)
	if err != nil {
		e.Sayf("the policy is in force, but cleaning up failed: %v; the next levee command does it",
			err)
	}
	if b.flags.json {
		if err := e.printUpJSON(b.name(), reps); err != nil {
			return err
		}
	}
	for _, rep := range reps {
		if rep.Fallback == nil {
			e.tellUp(b, rep)
		}
	}
	if rep := reps[0]; rep.Fallback != nil {
		why := b.standIn(rep, devs)
		if b.flags.orLast {
			e.Sayf("%v", why)
			return nil
		}
		return cli.Refusedf("%w", why)
	}
	if reps[0].Trial == 0 {
		return nil
	}
	return e.awaitConfirm(ctx, reps, b.flags.confirm)
}

// tellUp prints what was done on an interface, and warnings about the policy there.
func (e *env) tellUp(b *bringing, rep *dataplane.Report) {
	p := b.policy()
	if !b.flags.json {
		e.printUp(p.File, rep, b.flags.confirm)
		if b.changes != nil && rep.Replaced != "" {
			question.PrintChanges(e.Stdout, "  changes   ", b.changes)
		}
	}
	if devs, mend := attach.Tagless(rep.Dev, rep.Mode); len(devs) > 0 {
		takes := strings.Join(devs, ", ") + " takes VLAN tags off frames before XDP sees them, so"
		if p.AsksTags() {
			ends := strings.Join(append(mend, fmt.Sprintf("or `levee down --dev %s`, and "+
				"`levee up` "+
				"without --mode takes tc", rep.Dev)), "; ")
			e.Sayf("%s vlan, inner-vlan and untagged do not see them either: %s", takes, ends)
		}
		if p.Has(action.Cookie) {
			e.Sayf("%s a cookie answers a tagged SYN without its tag, and who sent it never "+
				"connects: %s", takes, strings.Join(mend, "; "))
		}
	}
	if rep.Unheard != nil {
		e.Sayf("%v; if that has none, clients that are answered never connect: `levee "+
			"down --dev %s`, and the next `levee up` takes tc", rep.Unheard, rep.Dev)
	}
}

// printUpJSON prints the object of one interface, or a list of those of several.
func (e *env) printUpJSON(name string, reps []*dataplane.Report) error {
	if len(reps) == 1 {
		return e.PrintJSON(newUpReport(name, reps[0]))
	}
	all := make([]upReport, len(reps))
	for i, rep := range reps {
		all[i] = newUpReport(name, rep)
	}
	return e.PrintJSON(map[string]any{"interfaces": all})
}

// upReport is the object of `levee up --json`. It is printed when the policy is in force, before
// the wait for a trial's end; the exit status tells how that ended.
type upReport struct {
	Dev     string    `json:"dev"`
	Ifindex int       `json:"ifindex"`
	Policy  cli.Shown `json:"policy"`
	Hook    string    `json:"hook"`
	Reason  string    `json:"reason"` // why this hook
	// 1 for the first since the interface was attached
	Generation   int       `json:"generation"`
	Replaced     cli.Shown `json:"replaced,omitempty"` // the policy before
	Program      uint32    `json:"program"`            // id
	TrialSeconds float64   `json:"trial_seconds"`      // 0: in force at once
	Judging      string    `json:"judging"`            // as status has it: seen, not yet
	Connections  int       `json:"connections"`        // room for so many
	Live         int       `json:"live"`               // rules of the agent that go on in it
	// why only the fallback of the policy is in force
	OnError string `json:"on_error,omitempty"`
	// why the policy is in force in place of the one that was given: it was so before
	Instead string `json:"instead,omitempty"`
}

func newUpReport(name string, r *dataplane.Report) upReport {
	u := upReport{
		Dev: r.Dev, Ifindex: r.Ifindex, Policy: cli.Shown(name), Hook: string(r.Mode),
		Reason:     r.Reason,
		Generation: r.Generation, Replaced: cli.Shown(r.Replaced), Program: r.Program,
		TrialSeconds: r.Trial.Seconds(), Judging: string(r.Judging.State),
		Connections: int(r.Connections), Live: r.Live,
	}
	switch {
	case r.Past != nil:
		u.Policy, u.Instead = cli.Shown(r.Past.Name()), r.Fallback.Error()
	case r.Fallback != nil:
		u.OnError = r.Fallback.Error()
	}
	return u
}

// printUp says what was done; trial is --confirm as it was written.
func (e *env) printUp(name string, rep *dataplane.Report, trial string) {
	state := "in force"
	if rep.Trial > 0 {
		state = "on trial for " + trial
	}
	fmt.Fprintf(e.Stdout, "%s is %s on %s\n", name, state, rep.Dev)
	fmt.Fprintf(e.Stdout, "  hook      %s: %s\n", rep.Mode, rep.Reason)
	if rep.Replaced != "" {
		fmt.Fprintf(e.Stdout, "  replaced  %s, in one step\n", rep.Replaced)
	}
	if room := rep.Connections; room > 0 {
		fmt.Fprintf(e.Stdout, "  memory    for %d connections, %s\n", room,
			quantity.Print(float64(room.Bytes()), "bytes"))
	}
	if rep.Live > 0 {
		fmt.Fprintf(e.Stdout, "  live      %s, as before\n", cli.Plural(rep.Live, "rule"))
	}
	switch {
	case rep.Judging.Why() != "":
		e.Sayf("packets come past the policy on %s: `levee status --dev %[1]s` tells", rep.Dev)
	case rep.Judging.State == inspect.NotYet:
		fmt.Fprintf(e.Stdout, "  judging   not yet seen: no packet has come\n")
	default:
		fmt.Fprintf(e.Stdout, "  judging   seen\n")
	}
	fmt.Fprintf(e.Stdout, "  counters  levee status --dev %s\n", rep.Dev)
}
