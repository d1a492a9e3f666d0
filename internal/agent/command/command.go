// Package command is the agent's commands: what they take and what they print. In go the
// environment of a process and what keeps policies out of force, out comes a cobra command. It must
// never decide what the agent decides, and asks the one that runs by its API.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"levee/internal/agent/channel"
	"levee/internal/agent/daemon"
	"levee/internal/agent/part"
	"levee/internal/cli"
	"levee/internal/dataplane/lockout"
	"levee/internal/host/systemd"
	"levee/internal/lang/policy"
)

const agentLong = `Turn events that other programs write into leased entries of dynamic sets, as "source"
statements of a policy say, and floods into rules, as "detect" statements say, and see to it that
the kernel holds them. Without a command below it runs, as "levee agent run" does.`

// env is the environment of the commands.
type env struct {
	*cli.Env
	gate func() *lockout.Gate
}

// New is `levee agent`. gate makes what keeps live rules out of force that would cut somebody off.
func New(in *cli.Env, gate func() *lockout.Gate) *cobra.Command {
	e := &env{in, gate}
	cmd := cli.Noun("agent COMMAND", "Turn events into entries of dynamic sets", agentLong,
		`  sudo levee agent run
  sudo levee agent status
  sudo levee agent withdraw --origin ids 203.0.113.9`,
		newAgentRun(e), newAgentStatus(e), newAgentList(e), newAgentLease(e), newAgentWithdraw(e),
		newAgentDiff(e),
		newAgentAccept(e), newAgentToken(e), newAgentNotify(e),
		newAgentIncidents(e), newAgentUndo(e), newAgentApply(e), newAgentRules(e))
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
	countries string
	mpegts    []string
	channels  []channel.Config
	listen    daemon.Listen
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
			var err error
			if f.channels, err = channel.Parse(f.mpegts); err != nil {
				return cli.Usagef(cmd, "--mpegts: %v", err)
			}
			if err := checkListen(cmd, &f.listen); err != nil {
				return err
			}
			return e.agent(args, &f)
		},
	}
	listenFlags(cmd, &f.listen)
	cmd.Flags().StringVar(&f.interval, "interval", "10s",
		"how often the kernel is compared with the ledger; less often where that takes long")
	cmd.Flags().StringVar(&f.countries, "countries", "",
		"a MaxMind DB file: the page says which countries the sources of a flood are in")
	cmd.Flags().StringSliceVar(&f.mpegts, "mpegts", nil, "alarms where transport streams to "+
		"`interface[=address:port]` have no signal, or packets missing")
	cmd.Flags().BoolVar(&f.fromStart, "from-start", false,
		"read a file that is followed for the first time from its beginning")
	return cmd
}

func (e *env) agent(files []string, f *agentFlags) error {
	if err := e.Privileged(); err != nil {
		return err
	}
	interval, err := cli.ParseDuration(f.interval)
	if err != nil {
		return err
	}
	// Not e.Signals: SIGHUP reads the policies anew.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
	return daemon.Run(ctx, daemon.Options{Files: files, Read: e.readForAgent, Gate: e.gate(),
		Listen: f.listen, Countries: f.countries, Channels: f.channels, FromStart: f.fromStart,
		Interval: interval,
		Version:  cli.Version,
		Notify:   systemd.Notify, Watchdog: systemd.Watchdog(), Say: e.Sayf}, reload)
}

// readForAgent reads the policy of a file whose sources an agent follows.
func (e *env) readForAgent(file string) (*policy.Policy, error) {
	pr, err := e.Parse(file)
	switch {
	case err != nil:
		return nil, err
	case pr.Policy == nil:
		return nil, part.Do(fmt.Errorf("%s has mistakes, the first is: %s", file,
			pr.Diags[0].Message), "levee check "+file)
	}
	return pr.Policy, nil
}
