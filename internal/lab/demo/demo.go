package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"levee/examples"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// Options of the demo. Self and Out are required.
type Options struct {
	Self     []string // the command line that calls Role, to which its arguments are added
	Out      io.Writer
	Terminal bool          // Out is one: the table is redrawn in place
	Policy   []byte        // nil for the demo policy, of which the nftables rules are a translation
	Name     string        // its file name
	Capture  string        // a SYN flood to replay; empty: the default one, if it is there
	Rate     float64       // of the flood in packets a second, 0 for 2.5 million
	Act      time.Duration // how long an act counts, 0 for 8 s
	Seed     uint64
	Picture  string // file to write the final screen to as SVG, if any
}

const (
	servicePort = 80
	perSecond   = 200 // requests by all visitors together
	quietTime   = 3 * time.Second
	settleTime  = time.Second // between acts, so that none pays for the one before it
	defaultRate = 2.5e6
	defaultAct  = 8 * time.Second
	redrawEvery = 250 * time.Millisecond

	// Visitors, and what receives for them, come before the flood, with which they share the world's core:
	// in the world they have machines of their own. All are above what else runs on this machine.
	visitorsNice, floodNice, serviceNice = -15, -10, -15
)

// ErrNotHeld says that the service was not held with levee: the answer of the demo is no.
var ErrNotHeld = errors.New("the service was not held with levee")

// Run plays the demo. It needs root. It returns ErrNotHeld after the table if levee did not hold the
// service, and an error of ctx, having removed everything, if it was interrupted.
func Run(ctx context.Context, o Options) (err error) {
	if os.Geteuid() != 0 {
		return kernel.Refuse(os.ErrPermission, "the demo needs root for its network namespaces: sudo levee lab demo")
	}
	o.complete()
	if _, err := contender.Resolve(o.Name, o.Policy); err != nil {
		return err
	}
	// The lab stays for the tidying up after an interruption; Close removes it.
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, l.Close())
		if ctx.Err() != nil && err != nil {
			err = fmt.Errorf("interrupted; the lab is removed: %w", ctx.Err())
		}
	}()
	s := &stage{Options: o, lab: l, server: l.Host(lab.Server), world: l.Host(lab.World)}
	return s.play(ctx)
}

func (o *Options) complete() {
	if o.Policy == nil {
		o.Policy, o.Name = examples.Demo, examples.DemoName
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.Act == 0 {
		o.Act = defaultAct
	}
}

// stage is the lab with everyone in place.
type stage struct {
	Options
	lab           *lab.Lab
	server, world *lab.Host
	screen        *screen
	waves         []wave
}

// awayPolicy throws the server's answers to spoofed addresses away where they arrive. In the world they
// go elsewhere; here they would take time from the flood, the more the less the server drops.
const awayPolicy = `
pass to { 198.18.0.0/15, 2001:db8::/32 }
default drop
`

// play starts service and visitors, plays the acts and judges.
func (s *stage) play(ctx context.Context) (err error) {
	replay, err := capture(s.Capture, s.service())
	if err != nil {
		return err
	}
	s.waves = waves(s.world, s.Rate, s.Seed, replay)
	s.screen = newScreen(s.Out, s.Terminal, s.intro(replay))
	s.screen.load = loadAverage()
	err = s.populated(ctx, perSecond, s.screen.request, func() error { return s.acts(ctx) })
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if err != nil {
		return err
	}
	return s.end()
}

// service is where the web service is.
func (s *stage) service() netip.AddrPort {
	return netip.AddrPortFrom(s.server.Devices[0].IPv4.Addr(), servicePort)
}

// populated runs f while the service serves and visitors come to it, so many requests a second; each outcome is
// told to tell, which is not called any more once populated has returned.
func (s *stage) populated(ctx context.Context, perSecond float64, tell func(request), f func() error) (err error) {
	in, out := s.server.Devices[0], s.world.Devices[0]
	if err := s.priorities(in.NAPI, out.NAPI); err != nil {
		return err
	}
	away := contender.Levee("away", []byte(awayPolicy))
	if err := away.Install(ctx, contender.Site{Host: s.world, Device: out.Name}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, away.Remove(context.WithoutCancel(ctx))) }()
	server, err := start(ctx, s.Self, s.server, core(in), serviceNice, roleService, s.service().String())
	if err != nil {
		return err
	}
	if err := server.ready(); err != nil {
		return err
	}
	args := []string{roleVisitors, s.service().String(), fmt.Sprint(perSecond)}
	for _, a := range out.Clients4 {
		args = append(args, a.String())
	}
	visitors, err := start(ctx, s.Self, s.world, core(out), visitorsNice, args...)
	if err != nil {
		return errors.Join(err, server.stop())
	}
	told := make(chan struct{})
	go func() { defer close(told); visitors.requests(tell) }()
	err = f()
	ended := errors.Join(visitors.stop(), server.stop())
	<-told
	if ctx.Err() != nil {
		return err // what was interrupted did not end well
	}
	return errors.Join(err, ended)
}

// priorities of the kernel threads that receive for server and world. The server's comes before all programs,
// as the soft interrupt does in which most drivers receive: the ring is full 0.1 ms after it was
// told to wait.
func (s *stage) priorities(server, world int) error {
	if runtime.NumCPU() < 2 {
		return kernel.Refuse(nil, "the demo needs two cores: one for the server, one for the world")
	}
	if server == 0 || world == 0 {
		return kernel.Refuse(nil, "this kernel does not say which threads receive (needs Linux 6.8)")
	}
	fifo := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(server, fifo, 0); err != nil {
		return fmt.Errorf("raising the priority of the server's receiving thread: %w", err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, world, visitorsNice); err != nil {
		return fmt.Errorf("raising the priority of the world's receiving thread: %w", err)
	}
	return nil
}

// core is the core that a device receives on; with one core only, it is that one.
func core(d lab.Device) int { return max(d.CPU, 0) }

// acts plays the quiet beginning and the three acts.
func (s *stage) acts(ctx context.Context) error {
	stop := s.screen.refresh()
	defer stop()
	all := []struct {
		title   string
		defence contender.Defence
		flood   bool
	}{
		{"quiet", contender.Nothing(), false},
		{"no defence", contender.Nothing(), true},
		{"nftables", contender.NFT(), true},
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
func (s *stage) act(ctx context.Context, c *column, d contender.Defence, flood bool) (err error) {
	site := contender.Site{Host: s.server, Device: s.server.Devices[0].Name}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		if errors.Is(err, contender.ErrMissing) {
			s.screen.missing(c, err)
			return nil
		}
		return err
	}
	m := &meter{stage: s, column: c, defence: d}
	if err := m.begin(ctx); err != nil {
		return err
	}
	// A request counts if its visitor's patience ends before the flood does.
	counted := s.Act
	if !flood {
		counted = min(quietTime, s.Act)
	}
	now := monotonic()
	s.screen.count(c, now, now+counted.Nanoseconds())
	meterDone := make(chan error, 1)
	meterCtx, stopMeter := context.WithCancel(ctx)
	go func() { meterDone <- m.run(meterCtx) }()
	if flood {
		err = run(ctx, s.waves, counted+patience, func(what string) { s.screen.wave(what) })
	} else {
		err = sleep(ctx, counted+patience)
	}
	stopMeter()
	err = errors.Join(err, <-meterDone)
	if err != nil {
		return err
	}
	s.screen.close(c)
	return sleep(ctx, settleTime)
}

// meter follows the counters of one act.
type meter struct {
	*stage
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

// run reads the counters about once a second until ctx ends; for nftables that starts a program, which
// costs the machine something.
func (m *meter) run(ctx context.Context) error {
	for sleep(ctx, time.Second) == nil {
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
	err = m.server.Do(func() error {
		v, err := lab.Counters(m.server.Devices[0].Name)
		c.received = v[contender.Received]
		return err
	})
	if err != nil {
		return c, err
	}
	err = m.world.Do(func() error {
		c.refused, err = sentButDropped(m.world.Devices[0].Name)
		return err
	})
	if err != nil {
		return c, err
	}
	c.at = monotonic()
	c.dropped, err = m.defence.Dropped(ctx)
	return c, err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// intro is what is said before the table.
func (s *stage) intro(replay *gen.Replay) []string {
	in, out := s.server.Devices[0], s.world.Devices[0]
	lines := []string{
		fmt.Sprintf("A web service at %s, %d requests a second by %d visitors, each waits %v at most.", in.IPv4.Addr(), perSecond, len(out.Clients4), patience),
		"Each page is rendered anew, about 0.7 ms of work; lighter pages survive without a defence, more slowly.",
		fmt.Sprintf("The flood comes in by the same device, %s packets a second:", si(s.Rate)),
	}
	for _, w := range s.waves {
		lines = append(lines, "  "+w.name)
	}
	return append(lines,
		fmt.Sprintf("Core %d is the server's: receiving, which comes first as soft interrupts do, and the service. Core %d is the world's.", core(in), core(out)),
		fmt.Sprintf("nftables: the rules of %s at netdev ingress, its fastest hook. levee: %[1]s, XDP in the driver.", s.Name))
}
