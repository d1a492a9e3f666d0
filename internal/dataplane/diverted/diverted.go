// Package diverted brings connections that policies divert to who listens for them. In go addresses
// and interfaces, out come listeners, and what has changed in words. It must never take a
// connection itself, nor end because a policy goes: another may come.
package diverted

import (
	"context"
	"net"
	"time"

	"levee/internal/dataplane/tap"
	"levee/internal/kernel"
)

// Listen listens at addresses. Connections cannot be diverted to a socket of multipath TCP.
func Listen(ctx context.Context, addresses []string,
	say func(format string, args ...any)) ([]net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	listeners := make([]net.Listener, 0, len(addresses))
	for _, address := range addresses {
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			Close(listeners)
			return nil, kernel.Refuse(nil, "%v", err)
		}
		listeners = append(listeners, l)
		say("at %s, until Ctrl-C", l.Addr())
	}
	return listeners, nil
}

// Close closes listeners.
func Close(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// lookAgain is the interval at which a trap looks for policies that have come.
const lookAgain = time.Second

// Join has what the policies on interfaces divert reach listeners, until ctx ends. It has looked at
// each interface once when it returns; wait waits for its end.
func Join(ctx context.Context, devs []string, listeners []net.Listener,
	say func(format string, args ...any)) (wait func(), err error) {
	all := make([]*diversion, len(devs))
	for i, dev := range devs {
		t, err := tap.NewTrap(dev, listeners)
		if err != nil {
			return nil, kernel.Refuse(nil, "%v", err)
		}
		all[i] = &diversion{say: say, dev: dev, trap: t}
		if _, err := t.Join(ctx); err != nil {
			return nil, kernel.Refuse(nil, "%v", err)
		}
		all[i].look(ctx)
	}
	if len(all) == 0 {
		return func() {}, nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, d := range all {
				d.look(ctx)
			}
		}
	}()
	return func() { <-ended }, nil
}

// diversion is a trap for one interface.
type diversion struct {
	say  func(format string, args ...any)
	dev  string
	trap *tap.Trap
	said string
}

// look joins a policy that has come, and tells of what has changed.
func (d *diversion) look(ctx context.Context) {
	now := "no policy on " + d.dev + " diverts connections: waiting for one"
	switch joined, err := d.trap.Join(ctx); {
	case ctx.Err() != nil:
		return
	case err != nil:
		now = err.Error()
	case joined:
		now = "what the policy on " + d.dev + " diverts comes here" + d.trap.Lacks()
	}
	if now != d.said {
		d.said = now
		d.say("%s", now)
	}
}
