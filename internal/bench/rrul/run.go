package rrul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/echo"
	"levee/internal/lab/queue"
)

// measurement is a service and its world, ready for runs.
type measurement struct {
	*Options
	server  *lab.Host
	world   world
	caveats []string
}

// run takes a case once: defence and queues, quiet, load, quiet.
func (m *measurement) run(ctx context.Context, c *Case, round int) (_ *Once, err error) {
	after := context.WithoutCancel(ctx)
	in := &m.server.Devices[0]
	defer func() { err = errors.Join(err, c.defence.Remove(after)) }()
	if err := c.defence.Install(ctx, contender.Site{Host: m.server, Device: in.Name}); err != nil {
		return nil, err
	}
	if c.Queue != NoQueue {
		if err := queue.Put(ctx, m.server, in.Name, c.Queue, m.Bandwidth); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, queue.Remove(after, m.server, in.Name)) }()
	}
	to := fmt.Sprintf("%s:%d", in.IPv4.Addr(), servicePort)
	service, err := m.begin(roleService, func(args ...string) (*lab.Process, error) {
		return start(ctx, m.Self, m.server, args...)
	}, to, strconv.Itoa(core(m.server)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	args := []string{to, strconv.Itoa(m.Flows), m.world.device(), c.Queue,
		fmt.Sprint(m.Bandwidth)}
	from := m.world.clients()
	for _, a := range from[:min(m.Flows, len(from))] {
		args = append(args, a.String())
	}
	clients, err := m.begin(roleClients, func(args ...string) (*lab.Process, error) {
		return m.world.start(ctx, args...)
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("%s%w", m.world.where(), err)
	}
	defer func() { err = errors.Join(err, clients.stop()) }()
	x := &watch{measurement: m, service: service, clients: clients,
		Once: &Once{Round: round, Step: step.Seconds(), Queues: m.queues(),
			Resent: map[string]uint64{}}}
	return x.Once, x.all(ctx)
}

// begin starts a role, and waits until it says that it is ready.
func (m *measurement) begin(role string, start func(...string) (*lab.Process, error),
	args ...string) (*child, error) {
	p, err := start(append([]string{role}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	c := newChild(role, p)
	return c, c.ready()
}

// queues are those of both ends before anything is read.
func (m *measurement) queues() (all []*Queue) {
	for _, way := range ways {
		all = append(all, &Queue{Way: way})
	}
	return all
}

// watch is a run under way.
type watch struct {
	*measurement
	*Once
	service, clients *child
	begun            time.Duration
	ahead            time.Duration // the clock of the clients
}

// all is quiet, load, quiet, with probes all the time.
func (x *watch) all(ctx context.Context) error {
	core := core(x.server)
	before, err := flood.ReadCPU(core)
	if err != nil {
		return err
	}
	var within time.Duration
	if x.ahead, within, err = x.world.compare(); err != nil {
		return err
	}
	x.ClockError = within.Seconds()
	// What is wrong with the probes ends the load, and the other way round.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	x.begun = kernel.Monotonic() + soon
	if within > 0 {
		x.begun += told + leads*within
	}
	var probing sync.WaitGroup
	rng := rand.New(rand.NewPCG(x.Seed, uint64(x.Once.Round)))
	for _, kind := range kinds {
		p := x.probes(kind, rng)
		seen := &Probes{Kind: kind, Due: seconds(p.At)}
		x.Once.Probes = append(x.Once.Probes, seen)
		probing.Go(func() {
			took, err := x.world.probe(ctx, p)
			seen.Took = seconds(took)
			if err != nil {
				stop(err)
			}
		})
	}
	err = x.load(ctx)
	if err == nil {
		err = lab.Sleep(ctx, x.After)
	}
	if err != nil {
		stop(err)
	}
	probing.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx) // the others follow from it
	}
	now, err := flood.ReadCPU(core)
	if x.Steal = now.Stolen(before); x.Steal > flood.MaxSteal {
		x.Invalid = append(x.Invalid, fmt.Sprintf("the hypervisor took %.1f %% of the time",
			100*x.Steal))
	}
	return err
}

// The time between the announcement of probes and their beginning: soon is for their threads to be
// there. A peer has to hear of them before, and may have other work: told, and so many errors of
// the clocks, which are halves of a round trip.
const (
	soon  = 10 * time.Millisecond
	told  = 500 * time.Millisecond
	leads = 50
)

// load is quiet, then the flows, with a look at them and at the queues each step.
func (x *watch) load(ctx context.Context) error {
	if err := lab.Sleep(ctx, x.begun-kernel.Monotonic()+x.Before); err != nil {
		return err
	}
	x.From = x.at()
	if err := x.clients.done(askBegin); err != nil {
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
	return x.clients.done(askEnd)
}

// at is the time since the run began, in seconds.
func (x *watch) at() float64 { return (kernel.Monotonic() - x.begun).Seconds() }

// look notes what has come, and what waits.
func (x *watch) look() error {
	n, err := x.clients.count()
	if err != nil {
		return err
	}
	if n.Failed != "" && len(x.Invalid) == 0 {
		x.Invalid = append(x.Invalid, "a flow ended early: "+n.Failed)
	}
	if len(n.Down) != x.Flows || len(n.Up) != x.Flows {
		if len(x.Invalid) == 0 {
			return kernel.Refuse(nil, "%sthe clients tell of %d flows down and %d up, of %d",
				x.world.where(), len(n.Down), len(n.Up), x.Flows)
		}
		return nil // of one there is no count
	}
	if err := x.add(Look{At: (n.At - x.ahead - x.begun).Seconds(), Down: n.Down,
		Up: n.Up}); err != nil {
		return fmt.Errorf("%s%w", x.world.where(), err)
	}
	x.Resent[Up] = n.Resent
	var here []queue.Queue
	if err := x.server.Do(func() (err error) {
		here, err = queue.Read(x.server.Devices[0].Index)
		return err
	}); err != nil {
		return err
	}
	for _, q := range x.Queues {
		seen := n.Queues
		if q.Way == Down {
			seen = here
		}
		q.enter(seen)
	}
	return nil
}

// add adds a look. Times that do not go on, and bytes that do not stay, give no rates.
func (r *Once) add(l Look) error {
	if len(r.Looks) > 0 {
		last := &r.Looks[len(r.Looks)-1]
		on := l.At > last.At
		for _, way := range ways {
			for i, n := range l.of(way) {
				on = on && n >= last.of(way)[i]
			}
		}
		if !on {
			return kernel.Refuse(nil, "counts of the clients at %v s are before those at %v s",
				l.At, last.At)
		}
	}
	r.Looks = append(r.Looks, l)
	return nil
}

// probes draws those of a kind: at times of a Poisson process, which fall into step with nothing.
func (x *watch) probes(kind string, rng *rand.Rand) echo.Probes {
	length := (x.Before + x.During + x.After).Seconds()
	p := echo.Probes{To: x.server.Devices[0].IPv4.Addr(), ID: rng.Uint64(), Port: probePort,
		ICMP: kind == ICMP, Begin: x.begun, Patience: lastProbe}
	for t := 0.0; ; {
		t += rng.ExpFloat64() / x.Options.Probes
		if t >= length {
			return p
		}
		p.At = append(p.At, int64(t*1e9))
	}
}

// lastProbe is the longest wait for the last probes.
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
