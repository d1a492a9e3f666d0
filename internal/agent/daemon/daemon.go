// Package daemon puts the agent together: sources and lists, the search for floods, the history,
// the API with its page, notifications, and what each of them keeps on the disk. In go files of
// policies, places to listen at and ways to the machine, out comes an agent that runs until its
// context ends. It must never decide what a part decides, and one part that fails must not end the
// others.
package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"levee/internal/agent"
	"levee/internal/agent/api"
	"levee/internal/agent/channel"
	"levee/internal/agent/client"
	"levee/internal/agent/defend"
	"levee/internal/agent/enforce"
	"levee/internal/agent/flowtap"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/notify"
	"levee/internal/agent/overload"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	"levee/internal/agent/sight"
	"levee/internal/dataplane"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/lockout"
	"levee/internal/dataplane/status"
	"levee/internal/host/access"
	"levee/internal/host/lost"
	"levee/internal/host/upstream"
	"levee/internal/lang/policy"
	"levee/internal/monitor/mpegts/live"
	"levee/internal/openmetrics"
)

// Options are an agent that is to run.
type Options struct {
	// Files are policies whose sources are followed instead of those in force; Read reads one.
	Files []string
	Read  func(file string) (*policy.Policy, error)
	// Gate keeps live rules out of force that would cut somebody off.
	Gate      *lockout.Gate
	Listen    Listen
	Countries string        // a MaxMind DB file that says which countries sources are in; "": none
	FromStart bool          // a file that is followed for the first time is read from its beginning
	Interval  time.Duration // between two comparisons of the kernel with the ledger
	Version   string
	// Channels are interfaces whose transport streams are watched.
	Channels []channel.Config
	Notify   func(state string) error // tells the service manager
	Watchdog time.Duration            // how often that one wants to hear; 0: never
	Say      func(format string, args ...any)
}

// Run is an agent, until ctx ends. What comes by reload has it read the policies anew.
func Run(ctx context.Context, o Options, reload <-chan struct{}) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tokens := api.OpenTokens(client.Tokens())
	listen, err := o.listens(tokens)
	if err != nil {
		return err
	}
	// Before anything else: of agents that start at once, one goes on.
	if err := listen[0].Try(); errors.Is(err, api.ErrRunning) {
		return err
	}
	events := &pubsub.Hub{}
	parts := agent.NewParts(ctx, events, o.Say)
	alarms := make(chan string, 64)
	alarm := func(text string) {
		select {
		case alarms <- text:
		default:
			o.Say("alarm: %s", text)
		}
	}
	auditFile := client.File("api-audit.jsonl")
	audited := parts.Begin(part.File, auditFile, "")
	audit := api.OpenAudit(auditFile, func(err error) {
		_ = audited.Did(part.Do(err, access.Write(auditFile, err)))
	})
	defer audit.Close()
	sight := &sight.Counts{}
	watcher := &inforce.Watcher{}
	p := &policies{files: o.Files, readFile: o.Read, watcher: watcher}
	judged := &inspect.Watcher{}
	defer judged.Close()
	before := &overload.Watch{Parts: parts, Devs: p.interfaces, Read: lost.Read,
		Judged: judged.Look, Move: moveOn}
	kept := openHistory(parts, sight, before.Lost, alarm, o.Say)
	defer kept.stop()
	flows := &flowtap.Hub{Devs: p.interfaces}
	floods := o.defender(watcher, kept.sampled, sight, events, parts, alarm)
	defer look(ctx, stop, floods)()
	var arrival sync.WaitGroup
	arrival.Go(func() { before.Run(ctx) })
	for _, c := range o.Channels {
		w := &channel.Watch{Config: c, Parts: parts, Open: follow, Clock: live.Now}
		arrival.Go(func() { w.Run(ctx) })
	}
	defer arrival.Wait()
	defer stop()
	return agent.Run(ctx, agent.Options{
		Policies: p.read, InForce: p.inForce, Counted: watcher.Counted,
		Instead: p.isInstead, Others: p.others,
		Upstream: upstream.Read,
		Kernel:   &enforce.Kernel{Counted: watcher.Counted},
		Streams:  flows.Open,
		Ledger:   client.Ledger(), Listen: listen, Tokens: tokens, Audit: audit, Version: o.Version,
		Routes:   Routes(floods, watcher, kept.routes(watcher)),
		Notifier: notify.New(client.Notifications(), parts),
		Metrics:  metrics(floods), Events: events, Parts: parts, Alarms: alarms,
		FromStart: o.FromStart, Interval: o.Interval,
		Notify: o.Notify, Watchdog: o.Watchdog, Log: o.Say,
	}, reload)
}

// follow follows transport streams behind whatever judges packets.
func follow(c *channel.Config) (channel.Follower, error) {
	return live.Open(c.Dev, "", live.Options{Groups: c.Groups, Streams: channel.MostStreams,
		Window: time.Second, Silence: channel.Silence})
}

// moveOn puts a policy that packets come past into force at another hook.
func moveOn(ctx context.Context, j *inspect.Judged) (hook string, err error) {
	r, err := dataplane.MoveOn(ctx, j.Dev, j.Next())
	if err != nil {
		return "", err
	}
	return string(r.Mode), nil
}

// metrics returns the metrics of the data plane, of incidents and of live rules.
func metrics(floods *defend.Manager) func(context.Context) ([]openmetrics.Family,
	error) {
	return func(ctx context.Context) ([]openmetrics.Family, error) {
		all, err := status.Here(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, incident.Metrics(floods.Incidents.List())...)
		return append(all, defend.Metrics(floods.Rules())), nil
	}
}
