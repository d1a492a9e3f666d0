package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/defend"
	"levee/internal/agent/enforce"
	agentlive "levee/internal/agent/live"
	"levee/internal/agent/notify"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/host/access"
	"levee/internal/host/local"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
)

const agentLong = `Turn events that other programs write into leased entries of dynamic sets, as "source"
statements of a policy say, and floods into rules, as "detect" statements say, and see to it that
the kernel holds them. Without a command below it runs, as "levee agent run" does.`

func newAgent(e *env) *cobra.Command {
	cmd := cli.Noun("agent COMMAND", "Turn events into entries of dynamic sets", agentLong,
		`  sudo levee agent run
  sudo levee agent status
  sudo levee agent withdraw --origin ids 203.0.113.9`,
		newAgentRun(e), newAgentStatus(e), newAgentList(e), newAgentLease(e), newAgentWithdraw(e),
		newAgentDiff(e),
		newAgentAccept(e), newAgentToken(e), newAgentNotify(e),
		newAgentIncidents(e), newAgentUndo(e), newAgentApply(e))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return e.agent(nil, &agentFlags{interval: "10s"})
		}
		return cli.GroupRun(cmd, args)
	}
	return cmd
}

type agentFlags struct {
	interval  string
	fromStart bool
	listen    listenFlags
}

func newAgentRun(e *env) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "run [FILE...]",
		Short: "Follow the sources of the policies in force, or of files",
		Long: `Follow the sources of the policies in force in this network namespace, or of FILE, until a
signal. Entries go into each dynamic set in force that has the name. Leases, and up to where each
file was read, are in /var/lib/levee/agent.db before they are in the kernel, so that a process that
is killed loses nothing and repeats nothing.

No entry may hold an address that a protect rule names, one of this machine, or one from which
somebody is logged in: such an event is refused, and told. What the kernel lacks is put back every
--interval; what others have put into a set stays. SIGHUP reads the policies anew, and so does
another policy in force. systemd is told when it has started.`,
		Example: `  sudo levee agent run
  sudo levee agent run /etc/levee/eth0.levee --from-start`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := cli.ParseDuration(f.interval); err != nil {
				return cli.Usagef(cmd, "--interval: %v", err)
			}
			if err := f.listen.check(cmd); err != nil {
				return err
			}
			return e.agent(args, &f)
		},
	}
	f.listen.add(cmd)
	cmd.Flags().StringVar(&f.interval, "interval", "10s",
		"how often the kernel is compared with the ledger; seldomer where that takes long")
	cmd.Flags().BoolVar(&f.fromStart, "from-start", false,
		"read a file that is followed for the first time from its beginning")
	return cmd
}

// agentLedger is the file of leases.
func agentLedger() string { return agentFile("agent.db") }

// agentFile is a file of the agent's.
func agentFile(name string) string {
	dir := os.Getenv(dataplane.LibEnv)
	if dir == "" {
		dir = "/var/lib/levee"
	}
	return filepath.Join(dir, name)
}

func (e *env) agent(files []string, f *agentFlags) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	interval, err := cli.ParseDuration(f.interval)
	if err != nil {
		return err
	}
	// Not e.signals: SIGHUP reads the policies anew.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tokens := api.OpenTokens(agentFile("api-tokens.json"))
	listen, err := e.listens(&f.listen, tokens)
	if err != nil {
		return err
	}
	// Before anything else: of agents that start at once, one goes on.
	if err := listen[0].Try(); errors.Is(err, api.ErrRunning) {
		return err
	}
	reload := make(chan struct{}, 1)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go func() {
		for range hup {
			select {
			case reload <- struct{}{}:
			default: // one is on its way
			}
		}
	}()
	events := &agentlive.Hub{}
	parts := agent.NewParts(events, e.Sayf)
	alarms := make(chan string, 64)
	alarm := func(text string) {
		select {
		case alarms <- text:
		default:
			e.Sayf("alarm: %s", text)
		}
	}
	auditFile := agentFile("api-audit.jsonl")
	audited := parts.Begin(part.File, auditFile, "")
	audit := api.OpenAudit(auditFile, func(err error) {
		_ = audited.Did(part.Do(err, access.Write(auditFile, err)))
	})
	defer audit.Close()
	sight := &defend.Sight{}
	kept := e.openHistory(parts, sight, alarm)
	defer kept.stop()
	p := &agentPolicies{env: e, files: files}
	floods := e.defender(kept.sampled, sight, events, parts, alarm)
	defer e.defend(ctx, stop, floods)()
	return agent.Run(ctx, agent.Options{
		Policies: p.read, InForce: p.inForce, Instead: p.isInstead, Others: p.others,
		Kernel: &enforce.Kernel{},
		Ledger: agentLedger(), Listen: listen, Tokens: tokens, Audit: audit, Version: cli.Version,
		Routes:   append(agentRoutes(floods), kept.routes()...),
		Notifier: notify.New(notifyFile(), parts),
		Metrics:  agentMetrics(floods.Incidents), Live: events, Parts: parts, Alarms: alarms,
		FromStart: f.fromStart, Interval: interval,
		Notify: notifySystemd, Watchdog: watchdog(), Log: e.Sayf,
	}, reload)
}

// watchdog is how often the service manager wants to hear of the agent (sd_watchdog_enabled(3)).
func watchdog() time.Duration {
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 63)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// agentPolicies are what an agent follows and whom it keeps.
type agentPolicies struct {
	*env
	files []string
	devs  []string
	// why something else is in force on some interfaces than the policy that should be
	instead error
}

func (p *agentPolicies) isInstead() error { return p.instead }

// inForce tells one state of what is in force from another.
func (p *agentPolicies) inForce(ctx context.Context) (string, error) {
	all, err := dataplane.InForceHere(ctx)
	p.devs = nil
	for _, s := range all {
		p.devs = append(p.devs, s.Dev)
	}
	return fmt.Sprint(all), err
}

// read reads the policies of files and of interfaces. Those that cannot be read are left out, and
// are an error beside the others.
func (p *agentPolicies) read(ctx context.Context) (out []*policy.Policy, err error) {
	for _, file := range p.files {
		pr, failed := p.Parse(file)
		switch {
		case failed != nil:
			err = errors.Join(err, failed)
		case pr.Policy == nil:
			err = errors.Join(err, part.Do(fmt.Errorf("%s has mistakes, the first is: %s", file,
				pr.Diags[0].Message), "levee check "+file))
		default:
			out = append(out, pr.Policy)
		}
	}
	p.instead = nil
	for _, dev := range p.devs { // also beside files: whom they protect is kept
		p.instead = errors.Join(p.instead, insteadOn(ctx, dev))
		pol, failed := p.policyOn(ctx, dev)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", dev, failed))
			continue
		}
		if len(p.files) > 0 {
			pol.Sources, pol.Lists = nil, nil
		}
		out = append(out, pol)
	}
	return out, err
}

// insteadOn is an error where something else is in force on an interface than the policy that
// should be.
func insteadOn(ctx context.Context, dev string) error {
	shown, _, err := dataplane.Show(ctx, dev)
	switch {
	case err != nil: // which is told when the policy is read
		return nil
	case shown.OnError != "":
		err = fmt.Errorf("on %s only what \"on error\" says is in force: %s", dev, shown.OnError)
	case shown.Instead != "":
		err = fmt.Errorf("on %s a policy that was in force before stands in for another: %s", dev,
			shown.Instead)
	default:
		return nil
	}
	return part.Do(err, "mend what it says, then levee up "+shown.Path+" --dev "+dev)
}

// others are the destinations of this machine, and the addresses from which somebody has logged in.
func (p *agentPolicies) others(context.Context) (map[netip.Prefix]string, error) {
	out := map[netip.Prefix]string{}
	self, err := local.Prefixes()
	for _, to := range self {
		if to.Bits() > 0 { // a route for everybody, as of a proxy, keeps nobody
			out[to] = "an address of this machine"
		}
	}
	in, lerr := session.LoggedIn()
	for a, what := range in {
		out[netip.PrefixFrom(a, a.BitLen())] = what + " comes from there"
	}
	return out, errors.Join(err, lerr)
}
