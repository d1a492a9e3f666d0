// Package lockout keeps a policy out of force that would cut whoever administers the machine off.
// In go a policy, interfaces and the sessions whose packets arrive there. Out come a refusal that
// says what to write, or what may be put into force in the policy's place. It must never change
// anything, nor take a session that it could not look for as one that is safe without saying so.
package lockout

import (
	"context"
	"fmt"

	"levee/internal/dataplane"
	"levee/internal/dataplane/guard"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/host/local"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Gate looks at the machine for who may be cut off.
type Gate struct {
	// Link is the link layer of an interface.
	Link func(dev string) (packet.Link, error)
	// Sessions are those whose packets arrive on an interface.
	Sessions func(dev string) ([]session.Session, error)
	// Say is told which sessions could not be found.
	Say func(format string, args ...any)
}

// AtRisk lists the sessions on an interface that a policy may cut.
type AtRisk struct {
	link     packet.Link
	sessions []session.Session
	entries  guard.Entries // of the policy's dynamic sets
}

// Check returns an error for a policy that would do harm.
func (r *AtRisk) Check(p *policy.Policy) error {
	return guard.Check(p, r.link, r.sessions, r.entries)
}

// warn says which session goes on under a policy, and could not be begun again.
func (r *AtRisk) warn(p *policy.Policy, say func(format string, args ...any)) {
	if err := guard.CheckNew(p, r.link, r.sessions, r.entries); err != nil {
		say("warning: who is logged in stays so, and cannot log in again: %v", err)
	}
}

// Allowed returns an error for a policy that one of the interfaces may not have, unless it is
// forced, and warns of one that lets nobody begin a session anew. It returns what may be put into
// force instead.
func (g *Gate) Allowed(ctx context.Context, p *policy.Policy, devs []string,
	force bool) ([]dataplane.Fallback, error) {
	var all []AtRisk
	for _, dev := range devs {
		r, err := g.Look(ctx, p, dev, force)
		if err != nil {
			return nil, err
		}
		if err := r.Check(p); err != nil {
			return nil, fmt.Errorf("refused: %w, or use --force", err)
		}
		r.warn(p, g.Say)
		all = append(all, r)
	}
	return g.Fallbacks(p, all), nil
}

// Look returns what a policy may do harm to on an interface: nothing where it is forced.
func (g *Gate) Look(ctx context.Context, p *policy.Policy, dev string,
	force bool) (r AtRisk, err error) {
	if r.link, err = g.Link(dev); err != nil || force {
		return r, err
	}
	if r.sessions, err = g.Sessions(dev); err != nil {
		g.Say("cannot look for SSH sessions that the policy might cut: %v", err)
	}
	if r.sessions = alive(ctx, dev, r.link, r.sessions); len(r.sessions) > 0 {
		if r.entries, err = entries(ctx, dev, p); err != nil {
			g.Say("cannot look into dynamic sets for SSH sessions that the policy might cut: %v",
				err)
		}
	}
	return r, nil
}

// Live returns an error for a policy with live rules that would cut a session of this machine.
func (g *Gate) Live(ctx context.Context, dev string, p *policy.Policy) error {
	sessions, err := g.Sessions(dev)
	if err != nil || len(sessions) == 0 {
		return err
	}
	link, err := g.Link(dev)
	if err != nil {
		return err
	}
	r := AtRisk{link: link, sessions: alive(ctx, dev, link, sessions)}
	if r.entries, err = entries(ctx, dev, p); err != nil {
		return err
	}
	return r.Check(p)
}

// Imported returns an error for a policy that would end a session of this machine, or under which
// it could not be begun again. On another machine than the rules are of there is none to find.
func (g *Gate) Imported(p *policy.Policy, dev string) error {
	sessions, err := g.Sessions(dev)
	if err != nil || len(sessions) == 0 {
		return nil // no right to look: levee up looks again
	}
	link, err := g.Link(dev)
	if err != nil {
		return nil // no device of that name: no policy is put there
	}
	if err := guard.Check(p, link, sessions, nil); err != nil {
		return err
	}
	return guard.CheckNew(p, link, sessions, nil)
}

// Service returns an error for a policy of a service that would cut a session that it has accepted,
// as that of sshd.service would, and warns of one that lets nobody begin it anew.
func Service(ctx context.Context, name string, p *policy.Policy, all []session.Session,
	say func(format string, args ...any)) error {
	if len(all) == 0 {
		return nil
	}
	held, err := entries(ctx, store.Service(name), p)
	if err != nil {
		return fmt.Errorf("look whether the policy would end a session: %w, or use --force", err)
	}
	r := AtRisk{link: packet.L3, sessions: all, entries: held}
	if err := r.Check(p); err != nil {
		return fmt.Errorf("refused: %w, or use --force", err)
	}
	r.warn(p, say)
	return nil
}

// Fallbacks returns the policies that `on error` puts in force.
func (g *Gate) Fallbacks(p *policy.Policy, at []AtRisk) (all []dataplane.Fallback) {
	plain := true
	for _, r := range at {
		fallbacks, err := guard.Fallbacks(p, r.link, r.sessions, r.entries)
		if err != nil { // said at once, while somebody is there to read it
			g.Say("what \"on error\" asks for will not be used: refused: %v, or use --force", err)
			return nil
		}
		all = nil
		for _, fallback := range fallbacks {
			all = append(all, dataplane.Fallback{Compile: dataplane.Compiler(fallback)})
		}
		plain = plain && guard.Plain(p, r.sessions)
	}
	if n := len(all); n > 0 && plain {
		all = append(all, dataplane.Fallback{Compile: dataplane.Plainly(all[n-1].Compile)})
	}
	return all
}

// alive returns the sessions that the policy in force on an interface lets live, if there is one.
func alive(ctx context.Context, dev string, link packet.Link,
	sessions []session.Session) []session.Session {
	if len(sessions) == 0 {
		return nil
	}
	p, err := InForce(ctx, dev)
	if err != nil {
		return sessions // none is in force, or it cannot be told what it does
	}
	held, err := entries(ctx, dev, p)
	if err != nil {
		return sessions
	}
	return guard.Alive(p, link, sessions, held)
}

// InForce returns the operator's policy in force on an interface.
func InForce(ctx context.Context, dev string) (*policy.Policy, error) {
	shown, _, err := inspect.Show(ctx, dev)
	if err != nil {
		return nil, err
	}
	p, ds := shown.Parse()
	if p == nil {
		return nil, fmt.Errorf("the policy on %s cannot be read again: %s", dev, ds[0].Message)
	}
	return p, nil
}

// entries returns what the dynamic sets of a policy will hold on dev: what is in those of the
// policy in force there that have their names.
func entries(ctx context.Context, dev string, p *policy.Policy) (guard.Entries, error) {
	out := guard.Entries{}
	for _, s := range p.Sets {
		if s.Kind != policy.Dynamic {
			continue
		}
		if s.Self {
			self, err := local.Prefixes()
			if err != nil {
				return out, err
			}
			for _, p := range self {
				out[s.Name] = append(out[s.Name], policy.Element{Prefix: p})
			}
			continue
		}
		all, err := sets.Entries(ctx, dev, s.Name)
		if err != nil {
			return out, err
		}
		for i := range all {
			out[s.Name] = append(out[s.Name], all[i].Element())
		}
	}
	return out, nil
}
