package rrul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/echo"
	"levee/internal/lab/queue"
)

// measurement is a lab: the service on its server, flows and probes in its world.
type measurement struct {
	*Options
	server, world *lab.Host
}

func (m *measurement) core(h *lab.Host) int { return max(h.Devices[0].CPU, 0) }

// firstNice has the kernel's receiving threads go before all programs, as the soft interrupt does
// in which most drivers receive.
const firstNice = -20

func (m *measurement) prepare() error {
	if m.core(m.server) == m.core(m.world) {
		return kernel.Refuse(nil, "measuring needs two cores: one for the service, one for those "+
			"who speak with it")
	}
	for _, h := range []*lab.Host{m.server, m.world} {
		if pid := h.Devices[0].NAPI; pid != 0 {
			if err := unix.Setpriority(unix.PRIO_PROCESS, pid, firstNice); err != nil {
				return fmt.Errorf("raising the priority of a receiving thread: %w", err)
			}
		}
	}
	return nil
}

// run takes a case once: defence and queues, quiet, load, quiet.
func (m *measurement) run(ctx context.Context, c *Case, round int) (_ *Once, err error) {
	after := context.WithoutCancel(ctx)
	in, out := &m.server.Devices[0], &m.world.Devices[0]
	defer func() { err = errors.Join(err, c.defence.Remove(after)) }()
	if err := c.defence.Install(ctx, contender.Site{Host: m.server, Device: in.Name}); err != nil {
		return nil, err
	}
	if c.Queue != NoQueue {
		for _, h := range []*lab.Host{m.server, m.world} {
			if err := queue.Put(ctx, h, h.Devices[0].Name, c.Queue, m.Bandwidth); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, queue.Remove(after, h, h.Devices[0].Name)) }()
		}
	}
	to := fmt.Sprintf("%s:%d", in.IPv4.Addr(), servicePort)
	service, err := start(ctx, m.Self, m.server, m.core(m.server), roleService, to,
		strconv.Itoa(m.core(m.server)))
	if err != nil {
		return nil, err
	}
	if err := service.ready(); err != nil {
		return nil, err
	}
	args := []string{roleClients, to, strconv.Itoa(m.Flows)}
	for _, a := range out.Clients4[:min(m.Flows, len(out.Clients4))] {
		args = append(args, a.String())
	}
	clients, err := start(ctx, m.Self, m.world, m.core(m.world), args...)
	if err != nil {
		return nil, errors.Join(err, service.stop())
	}
	x := &watch{measurement: m, service: service, clients: clients,
		Once: &Once{Round: round, Step: step.Seconds(), Queues: m.queues()}}
	err = x.all(ctx)
	if x.clients != nil {
		err = errors.Join(err, clients.stop())
	}
	return x.Once, errors.Join(err, service.stop())
}

// queues are those of both ends before anything is read.
func (m *measurement) queues() (all []*Queue) {
	for _, way := range ways {
		all = append(all, &Queue{Way: way})
	}
	return all
}

// sender is who sends in a direction.
func (m *measurement) sender(way string) *lab.Host {
	if way == Down {
		return m.server
	}
	return m.world
}

// watch is a run under way.
type watch struct {
	*measurement
	*Once
	service, clients *child // clients nil once they have ended
	begun            time.Duration
}

// all is quiet, load, quiet, with probes all the time.
func (x *watch) all(ctx context.Context) error {
	core := x.core(x.server)
	before, err := flood.ReadCPU(core)
	if err != nil {
		return err
	}
	probing, stop := context.WithCancel(ctx)
	defer stop()
	const start = 10 * time.Millisecond // for the probes' threads to be there
	x.begun = kernel.Monotonic() + start
	ended := make(chan error, len(kinds))
	rng := rand.New(rand.NewPCG(x.Seed, uint64(x.Once.Round)))
	for _, kind := range kinds {
		p := x.probes(kind, rng)
		seen := &Probes{Kind: kind, Due: seconds(p.At)}
		x.Once.Probes = append(x.Once.Probes, seen)
		go func() {
			took, err := p.Run(probing, x.world)
			seen.Took = seconds(took)
			ended <- err
		}()
	}
	err = x.load(ctx)
	if err == nil {
		err = lab.Sleep(ctx, x.After)
	}
	if err != nil {
		stop()
	}
	for range kinds {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return err
	}
	now, err := flood.ReadCPU(core)
	if x.Steal = now.Stolen(before); x.Steal > flood.MaxSteal {
		x.Invalid = append(x.Invalid, fmt.Sprintf("the hypervisor took %.1f %% of the time",
			100*x.Steal))
	}
	return err
}

// load is quiet, then the flows, with a look at them and at the queues each step.
func (x *watch) load(ctx context.Context) error {
	if err := lab.Sleep(ctx, x.begun-kernel.Monotonic()+x.Before); err != nil {
		return err
	}
	x.From = x.at()
	if err := x.clients.ask(); err != nil {
		return err
	}
	if err := x.clients.ready(); err != nil {
		x.clients = nil
		return err
	}
	for next := x.at(); ; {
		if err := x.look(); err != nil {
			return err
		}
		if next += step.Seconds(); next > x.From+x.During.Seconds() {
			break
		}
		wait := time.Duration((next - x.at()) * float64(time.Second))
		if err := lab.Sleep(ctx, max(wait, 0)); err != nil {
			return err
		}
	}
	x.To = x.at()
	served, err := x.service.count()
	if err != nil {
		return err
	}
	x.Resent[Down] = served.Resent
	err = x.clients.stop()
	x.clients = nil
	return err
}

// at is the time since the run began, in seconds.
func (x *watch) at() float64 { return (kernel.Monotonic() - x.begun).Seconds() }

// look notes what has come, and what waits.
func (x *watch) look() error {
	n, err := x.clients.count()
	if err != nil {
		return err
	}
	x.Looks = append(x.Looks, Look{At: x.at(), Down: n.Down, Up: n.Up})
	if n.Failed != "" && len(x.Invalid) == 0 {
		x.Invalid = append(x.Invalid, "a flow ended early: "+n.Failed)
	}
	if x.Resent == nil {
		x.Resent = map[string]uint64{}
	}
	x.Resent[Up] = n.Resent
	for _, q := range x.Queues {
		h := x.sender(q.Way)
		var seen []queue.Queue
		err := h.Do(func() (err error) {
			seen, err = queue.Read(h.Devices[0].Index)
			return err
		})
		if err != nil {
			return err
		}
		q.enter(seen)
	}
	return nil
}

// probes draws those of a kind: at times of a Poisson process, which fall into step with nothing.
func (x *watch) probes(kind string, rng *rand.Rand) echo.Probes {
	length := (x.Before + x.During + x.After).Seconds()
	p := echo.Probes{From: x.world.Devices[0].IPv4.Addr(), To: x.server.Devices[0].IPv4.Addr(),
		CPU: x.core(x.world), ID: rng.Uint64(), Port: probePort, ICMP: kind == ICMP,
		Begin: x.begun, Patience: lastProbe}
	for t := 0.0; ; {
		t += rng.ExpFloat64() / x.Options.Probes
		if t >= length {
			return p
		}
		p.At = append(p.At, int64(t*1e9))
	}
}

// lastProbe is how long the last probes are waited for.
const lastProbe = time.Second

// seconds of nanoseconds; 0 for what has not come.
func seconds(ns []int64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		if v != echo.Lost {
			out[i] = float64(v) / 1e9
		}
	}
	return out
}
