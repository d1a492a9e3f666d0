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
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
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
	Name    string        // its file name
	Capture string        // a SYN flood to replay; empty: the default one, if it is there
	Rate    float64       // of the flood in packets a second, 0 for 2.5 million
	Act     time.Duration // how long an act counts, 0 for 10 s
	Seed    uint64
	Picture string // file to write the final screen to as SVG, if any
}

// What a demo has if nothing else is said.
const (
	ServicePort = 80
	UDPPort     = 443   // where it answers datagrams
	PerSecond   = 200   // requests by all visitors together
	DefaultRate = 2.5e6 // of the flood, in packets a second
)

const (
	quietTime   = 3 * time.Second
	settleTime  = time.Second // between acts, so that none pays for the one before it
	defaultAct  = 10 * time.Second
	redrawEvery = 250 * time.Millisecond

	// Visitors, and what receives for them, come before the flood, with which they share the
	// world's core: in the world they have machines of their own. All are above what else runs on
	// this machine.
	visitorsNice, floodNice, serviceNice = -15, -10, -15
)

// ErrNotHeld says that the service was not held with levee: the answer of the demo is no.
var ErrNotHeld = errors.New("the service was not held with levee")

// Run plays the demo. It needs root. It returns ErrNotHeld after the table if levee did not hold
// the service, and an error of ctx, having removed everything, if it was interrupted.
func Run(ctx context.Context, o Options) (err error) {
	if os.Geteuid() != 0 {
		return kernel.Refuse(os.ErrPermission,
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
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Act == 0 {
		o.Act = defaultAct
	}
}

// play is a demo that is played.
type play struct {
	Options
	*Stage
	screen *screen
	waves  []wave
}

// run starts service and visitors, plays the acts and judges.
func (s *play) run(ctx context.Context) (err error) {
	replay, err := capture(s.Capture, s.Service(packet.IPv4))
	if err != nil {
		return err
	}
	s.waves = waves(s.World, s.Rate, s.Seed, replay)
	s.screen = newScreen(s.Out, s.Terminal, s.intro(replay))
	s.screen.load = loadAverage()
	err = s.Populated(ctx, packet.IPv4, PerSecond, s.screen.request,
		func() error { return s.acts(ctx) })
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		return err
	}
	return s.end()
}

// acts plays the quiet beginning and the three acts.
func (s *play) acts(ctx context.Context) error {
	stop := s.screen.refresh()
	defer stop()
	nft := contender.NFTStateful()
	all := []struct {
		title   string
		defence contender.Defence
		flood   bool
	}{
		{"quiet", contender.Nothing(), false},
		{"no defence", contender.Nothing(), true},
		{"nftables", nft, true},
		{"levee", contender.Levee(s.Name, s.Policy), true},
	}
	for _, a := range all {
		if err := s.act(ctx, s.screen.column(a.title), a.defence, a.flood); err != nil {
			return err
		}
	}
	return nil
}

// act plays one act: defence up, flood on, count, flood off, defence down.
func (s *play) act(ctx context.Context, c *column, d contender.Defence, flood bool) (err error) {
	site := contender.Site{Host: s.Server, Device: s.Server.Devices[0].Name}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		if errors.Is(err, contender.ErrMissing) {
			s.screen.missing(c, err)
			return nil
		}
		return err
	}
	m := &meter{play: s, column: c, defence: d}
	if err := m.begin(ctx); err != nil {
		return err
	}
	// A request counts if its visitor's Patience ends before the flood does.
	counted := s.Act
	if !flood {
		counted = min(quietTime, s.Act)
	}
	now := int64(kernel.Monotonic())
	s.screen.count(c, now, now+counted.Nanoseconds())
	meterDone := make(chan error, 1)
	meterCtx, stopMeter := context.WithCancel(ctx)
	go func() { meterDone <- m.run(meterCtx) }()
	if flood {
		err = sendAll(ctx, s.waves, counted+Patience, func(what string) { s.screen.wave(what) })
	} else {
		err = lab.Sleep(ctx, counted+Patience)
	}
	stopMeter()
	err = errors.Join(err, <-meterDone)
	if err != nil {
		return err
	}
	s.screen.close(c)
	return lab.Sleep(ctx, settleTime)
}

// meter follows the counters of one act.
type meter struct {
	*play
	column  *column
	defence contender.Defence
	first   counts
	last    counts
}

// counts are read now and then.
type counts struct {
	at                         int64
	received, refused, dropped uint64
}

func (m *meter) begin(ctx context.Context) (err error) {
	m.first, err = m.read(ctx)
	m.last = m.first
	return err
}

// run reads the counters about once a second until ctx ends; for nftables that starts a program,
// which costs the machine something.
func (m *meter) run(ctx context.Context) error {
	for lab.Sleep(ctx, time.Second) == nil {
		now, err := m.read(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		m.screen.rates(m.column, m.last, now)
		m.last = now
	}
	return nil
}

func (m *meter) read(ctx context.Context) (c counts, err error) {
	err = m.Server.Do(func() error {
		v, err := lab.Counters(m.Server.Devices[0].Name)
		c.received = v[contender.Received]
		return err
	})
	if err != nil {
		return c, err
	}
	err = m.World.Do(func() error {
		c.refused, err = lab.SentButDropped(m.World.Devices[0].Name)
		return err
	})
	if err != nil {
		return c, err
	}
	c.at = int64(kernel.Monotonic())
	c.dropped, err = m.defence.Dropped(ctx)
	return c, err
}

// intro is what is said before the table.
func (s *play) intro(replay *gen.Replay) []string {
	in, out := s.Server.Devices[0], s.World.Devices[0]
	lines := []string{
		fmt.Sprintf("A web service at %s, %d requests a second by %d visitors, each waits %v "+
			"at most.", in.IPv4.Addr(), PerSecond, len(out.Clients4), Patience),
		"Each page is rendered anew, about 0.7 ms of work; lighter pages survive without a " +
			"defence, more slowly.",
		fmt.Sprintf("The flood comes in by the same device, %s packets a second from 268 million "+
			"forged sources:", SI(s.Rate)),
	}
	for _, w := range s.waves {
		lines = append(lines, "  "+w.name)
	}
	const nft = "synproxy, conntrack, and what needs no state at netdev ingress"
	return append(lines,
		fmt.Sprintf("Core %d is the server's: receiving, which comes first as soft interrupts "+
			"do, and the service. Core %d is the world's.", Core(in), Core(out)),
		fmt.Sprintf("nftables: %s. levee: %s, XDP in the driver.", nft, s.Name))
}
