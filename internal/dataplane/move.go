package dataplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// A policy goes to another hook in one step: the new program is attached beside the old one, which
// judges little or nothing there, and takes its place as what is kept. Until the old one is gone,
// both judge. A process killed in between leaves either.

// errNoHook says why a policy that stands still stays in its place.
var errNoHook = errors.New("there is no other hook for it")

// MoveOn puts the policy in force on an interface into force anew: at the next hook, with why as
// the reason, or, where why is "", at the first one at which it is judged rightly as the interface
// is set now. It keeps counters, sets and all that it remembers; rules of the agent end with the
// move, and go on where it fails: it is tried again and again. A policy on trial stays where it is.
func MoveOn(ctx context.Context, dev, why string) (*Report, error) {
	return moveOn(ctx, UpOptions{Dev: dev, still: why}, nil)
}

// moveOn is MoveOn with a way to compile the policy; nil: its text is read again.
func moveOn(ctx context.Context, o UpOptions, compile CompileFunc) (*Report, error) {
	var rep *Report
	err := store.Transact(ctx, func(s *store.Store) error {
		g, err := movable(s, o.Dev, o.still != "")
		if err != nil {
			return err
		}
		o.putOn, o.Names = g.Dev, g.Names
		o.PolicyPath, o.Source, o.instead = g.Policy, g.Source, g.Instead
		key := g.key
		if o.Files, err = s.SetFiles(key, g.Description); err != nil {
			return err
		}
		if compile == nil {
			force := inspect.InForce{Path: o.PolicyPath, Source: o.Source, Files: o.Files}
			p, diags := force.Parse()
			if p == nil {
				return fmt.Errorf("the policy in force cannot be read again: %w", diags.Err())
			}
			compile = Compiler(p)
		}
		u := &up{Store: s, compile: compile, UpOptions: o}
		defer u.Close()
		if err := u.put(ctx); err != nil {
			return err
		}
		rep = u.report
		err = u.finish()
		rep.Notes = s.Notes
		return err
	})
	return rep, err
}

// noOtherHook reports whether a policy is where it can only stay: tc ingress is the last hook, and
// programs that share a hook by a dispatcher go nowhere alone.
func noOtherHook(g *store.Description) bool { return g.Mode.AtTC() || g.Joined }

// movable returns the policy in force on an interface, without rules of the agent.
func movable(s *store.Store, dev string, still bool) (g struct {
	*store.Description
	key string
}, err error) {
	a, err := generation.Find(s, dev)
	if err != nil {
		return g, err
	}
	defer a.Close()
	g.Description, g.key = a.Base(), a.Key
	switch {
	case a.OnTrial() != nil:
		err = ErrOnTrial
	case g.OnError != "":
		err = fmt.Errorf("only what \"on error\" asks for is in force on %s", dev)
	case still && noOtherHook(a.Current()):
		err = errNoHook
	}
	return g, err
}

// moveTo makes a link judge in the place of the former policy's link.
func (u *up) moveTo(l attach.Hold) error {
	if err := generation.Repin(u.Store, u.key, l); err != nil {
		return err
	}
	err := u.Step("let go")
	if err == nil {
		err = u.at.Link.Detach() // traffic changes here
	}
	if err != nil { // the new one is in force
		u.Note("the program before on %s goes when this command ends: %v", u.Dev, err)
	}
	return nil
}

// moveBack is moveTo with the program of the generation before.
func (u *up) moveBack(g *store.Description, before *ebpf.Program) error {
	now, err := attach.Open(u.Store, u.key)
	if err != nil {
		return err
	}
	defer now.Close()
	l, err := attach.Attach(u.Store, u.key, u.dev, g, before)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := generation.Repin(u.Store, u.key, l); err != nil {
		return err
	}
	return now.Link.Detach()
}
