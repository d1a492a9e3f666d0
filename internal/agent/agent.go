// Package agent turns events into leased entries of dynamic sets, and sees to it that the kernel
// holds what the ledger says.
//
// In go policies with sources and a ledger, out come entries in the kernel, and a status. An entry
// is on the disk before it is in the kernel, with the place of the file up to which events were
// read. It is one loop: nothing else touches ledger, kernel or files. The data path does not need
// it: leases end by the kernel's clock.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"levee/internal/agent/api"
	"levee/internal/agent/enforce"
	"levee/internal/agent/ledger"
	"levee/internal/agent/notify"
	"levee/internal/agent/part"
	"levee/internal/agent/pubsub"
	"levee/internal/agent/source/inlet"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/host/upstream"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/policy"
	"levee/internal/openmetrics"
)

// Kernel is the part of enforce.Kernel that Agent needs.
type Kernel interface {
	Raise(ctx context.Context, set string, entries []sets.Entry, began time.Time) (raised,
		left int, err error)
	Lower(ctx context.Context, set string, entries []sets.Lowered, began time.Time) error
	Leases(ctx context.Context, set string, entries []sets.Entry) ([]sets.Entry,
		error)
	Close()
}

// Options configure an agent.
type Options struct {
	// Policies reads the policies whose sources are followed.
	Policies func(context.Context) ([]*policy.Policy, error)
	// InForce changes when other policies are in force; it is asked every few seconds.
	InForce func(context.Context) (string, error)
	// Counted are these policies with their sets as they are now, read only.
	Counted func(context.Context) ([]inspect.Attachment, error)
	// Instead, if there is one, is an error while something else is in force on an interface than
	// the policy that should be; it knows once Policies has been asked.
	Instead func() error
	// Others are protected besides what protect rules name, with the reason.
	Others func(context.Context) (map[netip.Prefix]string, error)
	// Upstream are those on whom the machine depends; nil: nobody.
	Upstream func() (*upstream.Servers, error)
	// Lookup resolves names of servers; nil: as the machine does.
	Lookup func(ctx context.Context, network, name string) ([]netip.Addr, error)
	Kernel Kernel
	// Streams opens what is read of flows; nil: nobody reads any.
	Streams  func(*inlet.Place) (inlet.Inlet, error)
	Ledger   string           // path
	Listen   []Listen         // for commands, pages and programs
	Routes   []api.Route      // besides the agent's own
	Tokens   *api.Tokens      // of callers who do not come by the unix socket
	Audit    *api.Audit       // of who changed what
	Version  string           // of levee
	Notifier *notify.Notifier // of people and programs; nil: nobody
	// Events tells what happens to those who watch; nil: one of the agent's own.
	Events *pubsub.Hub
	// Parts knows which parts work, those of others too; nil: one of the agent's own.
	Parts *part.Register
	// Alarms are alarms of other parts; nil: none.
	Alarms <-chan string
	// Metrics are those of the data plane.
	Metrics   func(context.Context) ([]openmetrics.Family, error)
	FromStart bool               // read new files from their beginning
	Interval  time.Duration      // between two comparisons
	Notify    func(string) error // tells the service manager
	Watchdog  time.Duration      // how often it wants to hear; 0: never
	Log       func(format string, args ...any)
}

// Times of the loop.
const (
	pollEvery    = 100 * time.Millisecond
	idleEvery    = time.Second // where there is nothing to poll: each time wakes the whole process
	policyEvery  = 5 * time.Second
	protectedFor = 2 * time.Second
	// a comparison of many entries takes a hundredth of the time, but comes once a minute
	compareShare = 100
	comparePause = time.Minute
	manyEntries  = 10_000
)

// Agent is one run.
type Agent struct {
	opts          Options
	ledger        *ledger.Ledger
	sources       []*source
	policies      []*policy.Policy
	inForce       string
	protects      *enforce.Protected
	protectsSince time.Time // when protects was read
	status        Status
	events        *pubsub.Hub
	ops           chan func()
	gone          chan struct{} // closed when the loop has ended
	batch         map[batchKey]batchLease
	lists         []*lister
	reading       sync.WaitGroup // goroutines of lists
	relied        map[netip.Addr]relied
	zones         map[*policy.Policy]*enforce.Zones

	upstream     *upstream.Servers
	upstreamErr  error
	upstreamRead time.Time

	// ends of the leases whose withdrawal the kernel did not take
	owed map[batchKey]time.Time

	parts          *part.Register
	inForcePart    *part.Part // that policies are known
	protectedPart  *part.Part
	tokensPart     *part.Part
	ledgerPart     *part.Part
	ledgerFailures int
	setParts       map[string]*part.Part

	polled    time.Time // when sources were polled last
	flushed   time.Time // when the batch was
	inBetween bool      // something goes between the pages of a long work

	nextPolicy, nextCompare, nextWatchdog, nextRoom, nextLedger time.Time

	told map[string]time.Time // lines of the log
}

// newAgent is one that has read and opened nothing.
func newAgent(opts Options) *Agent {
	a := &Agent{opts: opts, ops: make(chan func()), gone: make(chan struct{}),
		batch: map[batchKey]batchLease{}, told: map[string]time.Time{}, events: opts.Events,
		parts: opts.Parts, ledger: &ledger.Ledger{}, setParts: map[string]*part.Part{}}
	if a.events == nil {
		a.events = &pubsub.Hub{}
	}
	if a.parts == nil {
		a.parts = NewParts(context.Background(), a.events, opts.Log)
	}
	a.inForcePart = a.parts.Begin(part.Policy, "in force", "")
	a.protectedPart = a.parts.Begin(part.Keep, "own addresses and sessions", "")
	a.ledgerPart = a.parts.Begin(part.File, opts.Ledger, "")
	if opts.Tokens != nil {
		a.tokensPart = a.parts.Begin(part.File, opts.Tokens.Path(), "")
	}
	a.status.Since = time.Now()
	a.status.Ledger.Path = opts.Ledger
	return a
}

// Run is an agent until ctx ends. reload reads the policies anew. What fails, fails alone: it is
// told, and tried again. Only another agent that has the ledger is an error.
func Run(ctx context.Context, opts Options, reload <-chan struct{}) error {
	a := newAgent(opts)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		a.reading.Wait()
		a.closeSources()
		a.opts.Kernel.Close()
		if err := a.ledger.Close(); err != nil {
			a.opts.Log("close the ledger: %v", err)
		}
	}()
	if err := a.openLedger(ledger.Wait); err != nil {
		return err
	}
	_ = a.load(ctx) // told, and tried again
	a.compare(ctx)
	if err := a.serve(ctx); err != nil {
		return err
	}
	defer close(a.gone)
	if a.opts.Notifier != nil {
		var told sync.WaitGroup
		told.Go(func() { a.opts.Notifier.Run(ctx, a.events.Watch) })
		defer told.Wait()
	}
	a.reading.Go(func() { a.rely(ctx) })
	a.notify("READY=1")
	defer a.notify("STOPPING=1")
	a.loop(ctx, reload)
	return nil
}

func (a *Agent) notify(state string) {
	if err := a.opts.Notify(state); err != nil {
		a.opts.Log("cannot tell the service manager: %v", err)
	}
}

func (a *Agent) loop(ctx context.Context, reload <-chan struct{}) {
	every := a.every()
	tick := time.NewTicker(every)
	defer tick.Stop()
	again := make(chan struct{}, 1)
	for {
		if now := a.every(); now != every {
			every = now
			tick.Reset(every)
		}
		select {
		case <-ctx.Done():
			a.poll(context.WithoutCancel(ctx)) // what is written already
			a.now()                            // the next agent does not see a jump until here
			return
		case op := <-a.ops:
			op()
			continue
		case text := <-a.opts.Alarms:
			a.alarm("%s", text)
			continue
		case <-reload:
			a.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonicMicroseconds()))
			a.reload(ctx)
			a.notify("READY=1")
		case <-tick.C:
		case <-again:
		}
		if a.poll(ctx) {
			select {
			case again <- struct{}{}:
			default:
			}
		}
		if !a.ledger.IsOpen() && a.openLedger(0) == nil && a.ledger.IsOpen() {
			a.reload(ctx)
		}
		now := a.now()
		if now.After(a.nextPolicy) {
			a.lookAtPolicies(ctx)
			a.parts.Look()
			a.nextPolicy = time.Now().Add(policyEvery)
		}
		if now.After(a.nextCompare) {
			a.compare(ctx)
		}
		if a.opts.Watchdog > 0 && now.After(a.nextWatchdog) {
			a.notify("WATCHDOG=1")
			a.nextWatchdog = now.Add(a.opts.Watchdog / 2)
		}
	}
}

// every returns the time between two looks at sources and clocks.
func (a *Agent) every() time.Duration {
	watched := a.opts.Watchdog > 0 && a.opts.Watchdog < 4*idleEvery
	if len(a.sources) > 0 || len(a.lists) > 0 || watched {
		return pollEvery
	}
	return max(pollEvery, min(idleEvery, a.opts.Interval))
}

// lookAtPolicies reads policies anew when others are in force.
func (a *Agent) lookAtPolicies(ctx context.Context) {
	if a.opts.Tokens != nil {
		_ = a.tokensPart.Did(a.opts.Tokens.Check())
	}
	if a.opts.Audit != nil {
		a.opts.Audit.Check()
	}
	state, err := a.opts.InForce(ctx)
	if err != nil {
		a.inForcePart.Fails(fmt.Errorf("look at the policies in force: %w", err))
		return
	}
	if state != a.inForce {
		a.reload(ctx)
	} else {
		_ = a.inForcePart.Did(a.instead())
	}
}

func (a *Agent) instead() error {
	if a.opts.Instead == nil {
		return nil
	}
	return a.opts.Instead()
}

func (a *Agent) reload(ctx context.Context) {
	a.opts.Kernel.Close()
	_ = a.load(ctx) // told, and tried again
	a.compare(ctx)
}

// load reads the policies, begins to follow the files of new sources, and ends those that are gone.
// Where a policy cannot be read, sources stay as they were, and at first those of the others begin.
func (a *Agent) load(ctx context.Context) error {
	state, err := a.opts.InForce(ctx)
	if err != nil {
		return a.inForcePart.Did(fmt.Errorf("look at the policies in force: %w", err))
	}
	all, err := a.opts.Policies(ctx)
	if err != nil {
		err = fmt.Errorf("read the policies: %w", err)
	}
	if _ = a.inForcePart.Did(cmp.Or(err, a.instead())); err != nil {
		if a.policies != nil {
			return err
		}
		state = "" // they are read again
	}
	if a.policies != nil && state != a.inForce {
		a.events.Publish(pubsub.Event{Kind: pubsub.Policy, Text: "other policies are in force"})
	}
	a.inForce, a.policies, a.protects = state, all, nil
	var want []*policy.Source
	var lists []*policy.List
	for _, p := range all {
		for _, l := range p.Lists {
			at := slices.IndexFunc(lists, func(o *policy.List) bool { return sameList(o, l) })
			switch {
			case at < 0:
				lists = append(lists, l)
			case lists[at].Text != l.Text:
				a.say("source %q differs between two policies; one of them is read", l.Name)
			}
		}
		for _, s := range p.Sources {
			at := slices.IndexFunc(want, func(o *policy.Source) bool { return o.Name == s.Name })
			switch {
			case at < 0:
				want = append(want, s)
			case want[at].Text != s.Text:
				a.say("source %q differs between two policies; one of them is followed", s.Name)
			}
		}
	}
	a.follow(ctx, want)
	a.readLists(ctx, lists)
	return err
}

// protected returns the addresses that no entry may have, as of a moment ago at most.
func (a *Agent) protected(ctx context.Context) *enforce.Protected {
	if a.protects != nil && time.Since(a.protectsSince) < protectedFor {
		return a.protects
	}
	k := &enforce.Protected{}
	var failed error
	zones := map[*policy.Policy]*enforce.Zones{}
	for _, p := range a.policies {
		if zones[p] = a.zones[p]; zones[p] == nil {
			zones[p] = enforce.OwnNames(p)
		}
		k.AddZones(zones[p], "passed by a rule of "+p.File)
		for _, name := range k.AddProtected(p) {
			entries, err := sets.List(ctx, "", name)
			if err != nil && !errors.Is(err, sets.ErrNoSet) {
				failed = fmt.Errorf("read set %s, which a protect rule asks: %w", name, err)
			}
			for _, s := range entries {
				for _, e := range s.Entries {
					if e.Prefix.IsValid() {
						k.Add(e.Prefix, "protected, as an entry of set "+name)
					}
				}
			}
		}
	}
	a.zones = zones
	others, err := a.opts.Others(ctx)
	for prefix, why := range others {
		k.Add(prefix, why)
	}
	servers, serversErr := a.servers()
	for addr, why := range servers.Addresses {
		k.Add(netip.PrefixFrom(addr, addr.BitLen()), why)
	}
	for name, why := range servers.Names {
		if n, wrong := dnsname.Parse(name); wrong == nil {
			k.AddZones(enforce.NewZones(n.Name), why)
		}
	}
	for addr, r := range a.relied {
		k.Add(netip.PrefixFrom(addr, addr.BitLen()), r.what)
	}
	_ = a.protectedPart.Did(errors.Join(failed, err, serversErr))
	a.protects, a.protectsSince = k, time.Now()
	return k
}

// now tells the ledger the time, as each does who puts leases into it or compares them with it.
// What it returns holds for the ledger until the next call, so until others have had a turn.
func (a *Agent) now() time.Time {
	now := time.Now()
	if !a.ledger.IsOpen() {
		return now
	}
	jumped, err := a.ledger.Clock(now)
	if err != nil || jumped != 0 {
		_ = a.wrote(err)
	}
	if jumped == 0 {
		return now
	}
	for k, until := range a.owed {
		if !until.IsZero() {
			a.owed[k] = until.Add(jumped)
		}
	}
	way := "forward"
	if jumped < 0 {
		way = "back"
	}
	a.alarm("the clock has jumped %s by %v (it was set, or the machine slept): leases are moved "+
		"with it, and last as long as they were to", way, jumped.Abs().Round(time.Second))
	return now
}

// say logs a line, the same one at most once a minute.
func (a *Agent) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	now := time.Now()
	if at, ok := a.told[line]; ok && now.Sub(at) < time.Minute {
		return
	}
	if len(a.told) > 1000 {
		clear(a.told)
	}
	a.told[line] = now
	a.opts.Log("%s", line)
}

// maxAlarms is the number of alarms that the status keeps.
const maxAlarms = 32

// alarm logs a line, as say does, and keeps it in the status.
func (a *Agent) alarm(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	a.say("alarm: %s", line)
	if n := len(a.status.Alarms); n > 0 && a.status.Alarms[n-1].Text == line {
		a.status.Alarms[n-1].At = time.Now()
		return
	}
	a.events.Publish(pubsub.Event{Kind: pubsub.Alarm, Text: line})
	a.status.Alarms = append(a.status.Alarms, Alarm{At: time.Now(), Text: line})
	a.status.Alarms = a.status.Alarms[max(0, len(a.status.Alarms)-maxAlarms):]
}

func (a *Agent) server() (s *api.Server, err error) {
	return api.New(api.Options{
		Routes: slices.Concat(a.routes(), a.opts.Routes, []api.Route{a.metricsRoute(&s)}),
		Tokens: a.opts.Tokens, Audit: a.opts.Audit, Version: a.opts.Version, Log: a.opts.Log})
}
