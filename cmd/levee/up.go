package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/dataplane"
	"levee/internal/dataplane/guard"
	"levee/internal/host/session"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
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
What dynamic sets hold now is taken into account. --force overrides.

If the machine cannot load or attach a policy that says "on error pass" or "on error drop", its
protect rules, the essential rules and that default are put in force instead, in the same way, and
the exit status is 3. Without it the policy before stays.

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
	shadow  bool
	json    bool
}

func newUp(e *env) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:     "up FILE [--dev IF]",
		Short:   "Put a policy into force on an interface, or replace the one there",
		Long:    upLong,
		Example: upExample,
		Args:    wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.up(cmd, args[0], &f)
		},
	}
	cmd.Flags().StringArrayVar(&f.devs, "dev", nil, "the interface, or a pattern as eth*; may be "+
		"repeated (default: what the policy says after interface)")
	cmd.Flags().StringVar(&f.mode, "mode", string(dataplane.Auto),
		"auto, xdp-native, tcx, clsact or xdp-generic")
	cmd.Flags().StringVar(&f.confirm, "confirm", "",
		"on trial for this time, 100ms to 7d: 30s, 5m; go back unless levee confirm comes")
	cmd.Flags().BoolVar(&f.keep, "keep", false,
		"bind the policy to the names: keep running, and give it to interfaces that come")
	cmd.Flags().BoolVar(&f.force, "force", false,
		"also if the policy drops an SSH session of this machine")
	cmd.Flags().BoolVar(&f.shadow, "shadow", false,
		"judge packets beside the policy in force, without any effect, and count what differs")
	jsonFlag(cmd, &f.json)
	return cmd
}

func (e *env) up(cmd *cobra.Command, file string, f *upFlags) error {
	mode, err := dataplane.ParseMode(f.mode)
	if err != nil {
		return usagef(cmd, "--mode: %v", err)
	}
	var trial time.Duration
	if f.confirm != "" {
		if trial, err = parseDuration(f.confirm); err != nil {
			return usagef(cmd, "--confirm: %v", err)
		}
		if trial < dataplane.MinTrial || trial > dataplane.MaxTrial {
			return usagef(cmd, "--confirm %s: a trial lasts %s to %s", f.confirm,
				formatLease(dataplane.MinTrial), formatLease(dataplane.MaxTrial))
		}
	}
	if f.shadow && (f.keep || f.force || trial > 0 || mode != dataplane.Auto) {
		return usagef(cmd, "--shadow takes no --keep, --confirm, --mode or --force: it runs where "+
			"the policy in force does, and drops nothing")
	}
	if f.keep && trial > 0 {
		return usagef(cmd, "--keep and --confirm exclude each other: confirm first, then keep")
	}
	var files policy.Recording
	pr, err := e.parseThrough(file, &files)
	if err != nil {
		return err
	}
	e.printDiagnostics(pr.diags)
	p := pr.policy
	if p == nil {
		return errNo
	}
	names := f.devs
	if len(names) == 0 {
		names = p.Interfaces
	}
	if len(names) == 0 {
		return usagef(cmd, "no interface: use --dev, or `interface NAME` in the policy")
	}
	if err := e.privileged(); err != nil {
		return err
	}
	devs, err := e.interfaces(names, f.keep)
	if err != nil {
		return err
	}
	opts := dataplane.UpOptions{
		Names: names, Mode: mode, Confirm: trial,
		PolicyPath: absolute(pr.src), Source: pr.src.text, Files: files.Files(),
	}
	if f.shadow {
		return e.upShadow(pr, devs, opts, f)
	}
	if err := e.allowed(pr, devs, f.force, &opts); err != nil {
		return err
	}
	if f.keep {
		return e.keep(p, opts, f, func(dev string) (dataplane.UpOptions, dataplane.CompileFunc,
			error) {
			return e.readAnew(file, dev, opts, f.force)
		})
	}
	return e.bringUp(p, devs, opts, f)
}

// readAnew reads the policy of a keeper again, for an interface that has come.
func (e *env) readAnew(file, dev string, opts dataplane.UpOptions, force bool) (
	dataplane.UpOptions, dataplane.CompileFunc, error) {
	if file == stdinName {
		return opts, nil, errors.New("standard input has been read already")
	}
	var files policy.Recording
	pr, err := e.parseThrough(file, &files)
	if err != nil {
		return opts, nil, err
	}
	if pr.policy == nil {
		e.printDiagnostics(pr.diags)
		return opts, nil, fmt.Errorf("%s has errors", pr.src.title())
	}
	opts.Source, opts.Files = pr.src.text, files.Files()
	err = e.allowed(pr, []string{dev}, force, &opts)
	return opts, dataplane.Compiler(pr.policy), err
}

// allowed is an error for a policy that one of the interfaces cannot have, or may not; it adds what
// may be put in force instead.
func (e *env) allowed(pr *parsed, devs []string, force bool, opts *dataplane.UpOptions) error {
	p := pr.policy
	useFallbacks, plain := true, true
	for _, dev := range devs {
		link, err := e.linkFor(pr, dev)
		if err != nil {
			return err
		}
		var sessions []session.Session
		if !force {
			if sessions, err = e.sessions(dev); err != nil {
				e.sayf("cannot look for SSH sessions that the policy might cut: %v", err)
			}
		}
		var entries guard.Entries
		if len(sessions) > 0 {
			if entries, err = e.entries(dev, p); err != nil {
				e.sayf("cannot look into dynamic sets for SSH sessions that the policy might "+
					"cut: %v",
					err)
			}
		}
		if err := guard.Check(p, link, sessions, entries); err != nil {
			return fmt.Errorf("refused: %w, or use --force", err)
		}
		fallbacks, err := guard.Fallbacks(p, link, sessions, entries)
		if err != nil { // said at once, while somebody is there to read it
			e.sayf("what \"on error\" asks for will not be used: refused: %v, or use --force", err)
			useFallbacks = false
		}
		opts.Fallbacks = nil
		for _, fallback := range fallbacks {
			opts.Fallbacks = append(opts.Fallbacks, dataplane.Compiler(fallback))
		}
		plain = plain && guard.Plain(p, sessions)
	}
	if !useFallbacks {
		opts.Fallbacks = nil
	}
	if n := len(opts.Fallbacks); n > 0 && plain {
		opts.Fallbacks = append(opts.Fallbacks, dataplane.Plainly(opts.Fallbacks[n-1]))
	}
	return nil
}

// entries are what the dynamic sets of a policy will hold on dev: what is in those of the policy in
// force there that have their names.
func (e *env) entries(dev string, p *policy.Policy) (guard.Entries, error) {
	ctx, stop := e.signals()
	defer stop()
	out := guard.Entries{}
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		if s.Self {
			self, err := dataplane.SelfAddresses()
			if err != nil {
				return out, err
			}
			for _, a := range self {
				out[s.Name] = append(out[s.Name],
					policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
			continue
		}
		all, err := dataplane.SetEntries(ctx, dev, s.Name)
		if err != nil {
			return out, err
		}
		for i := range all {
			out[s.Name] = append(out[s.Name], all[i].Element())
		}
	}
	return out, nil
}

// absolute is the policy's path as status shows it, whatever directory that is asked from.
func absolute(s *source) string {
	if s.path != stdinName {
		if abs, err := filepath.Abs(s.path); err == nil {
			return syntax.Quoted(abs)
		}
	}
	return s.title()
}

func (e *env) bringUp(p *policy.Policy, devs []string, opts dataplane.UpOptions, f *upFlags) error {
	ctx, stop := e.signals()
	defer stop()
	reps, err := dataplane.UpAll(ctx, devs, opts, dataplane.Compiler(p))
	if len(reps) == 0 {
		if err == nil {
			err = errors.New("nothing was done")
		}
		return err
	}
	e.notes(reps[0].Notes)
	if err != nil {
		e.sayf("the policy is in force, but cleaning up failed: %v; the next levee command does it",
			err)
	}
	if f.json {
		if err := e.printUpJSON(p, reps); err != nil {
			return err
		}
	}
	for _, rep := range reps {
		if !f.json && rep.Fallback == nil {
			e.printUp(p, rep, f.confirm)
		}
		if !rep.Mode.AtTC() && p.AsksTags() && dataplane.TakesTagsOff(rep.Dev) {
			e.sayf("%s takes VLAN tags off frames before XDP sees them, so vlan, inner-vlan and "+
				"untagged do not see them either: ethtool -K %[1]s rxvlan off", rep.Dev)
		}
		if rep.Mode == dataplane.XDPNative && p.Has(action.Cookie) &&
			dataplane.TakesTagsOff(rep.Dev) {
			e.sayf("%s takes VLAN tags off frames before XDP sees them, so a cookie answers a "+
				"tagged SYN without its tag, and who sent it never connects: ethtool -K %[1]s "+
				"rxvlan off", rep.Dev)
		}
		if rep.Unheard != nil {
			e.sayf("%v; if that has none, clients that are answered never connect: `levee "+
				"down --dev %s`, and the next `levee up` takes tc", rep.Unheard, rep.Dev)
		}
	}
	if rep := reps[0]; rep.Fallback != nil {
		return refusedf("%s could not be put in force on %s (%w); its protect rules, the "+
			"essential rules and %q are, by \"on error\"", p.File, strings.Join(devs, ", "),
			rep.Fallback, "default "+p.Fallback(true).Default.Action.String())
	}
	if reps[0].Trial == 0 {
		return nil
	}
	return e.awaitConfirm(ctx, reps, f.confirm)
}

// printUpJSON prints the object of one interface, or a list of those of several.
func (e *env) printUpJSON(p *policy.Policy, reps []*dataplane.Report) error {
	if len(reps) == 1 {
		return e.printJSON(newUpReport(p, reps[0]))
	}
	all := make([]upReport, len(reps))
	for i, rep := range reps {
		all[i] = newUpReport(p, rep)
	}
	return e.printJSON(map[string]any{"interfaces": all})
}

// upReport is the object of `levee up --json`. It is printed when the policy is in force, before a
// trial's end is waited for; the exit status tells how that ended.
type upReport struct {
	Dev     string `json:"dev"`
	Ifindex int    `json:"ifindex"`
	Policy  shown  `json:"policy"`
	Hook    string `json:"hook"`
	Reason  string `json:"reason"` // why this hook
	// 1 for the first since the interface was attached
	Generation   int     `json:"generation"`
	Replaced     shown   `json:"replaced,omitempty"` // the policy before
	Program      uint32  `json:"program"`            // id
	TrialSeconds float64 `json:"trial_seconds"`      // 0: in force at once
	// why only the fallback of the policy is in force
	OnError string `json:"on_error,omitempty"`
}

func newUpReport(p *policy.Policy, r *dataplane.Report) upReport {
	onError := ""
	if r.Fallback != nil {
		onError = r.Fallback.Error()
	}
	return upReport{
		OnError: onError,
		Dev:     r.Dev, Ifindex: r.Ifindex, Policy: shown(p.File), Hook: string(r.Mode),
		Reason:     r.Reason,
		Generation: r.Generation, Replaced: shown(r.Replaced), Program: r.Program,
		TrialSeconds: r.Trial.Seconds(),
	}
}

// printUp says what was done; trial is --confirm as it was written.
func (e *env) printUp(p *policy.Policy, rep *dataplane.Report, trial string) {
	state := "in force"
	if rep.Trial > 0 {
		state = "on trial for " + trial
	}
	fmt.Fprintf(e.stdout, "%s is %s on %s\n", p.File, state, rep.Dev)
	fmt.Fprintf(e.stdout, "  hook      %s: %s\n", rep.Mode, rep.Reason)
	if rep.Replaced != "" {
		fmt.Fprintf(e.stdout, "  replaced  %s, in one step\n", rep.Replaced)
	}
	fmt.Fprintf(e.stdout, "  counters  levee status --dev %s\n", rep.Dev)
}

// awaitConfirm waits for the end of a trial, which is one on all interfaces.
func (e *env) awaitConfirm(ctx context.Context, reps []*dataplane.Report, trial string) error {
	rep, devs := reps[0], reps[0].Dev
	for _, r := range reps[1:] {
		devs += ", " + r.Dev
	}
	e.sayf("to keep it: levee confirm --dev %s; Ctrl-C goes back at once", rep.Dev)
	end := e.now().Add(rep.Trial)
	progress := e.progress()
	defer progress.clear()
	for {
		progress.printf("%s left to confirm", max(0, end.Sub(e.now())).Round(time.Second))
		look, cancel := context.WithTimeout(ctx, confirmLook)
		how, err := dataplane.WaitTrial(look, rep, confirmLook/4)
		cancel()
		switch {
		case ctx.Err() != nil:
			progress.clear()
			return e.rollBack(reps, devs)
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		progress.clear()
		switch how {
		case dataplane.Confirmed:
			e.sayf("confirmed, the policy stays on %s", devs)
			return nil
		case dataplane.Replaced:
			return fmt.Errorf("not confirmed: another policy has been put on %s meanwhile", devs)
		case dataplane.TakenDown:
			return fmt.Errorf("not confirmed: the policy has been taken off %s meanwhile", devs)
		}
		return fmt.Errorf("not confirmed within %s: %s before", trial, asWas(reps, devs))
	}
}

// asWas says of interfaces that nothing has changed.
func asWas(reps []*dataplane.Report, devs string) string {
	if len(reps) == 1 {
		return devs + " is as it was"
	}
	return devs + " are as they were"
}

// confirmLook is how often the waiting command looks up, and draws the time that is left.
const confirmLook = time.Second

// rollBack ends the trial now, after a signal.
func (e *env) rollBack(reps []*dataplane.Report, devs string) error {
	var failed error
	for _, rep := range reps {
		notes, err := dataplane.RollBack(context.Background(), rep.Dev, rep.Generation)
		failed = errors.Join(failed, err)
		e.notes(notes)
	}
	if failed != nil {
		return fmt.Errorf("interrupted, and going back at once failed; the kernel goes back by "+
			"itself within %s: %w", reps[0].Trial, failed)
	}
	return fmt.Errorf("interrupted: %s before", asWas(reps, devs))
}
