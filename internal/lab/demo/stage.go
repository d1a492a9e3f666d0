package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"

	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/packet"
)

// Stage is a lab with a web service on its server, to which visitors come from its world.
type Stage struct {
	Server, World *lab.Host
	self          []string // the command line that calls Role, to which its arguments are added
	lab           *lab.Lab
}

// Open makes the lab. It stays for the tidying up after an interruption; Close removes it.
func Open(ctx context.Context, self []string) (*Stage, error) {
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	return &Stage{l.Host(lab.Server), l.Host(lab.World), self, l}, nil
}

// Close removes the lab.
func (s *Stage) Close() error { return s.lab.Close() }

// awayPolicy throws the server's answers to spoofed addresses away where they arrive. In the world
// they go elsewhere; here they would take time from the flood, the more the less the server drops.
const awayPolicy = `
pass to { 198.18.0.0/15, 2001:db8::/32 }
default drop
`

// awayButAsked is the same where floods come in the names of visitors, too: answers to what none of
// them has sent stay out of the world's stack. There are as many as packets of the flood, on the
// core that sends it, where in the world each visitor has a machine of its own for his share.
const awayButAsked = `
pass established
default drop
`

// Service returns where the web service is, in the family of its visitors.
func (s *Stage) Service(family packet.Family) netip.AddrPort {
	d := s.Server.Devices[0]
	if family == packet.IPv6 {
		return netip.AddrPortFrom(d.IPv6.Addr(), servicePort)
	}
	return netip.AddrPortFrom(d.IPv4.Addr(), servicePort)
}

// Populated runs f while the service serves and visitors come to it by IPv4 or IPv6, so many
// requests a second; each outcome is told to tell, which is not called any more once Populated has
// returned.
func (s *Stage) Populated(ctx context.Context, family packet.Family, perSecond float64,
	tell func(Request), f func() error) (err error) {
	out := s.World.Devices[0]
	args := []string{roleVisitors, s.Service(family).String(), fmt.Sprint(perSecond)}
	clients := out.Clients4
	if family == packet.IPv6 {
		clients = out.Clients6
	}
	return s.populated(ctx, awayPolicy, []string{roleService, s.Service(family).String()},
		withAddresses(args, clients), tell, f)
}

// Crowded is Populated with all requests that a host of the Internet gets and sends: visits,
// lookups, datagrams, pings, transfers both ways, by IPv4.
func (s *Stage) Crowded(ctx context.Context, tell func(Request), f func() error) error {
	service, clients := s.Service(packet.IPv4).String(), s.World.Devices[0].Clients4
	return s.populated(ctx, awayPolicy, withAddresses([]string{roleHost, service}, clients),
		withAddresses([]string{roleCrowd, service}, clients), tell, f)
}

// withAddresses adds addresses to the arguments of a role.
func withAddresses(args []string, list []netip.Addr) []string {
	for _, a := range list {
		args = append(args, a.String())
	}
	return args
}

// populated runs f while a role runs on the server and then another in the world, where a policy
// says what of the server's answers arrives.
func (s *Stage) populated(ctx context.Context, policy string, serving, visiting []string,
	tell func(Request), f func() error) (err error) {
	in, out := s.Server.Devices[0], s.World.Devices[0]
	if err := s.priorities(in.NAPI, out.NAPI); err != nil {
		return err
	}
	away := contender.Levee("away", []byte(policy))
	if err := away.Install(ctx, contender.Site{Host: s.World, Device: out.Name}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, away.Remove(context.WithoutCancel(ctx))) }()
	server, err := start(ctx, s.self, s.Server, Core(in), serviceRank, serving...)
	if err != nil {
		return err
	}
	if err := server.ready(); err != nil {
		return err
	}
	visitors, err := start(ctx, s.self, s.World, Core(out), visitorsRank, visiting...)
	if err != nil {
		return errors.Join(err, server.stop())
	}
	var told sync.WaitGroup
	for _, c := range []*child{server, visitors} {
		told.Go(func() { c.requests(tell) })
	}
	err = f()
	ended := errors.Join(visitors.stop(), server.stop())
	told.Wait()
	if ctx.Err() != nil {
		return err // what was interrupted did not end well
	}
	return errors.Join(err, ended)
}

// priorities of the kernel threads that receive for server and world: before all programs, as the
// soft interrupt does in which most drivers receive. Their rings are full 0.1 ms after they were
// told to wait, also the world's, which gets the answers to what is forged.
func (s *Stage) priorities(server, world int) error {
	if runtime.NumCPU() < 2 {
		return kernel.Refuse(nil, "the demo needs two cores: one for the server, one for the world")
	}
	if server == 0 || world == 0 {
		return kernel.Refuse(
			nil, "this kernel does not say which threads receive (needs Linux 6.8)")
	}
	if err := kernel.GoFirst(server, receivingFirst); err != nil {
		return fmt.Errorf("raising the priority of the server's receiving thread: %w", err)
	}
	if err := kernel.GoFirst(world, receivingFirst); err != nil {
		return fmt.Errorf("raising the priority of the world's receiving thread: %w", err)
	}
	return nil
}

// Core returns the core that a device receives on; with one core only, it is that one.
func Core(d lab.Device) int { return max(d.CPU, 0) }
