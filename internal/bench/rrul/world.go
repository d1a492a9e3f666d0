package rrul

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/echo"
)

// world is the place of the clients: a host of the lab, or another machine.
type world interface {
	// start starts a role there, on the core that receives.
	start(ctx context.Context, role ...string) (*lab.Process, error)
	// probe sends probes from there, whose core it sets. They begin by this machine's clock.
	probe(ctx context.Context, p echo.Probes) ([]int64, error)
	device() string
	clients() []netip.Addr // addresses
	// compare tells how far its monotonic clock is ahead of the one here, and within which error.
	compare() (ahead, within time.Duration, err error)
	// where begins its sentences.
	where() string
}

// host is a world that is a host of the lab.
type host struct {
	*lab.Host
	self []string // the command line that calls Role
}

func (h *host) start(ctx context.Context, role ...string) (*lab.Process, error) {
	return start(ctx, h.self, h.Host, role...)
}

// start starts a role on a host of the lab.
func start(ctx context.Context, self []string, h *lab.Host, role ...string) (*lab.Process, error) {
	return h.Start(ctx, core(h), append(self[:len(self):len(self)], role...)...)
}

func (h *host) probe(ctx context.Context, p echo.Probes) ([]int64, error) {
	p.From, p.CPU = h.Devices[0].IPv4.Addr(), core(h.Host)
	return p.Run(ctx, h.Host)
}

func (h *host) device() string                                  { return h.Devices[0].Name }
func (h *host) clients() []netip.Addr                           { return h.Devices[0].Clients4 }
func (h *host) compare() (ahead, within time.Duration, _ error) { return 0, 0, nil }
func (h *host) where() string                                   { return "" }

// distant is a world at the other end of a wire.
type distant struct{ *flood.Joined }

func (d *distant) start(ctx context.Context, role ...string) (*lab.Process, error) {
	return d.Peer.Start(ctx, RoleName, role...)
}

func (d *distant) probe(ctx context.Context, p echo.Probes) ([]int64, error) {
	return d.Peer.Probe(ctx, p)
}

func (d *distant) device() string        { return d.Wire.Device }
func (d *distant) clients() []netip.Addr { return d.Peer.Clients4 }
func (d *distant) where() string         { return "at " + d.Host + ": " }

func (d *distant) compare() (ahead, within time.Duration, err error) {
	err = d.Peer.Compare()
	return d.Peer.Offset.Monotonic, d.Peer.Offset.Error, err
}

// core returns the core on which a host's device receives.
func core(h *lab.Host) int { return max(h.Devices[0].CPU, 0) }

// firstNice has the kernel's receiving threads go before all programs, as the soft interrupt does
// in which most drivers receive.
const firstNice = -20

// first gives the threads that receive for hosts of the lab their priority.
func first(hosts ...*lab.Host) error {
	for _, h := range hosts {
		if pid := h.Devices[0].NAPI; pid != 0 {
			if err := unix.Setpriority(unix.PRIO_PROCESS, pid, firstNice); err != nil {
				return fmt.Errorf("raising the priority of a receiving thread: %w", err)
			}
		}
	}
	return nil
}

// open makes the lab, or takes both ends of a wire. It stays for the tidying up after an
// interruption; end removes it.
func (o *Options) open(ctx context.Context) (m *measurement, end func() error, err error) {
	m = &measurement{Options: o}
	if o.Wire != nil {
		j, err := o.Wire.Join(ctx, firstNice)
		if err != nil {
			return nil, nil, err
		}
		m.server, m.world, end = j.Lab.Host(lab.Server), &distant{j}, j.Close
		m.caveats = append(wireCaveats[:len(wireCaveats):len(wireCaveats)], j.Receiver(),
			j.Sender(), j.Clocks(), j.Caveat())
		return m, end, first(m.server)
	}
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, nil, err
	}
	m.server, end = l.Host(lab.Server), l.Close
	there := l.Host(lab.World)
	m.world = &host{there, o.Self}
	m.caveats = append(labCaveats[:len(labCaveats):len(labCaveats)], bench.VethCaveat)
	if core(m.server) == core(there) {
		return m, end, kernel.Refuse(nil, "measuring needs two cores: one for the service, one "+
			"for those who speak with it")
	}
	return m, end, first(m.server, there)
}
