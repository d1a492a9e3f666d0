package flood

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/bench"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/echo"
	"levee/internal/lab/gen"
	"levee/internal/lab/peer"
	"levee/internal/usage"
)

// Wire is a real card, and the machine that sends to it.
type Wire struct {
	peer.Config
	Dev string // the interface here
	// Own says that both interfaces, and the network between them, may be flooded.
	Own bool
}

// Check refuses a wire of which something is not said. The error matches usage.ErrWrong.
func (w *Wire) Check() error {
	switch {
	case w.Dev == "":
		return usage.Wrongf("which interface receives? name one by --dev that carries nothing else")
	case w.Device == "":
		return usage.Wrongf("which interface sends? name one of the peer's by --peer-dev")
	case w.CPU < 0:
		return usage.Wrongf("--peer-cpu %d: a core, 0 and up", w.CPU)
	case !w.Own:
		return usage.Wrongf("%s here and %s at %s are taken from their networks and flooded for "+
			"the time of the measurement: --own-network says that they are yours", w.Dev,
			w.Device, w.Host)
	}
	return nil
}

// carrier is the longest time until a link comes up, and trial the number of packets that must
// arrive then.
const (
	carrier   = 20 * time.Second
	trial     = 1000
	trialRate = 10_000
)

// Joined is a wire whose ends are taken: the server here, the world at the peer.
type Joined struct {
	*Wire
	Lab  *lab.Lab // of the server
	Peer *peer.Client
	Card lab.Card // here
}

// Join takes the interfaces of both machines, with one channel each, and waits for a link. nice is
// of the threads that receive at the peer, 0 to have them go as probes do. The ends stay for the
// tidying up after an interruption; Close gives them back.
func (w *Wire) Join(ctx context.Context, nice int) (_ *Joined, err error) {
	if runtime.NumCPU() < 2 {
		return nil, kernel.Refuse(nil, "measuring needs two cores: one receives, one measures")
	}
	if err := peer.Guard(ctx, w.Dev); err != nil {
		return nil, err
	}
	if len(w.Shell) == 0 && goesBy(ctx, w.Host, w.Dev) {
		return nil, fmt.Errorf("%s is %w: ssh to %s goes by it; measure over another interface",
			w.Dev, lab.ErrInUse, w.Host)
	}
	j := &Joined{Wire: w}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	if j.Card, err = lab.ReadCard(w.Dev); err != nil {
		return nil, err
	}
	if j.Peer, err = peer.Dial(ctx, w.Config); err != nil {
		return nil, err
	}
	if err := j.Peer.Take(peer.End{Device: w.Device, CPU: w.CPU, Peer: j.Card.MAC,
		Nice: nice}); err != nil {
		return nil, err
	}
	const receiver = 1
	j.Lab, err = lab.Take(context.WithoutCancel(ctx), lab.Taking{Device: w.Dev, End: lab.Server,
		Peer: j.Peer.Facts.Card.MAC, CPU: receiver})
	if err != nil {
		return nil, err
	}
	return j, j.linked(ctx)
}

// Close gives both interfaces back.
func (j *Joined) Close() (err error) {
	if j.Lab != nil {
		err = j.Lab.Close()
	}
	if j.Peer != nil {
		err = errors.Join(err, j.Peer.Close())
	}
	return err
}

// linked waits until the link is up.
func (j *Joined) linked(ctx context.Context) error {
	for begun := time.Now(); ; {
		up := false
		err := j.Lab.Host(lab.Server).Do(func() error {
			link, err := netlink.LinkByName(j.Dev)
			up = err == nil && link.Attrs().OperState == netlink.OperUp
			return err
		})
		if err != nil {
			return fmt.Errorf("looking at %s: %w", j.Dev, err)
		}
		if up {
			return nil
		}
		if time.Since(begun) > carrier {
			return kernel.Refuse(nil, "%s has no link after %v: is it connected to %s of the peer?",
				j.Dev, carrier, j.Device)
		}
		if err := lab.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// Receiver says what packets come to here.
func (j *Joined) Receiver() string {
	return fmt.Sprintf("receiver: %s, one channel, GRO on, NAPI in a thread that has core %d",
		j.Card, max(j.Lab.Host(lab.Server).Devices[0].CPU, 0))
}

// Sender says what they come from.
func (j *Joined) Sender() string {
	f := &j.Peer.Facts
	return fmt.Sprintf("generator: %s at %s, core %d of %d, %s, Linux %s", f.Card, j.Host,
		j.Peer.CPU, f.Machine.Cores, f.Machine.CPU, f.Machine.Kernel)
}

// Clocks says how far those of both machines are apart, as they were last compared.
func (j *Joined) Clocks() string {
	return fmt.Sprintf("clocks: the peer's is %v ahead, within %v", j.Peer.Offset.Wall,
		j.Peer.Offset.Error)
}

// Caveat says what figures mean.
func (j *Joined) Caveat() string {
	return "over " + j.Card.Driver + ": figures are of this card and its driver"
}

// openWire is Open for two machines: both take their interface, and one sends to the other.
func openWire(ctx context.Context, o *Options) (l *Lab, err error) {
	j, err := o.Wire.Join(ctx, 0)
	if err != nil {
		return nil, err
	}
	l = &Lab{Options: o, procStat: readProcStat, flows: firstFlows, lab: j.Lab, wire: j,
		Server: j.Lab.Host(lab.Server)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
			l = nil
		}
	}()
	if l.GeneratorCPU, err = another(l.In().CPU); err != nil {
		return l, err
	}
	if err := l.prepare(); err != nil {
		return l, err
	}
	return l, l.tryWire(ctx)
}

// goesBy tells whether packets to a host leave by a device of the calling thread's namespace. Of a
// name that only ssh knows it is not known: the connection is lost then, which ends the peer.
func goesBy(ctx context.Context, host, device string) bool {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return false
	}
	_, name, ok := strings.Cut(host, "@")
	if !ok {
		name = host
	}
	addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		routes, err := netlink.RouteGet(a.Unmap().AsSlice())
		return err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool {
			return r.LinkIndex == link.Attrs().Index
		})
	})
}

// another returns the first core that this process may use, but for one.
func another(cpu int) (int, error) {
	all, err := lab.AllowedCPUs()
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		if i != cpu {
			return i, nil
		}
	}
	return 0, kernel.Refuse(nil, "measuring needs two cores: one receives, one measures")
}

// tryWire has a few packets come over the link.
func (l *Lab) tryWire(ctx context.Context) error {
	before, err := l.received()
	if err != nil {
		return err
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var sent gen.Report
	ended := make(chan error, 1)
	go func() {
		flood := Floods([]string{"udp"}, IPv4, l.In())[0].Flood
		var err error
		sent, err = l.wire.Peer.Send(sending, gen.Config{Floods: []gen.Flood{flood},
			Rate: trialRate, Duration: carrier})
		ended <- err
	}()
	arrived := uint64(0)
	missing := l.until(ctx, "", func(_, now uint64) bool {
		arrived = now - before
		return arrived >= trial
	})
	stop()
	if err := errors.Join(<-ended, bench.Interrupted(ctx)); err != nil {
		return err
	}
	if missing != nil {
		return kernel.Refuse(nil, "of %d packets that the peer sent on %s %d arrived on %s: are "+
			"both at one wire, or switch?", sent.Sent, l.Wire.Device, arrived, l.device)
	}
	if err := l.drained(ctx, 0); err != nil {
		return err
	}
	l.how = sent.How
	return nil
}

// channels returns the channels of the receiver. The calling thread is in its namespace.
func (l *Lab) channels() uint32 {
	c, err := lab.ReadCard(l.device)
	if err != nil {
		return 0
	}
	return c.Channels
}

// Probe sends probes from the world to the server, whose addresses and core it sets.
func (l *Lab) Probe(ctx context.Context, p echo.Probes) ([]int64, error) {
	in := l.In()
	p.To = in.IPv4.Addr()
	if l.wire != nil {
		return l.wire.Peer.Probe(ctx, p)
	}
	out := &l.World.Devices[0]
	p.From, p.CPU = out.Clients4[0], l.GeneratorCPU
	if out.NAPI != 0 { // answers arrive there
		if err := echo.First(out.NAPI); err != nil {
			return nil, err
		}
	}
	return p.Run(ctx, l.World)
}

// Caveat says what figures mean that were measured over veth, or over a card.
func (l *Lab) Caveat() string {
	if l.wire == nil {
		return bench.VethCaveat
	}
	return l.wire.Caveat()
}

// Circumstances returns the caveat and, over a card, the path.
func (l *Lab) Circumstances() []string {
	if l.wire == nil {
		return []string{l.Caveat()}
	}
	return append(l.Path(), l.Caveat())
}

// Path says what the packets go through, a fact a line.
func (l *Lab) Path() []string {
	if l.wire == nil {
		return []string{
			"one veth pair in a lab of its own, one queue, GRO on, no qdisc at the sender",
			"receiver: NAPI in a thread that has one core; it does all the work of every rung",
			"generator: live frames on the other core, the same seed for all rungs",
		}
	}
	return []string{
		l.wire.Receiver(), l.wire.Sender(), "frames: " + l.how + ", the same seed for all rungs",
		"refused by the ring: what was sent and did not arrive, by the sender's card, the wire " +
			"or the receiver's card",
		l.wire.Clocks(),
	}
}
