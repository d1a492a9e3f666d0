package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"levee/internal/lab/talk"
)

// What clients of a service of package talk do, as Request.What says.
const (
	// Join is a client that has not been there before, or from another port.
	Join = "join"
	// GoOn is a packet of a session that began before the flood.
	GoOn = "session"
	// Return is a join from an address of those sessions.
	Return = "return"
)

// sessionsEach is the number of sessions that each of their addresses has.
const sessionsEach = 2

// Talking runs f while a service of package talk serves on the server, and clients come to it:
// joins, as many a second as are asked for, from the first half of the world's addresses, as many
// joins again from the second half, and twice as many packets of sessions from there. Each outcome
// is told to tell; it fails after some patience.
func (s *Stage) Talking(ctx context.Context, t *talk.Service, joins float64,
	patience time.Duration, tell func(Request), f func() error) error {
	out, to := s.World.Devices[0], s.Server.Devices[0].IPv4.Addr().String()
	return s.populated(ctx, awayButAsked, []string{roleTalk, t.Name, to},
		withAddresses([]string{roleTalkers, t.Name, to, fmt.Sprint(joins), patience.String()},
			out.Clients4), tell, f)
}

// Idle returns the addresses whose sessions have begun before a flood.
func (s *Stage) Idle() []netip.Addr { _, idle := halves(s.World.Devices[0].Clients4); return idle }

func halves(list []netip.Addr) (joining, idle []netip.Addr) {
	return list[:len(list)/2], list[len(list)/2:]
}

// talkers join a service and go on, until ctx ends.
func talkers(ctx context.Context, t *talk.Service, to netip.Addr, perSecond float64,
	patience time.Duration, from []netip.Addr, out io.Writer) error {
	joining, idle := halves(from)
	if len(joining) == 0 {
		return errors.New("clients need two addresses")
	}
	var sessions []*talk.Client
	for i := range sessionsEach * len(idle) {
		c, err := t.Dial(idle[i%len(idle)], to)
		if err != nil {
			return err
		}
		defer c.Close()
		sessions = append(sessions, c)
		if err := begin(ctx, c); err != nil {
			return fmt.Errorf("a session does not begin: %w", err)
		}
	}
	tell := newTeller(out)
	tell.spread, tell.patience = true, patience
	join := func(from []netip.Addr) func(context.Context, int, time.Time) error {
		return func(ctx context.Context, i int, _ time.Time) error {
			c, err := t.Dial(from[i%len(from)], to)
			if err != nil {
				return err
			}
			defer c.Close()
			return c.Join(ctx)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { tell.openLoop(ctx, Join, perSecond, join(joining)) })
	all.Go(func() { tell.openLoop(ctx, Return, perSecond, join(idle)) })
	if t.GoesOn() {
		all.Go(func() {
			tell.openLoop(ctx, GoOn, 2*perSecond, func(ctx context.Context, i int,
				_ time.Time) error {
				return sessions[i%len(sessions)].GoOn(ctx)
			})
		})
	}
	all.Wait()
	return nil
}

// begin has a client join; where addresses are what is proven, over TCP.
func begin(ctx context.Context, c *talk.Client) error {
	patient, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if c.AddressIsProof {
		return c.JoinByTCP(patient)
	}
	return c.Join(patient)
}
