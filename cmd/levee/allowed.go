package main

import (
	"context"
	"fmt"

	"levee/internal/cli"
	"levee/internal/dataplane"
	"levee/internal/dataplane/guard"
	"levee/internal/host/local"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// allowed is an error for a policy that one of the interfaces cannot have, or may not; it adds what
// may be put in force instead.
func (e *env) allowed(pr *cli.Parsed, devs []string, force bool, opts *dataplane.UpOptions) error {
	var all []guarded
	for _, dev := range devs {
		if _, err := e.linkFor(pr, dev); err != nil {
			return err
		}
		g, err := e.guarded(pr.Policy, dev, force)
		if err != nil {
			return err
		}
		if err := guard.Check(pr.Policy, g.link, g.sessions, g.entries); err != nil {
			return fmt.Errorf("refused: %w, or use --force", err)
		}
		all = append(all, g)
	}
	opts.Fallbacks = e.fallbacks(pr.Policy, all)
	return nil
}

// guarded is what a policy may do harm to on an interface.
type guarded struct {
	link     packet.Link
	sessions []session.Session
	entries  guard.Entries // of the policy's dynamic sets
}

func (e *env) guarded(p *policy.Policy, dev string, force bool) (g guarded, err error) {
	if g.link, err = e.link(dev); err != nil || force {
		return g, err
	}
	if g.sessions, err = e.sessions(dev); err != nil {
		e.Sayf("cannot look for SSH sessions that the policy might cut: %v", err)
	}
	if g.sessions = e.alive(dev, g.link, g.sessions); len(g.sessions) > 0 {
		if g.entries, err = e.entries(dev, p); err != nil {
			e.Sayf("cannot look into dynamic sets for SSH sessions that the policy might cut: %v",
				err)
		}
	}
	return g, nil
}

// alive are the sessions that the policy in force on an interface lets live, if there is one.
func (e *env) alive(dev string, link packet.Link, sessions []session.Session) []session.Session {
	if len(sessions) == 0 {
		return nil
	}
	p, err := e.policyOn(context.Background(), dev)
	if err != nil {
		return sessions // none is in force, or it cannot be told what it does
	}
	entries, err := e.entries(dev, p)
	if err != nil {
		return sessions
	}
	return guard.Alive(p, link, sessions, entries)
}

// fallbacks are what `on error` of a policy asks for.
func (e *env) fallbacks(p *policy.Policy, devs []guarded) (all []dataplane.Fallback) {
	plain := true
	for _, g := range devs {
		fallbacks, err := guard.Fallbacks(p, g.link, g.sessions, g.entries)
		if err != nil { // said at once, while somebody is there to read it
			e.Sayf("what \"on error\" asks for will not be used: refused: %v, or use --force", err)
			return nil
		}
		all = nil
		for _, fallback := range fallbacks {
			all = append(all, dataplane.Fallback{Compile: dataplane.Compiler(fallback)})
		}
		plain = plain && guard.Plain(p, g.sessions)
	}
	if n := len(all); n > 0 && plain {
		all = append(all, dataplane.Fallback{Compile: dataplane.Plainly(all[n-1].Compile)})
	}
	return all
}

// entries are what the dynamic sets of a policy will hold on dev: what is in those of the policy in
// force there that have their names.
func (e *env) entries(dev string, p *policy.Policy) (guard.Entries, error) {
	ctx, stop := e.Signals()
	defer stop()
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
		all, err := dataplane.SetEntries(ctx, dev, s.Name)
		if err != nil {
			return out, err
		}
		for i := range all {
			out[s.Name] = append(out[s.Name], all[i].Element())
		}
	}
	return out, nil
}
