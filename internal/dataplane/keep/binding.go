package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Binding is a policy that is bound to names.
type Binding struct {
	Names    []string
	Policy   string
	Pid      int      // of the keeper
	Running  bool     // it lives
	Starting bool     // it has not yet put the policy in force on what there is
	Waiting  []string // names that no interface of this network namespace fits
}

// List returns what is bound to names in this network namespace.
func List(ctx context.Context) (out []Binding, err error) {
	if refused := kernel.Privileged(); refused != nil {
		s, err := store.ForReading(ctx, refused)
		if err != nil {
			return nil, err
		}
		return boundHere(s, func(r *store.Record) bool { // its lock is root's
			_, err := os.Stat(fmt.Sprintf("/proc/%d", r.Pid))
			return err == nil
		})
	}
	err = store.Transact(ctx, func(s *store.Store) error {
		out, err = boundHere(s, func(r *store.Record) bool {
			f, err := s.LockRecord(r)
			if err == nil {
				f.Close()
			}
			return errors.Is(err, unix.EWOULDBLOCK)
		})
		return err
	})
	return out, err
}

func boundHere(s *store.Store, running func(*store.Record) bool) (out []Binding, err error) {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return nil, err
	}
	all, err := s.Records()
	if err != nil {
		return nil, err
	}
	links, err := local.Links()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Netns != netns {
			continue
		}
		b := Binding{Names: r.Names, Policy: r.Policy, Pid: r.Pid, Running: running(&r),
			Starting: r.Starting}
		for _, name := range r.Names {
			fits := func(l netlink.Link) bool { return policy.Fits(name, l.Attrs().Name) }
			if !slices.ContainsFunc(links, fits) {
				b.Waiting = append(b.Waiting, name)
			}
		}
		out = append(out, b)
	}
	return out, nil
}

// EndIdle unbinds all policies of this network namespace that no interface has, and says of which
// names.
func EndIdle(ctx context.Context) (names []string, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		netns, err := attach.NetnsCookie()
		if err != nil {
			return err
		}
		all, err := s.Records()
		for _, r := range all {
			if r.Netns != netns {
				continue
			}
			devs, lerr := devsOf(s, &r)
			if err = errors.Join(err, lerr); len(devs) == 0 && lerr == nil {
				err = errors.Join(err, End(s, &r))
				names = append(names, r.Names...)
			}
		}
		return err
	})
	return names, err
}

// Leave unbinds a policy from an interface that it is taken off, unless others have it with it that
// keep it: with lose it, too. It reports whether the policy was bound.
func Leave(s *store.Store, dev string, with []string) (found bool, err error) {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return false, err
	}
	all, err := s.Records()
	for _, r := range all {
		if r.Netns != netns {
			continue
		}
		devs, lerr := devsOf(s, &r)
		if !r.Fits(netns, dev) && !slices.Contains(r.Names, dev) && !slices.Contains(devs, dev) {
			err = errors.Join(err, lerr)
			continue
		}
		found = true
		others := slices.DeleteFunc(devs,
			func(o string) bool { return o == dev || slices.Contains(with, o) })
		if lerr != nil || len(others) > 0 {
			err = errors.Join(err, lerr)
			s.Note("%s is kept together with %s, and gets the policy when it comes anew: "+
				"`levee down` without --dev ends that", dev, strings.Join(others, ", "))
			continue
		}
		err = errors.Join(err, End(s, &r))
	}
	_ = os.Remove(s.Keeps()) // fails while there is something
	return found, err
}

// End unbinds names, so that their keeper ends, and removes what waits for them.
func End(s *store.Store, r *store.Record) error {
	for _, ending := range []string{".json", ".lock"} {
		if err := os.Remove(s.Keeps(r.ID() + ending)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "unbind the policy from %s", strings.Join(r.Names, ", "))
		}
	}
	_ = os.Remove(s.Keeps()) // fails while there are others
	return generation.Sweep(s, "", func(*attach.Attachment) error { return nil })
}

// devsOf lists the interfaces that have a policy by a record.
func devsOf(s *store.Store, r *store.Record) (devs []string, err error) {
	err = each(s, func(l netlink.Link, g *store.Description) {
		if now := l.Attrs().Name; r.Fits(r.Netns, now) || r.Fits(g.Netns, g.Dev) {
			devs = append(devs, now)
		}
	})
	return devs, err
}

// each visits the interfaces of this network namespace that have a policy.
func each(s *store.Store, visit func(netlink.Link, *store.Description)) error {
	return generation.Sweep(s, "", func(a *attach.Attachment) error {
		l, err := a.Here()
		if g := a.Current(); err == nil && l != nil && g != nil {
			visit(l, g)
		}
		return err
	})
}
