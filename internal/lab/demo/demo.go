package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"levee/examples"
	"levee/internal/kernel"
	"levee/internal/lab/contender"
	"levee/internal/packet"
)

// Options of the demo. Self and Out are required.
type Options struct {
	Self     []string // the command line that calls Role, to which its arguments are added
	Out      io.Writer
	Terminal bool // Out is one: the table is redrawn in place
	// Policy is nil for that of examples/service.levee, or where the kernel has no program at
	// egress, of examples/service.levee. The nftables rules are for the same service.
	Policy  []byte
	Name    string  // its file name
	Capture string  // a SYN flood to replay in place of packets of all kinds, if any
	Rate    float64 // the highest rate of the flood to try, packets a second; 0 for what goes
	Seed    uint64
	Picture string // file to write the final screen to as SVG, if any

	pace pace // of tests
}

// What a service gets if nothing else is said.
const (
	servicePort = 80
	udpPort     = 443   // where it answers datagrams
	PerSecond   = 200   // requests by all visitors together
	DefaultRate = 2.5e6 // of a flood that has one rate, in packets a second
)

// rank is the priority of a process of the demo.
type rank struct {
	first uint32 // its real-time priority; 0: none, nice counts
	nice  int    // also where a control group has no budget for real time
}

// Visitors, and what receives for them, come before the flood, with which they share the world's
// core: in the world they have machines of their own. Nothing else that runs on this machine takes
// time from them. The service has a core as other servers have, with all that they run, and
// receiving goes before it.
const receivingFirst, floodNice = 3, -10

var (
	visitorsRank = rank{2, -15}
	floodRank    = rank{1, floodNice}
	serviceRank  = rank{0, -15}
)

// Run plays the demo. It needs root. It returns an error of ctx, having removed everything, if it
// was interrupted.
func Run(ctx context.Context, o Options) (err error) {
	if os.Geteuid() != 0 {
		return kernel.RefuseAs(os.ErrPermission,
			"the demo needs root for its network namespaces: sudo levee lab demo")
	}
	o.complete()
	if _, err := contender.Resolve(o.Name, o.Policy); err != nil {
		return err
	}
	s, err := Open(ctx, o.Self)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.Close())
		if ctx.Err() != nil && err != nil {
			err = fmt.Errorf("interrupted; the lab is removed: %w", ctx.Err())
		}
	}()
	return (&play{Options: o, Stage: s}).run(ctx)
}

func (o *Options) complete() {
	if o.Policy == nil {
		o.Policy, o.Name = examples.Service, examples.ServiceName
	}
	if o.pace == (pace{}) {
		o.pace = usualPace
	}
}

// play is a demo that is played.
type play struct {
	Options
	*Stage
	screen   *screen
	outcomes outcomes
	flood    *flood
	bound    time.Duration // within which a request has to be answered
}

// run starts service, visitors and the flood, measures the machine, plays the acts and tells what
// each held.
func (p *play) run(ctx context.Context) error {
	p.screen = newScreen(p.Out, p.Terminal, p.intro())
	err := p.Populated(ctx, packet.IPv4, PerSecond, p.outcomes.add, func() (err error) {
		if p.flood, err = p.startFlood(ctx, p.Seed, p.Capture); err != nil {
			return err
		}
		err = p.acts(ctx)
		if ended := p.flood.stop(); ctx.Err() == nil {
			err = errors.Join(err, ended) // what was interrupted did not end well
		}
		return err
	})
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		return err
	}
	return p.screen.end(p.Picture)
}

// acts measures the machine and plays the acts.
func (p *play) acts(ctx context.Context) error {
	p.screen.now("the service without a flood")
	quiet, bound, err := p.quiet(ctx)
	if err != nil {
		return err
	}
	p.bound = bound
	p.screen.now("the machine alone")
	most, err := p.carried(ctx)
	if err != nil {
		return err
	}
	line, err := p.apart()
	if err != nil {
		return err
	}
	p.screen.machine(quiet, bound, most, line)
	return p.turns(ctx, []*act{
		{"no defence", contender.Nothing(), nil},
		{"nftables", contender.NFTStateful(), nil},
		{"levee", contender.Levee(p.Name, p.Policy), nil},
	})
}

// act is one defence, and what it held.
type act struct {
	title   string
	defence contender.Defence
	column  *column
}

// turns runs the acts by turns, a flood each, until each has found its rate or the time for floods
// is over. What disturbs the machine for a while, and where the hypervisor puts the cores, then
// meets all of them.
func (p *play) turns(ctx context.Context, acts []*act) error {
	for _, a := range acts {
		a.column = p.screen.act(a.title, newSearch(p.top()))
	}
	for over := time.Now().Add(p.pace.floods); len(acts) > 0 && time.Now().Before(over); {
		var on []*act
		for _, a := range acts {
			more, err := p.turn(ctx, a)
			if err != nil {
				return err
			}
			if more {
				on = append(on, a)
			}
		}
		acts = on
	}
	return nil
}

// turn is one flood of an act: defence up, flood, defence down. It reports whether more are to
// come.
func (p *play) turn(ctx context.Context, a *act) (more bool, err error) {
	find := a.column.search
	step, all, _ := find.next()
	p.screen.now(fmt.Sprintf("%s, %s packets/s", a.title, SI(rateOf(step))))
	defer func() { err = errors.Join(err, a.defence.Remove(context.WithoutCancel(ctx))) }()
	if err := a.defence.Install(ctx, p.site()); err != nil {
		if errors.Is(err, contender.ErrMissing) {
			p.screen.missing(a.column, err)
			return false, nil
		}
		return false, err
	}
	t, err := p.try(ctx, a.defence, step, all)
	if err != nil {
		return false, err
	}
	p.screen.tried(a.column, t)
	_, _, more = find.next()
	return more, nil
}

// top returns the highest step to try.
func (p *play) top() int {
	if p.Rate == 0 {
		return lastStep
	}
	return stepBelow(p.Rate)
}

// site returns where the defences stand.
func (p *play) site() contender.Site {
	return contender.Site{Host: p.Server, Device: p.Server.Devices[0].Name}
}

// intro returns what is said before the table.
func (p *play) intro() []string {
	in, out := p.Server.Devices[0], p.World.Devices[0]
	flood := "UDP, SYN, ACK, RST, FIN, echo and fragments, 268 million forged sources"
	if p.Capture != "" {
		flood = p.Capture + ", replayed"
	}
	return []string{
		fmt.Sprintf("A web service at %s, %d requests a second by %d visitors. Each page is "+
			"rendered anew,", in.IPv4.Addr(), PerSecond, len(out.Clients4)),
		"about 0.7 ms of work; lighter pages survive without a defence, more slowly.",
		"The flood comes in by the same device: " + flood + ".",
		fmt.Sprintf("The service is held while %.0f %% of the requests are answered within %d ms "+
			"of the p99 without it.", heldShare*100, heldExtra.Milliseconds()),
		fmt.Sprintf("Core %d is the server's: receiving, which comes first, and the service. "+
			"Core %d is the world's.", Core(in), Core(out)),
		"nftables: synproxy, conntrack, and what needs no state at netdev ingress.",
		fmt.Sprintf("levee: %s, XDP in the driver.", p.Name),
	}
}
