package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// A policy can be bound to names of interfaces. A process, the keeper, waits for interfaces of
// these names and gives each the policy as soon as it comes. What is bound stands in a record:
//
//	keep/ID.json  the names, and whose process it is
//	keep/ID.lock  flock of the keeper, for as long as it lives
//
// While a record is there, what is kept for an interface that has vanished stays: its program is
// loaded, its sets hold their entries. The interface that comes back under the name gets that very
// program, by a new link: nothing is compiled or verified again.

// Kept is a policy that is bound to names.
type Kept struct {
	Names   []string
	Policy  string
	Pid     int      // of the keeper
	Running bool     // it lives
	Waiting []string // names that no interface of this network namespace fits
}

// Keeping lists what is bound to names in this network namespace.
func Keeping(ctx context.Context) (out []Kept, err error) {
	if refused := kernel.Privileged(); refused != nil {
		s, err := store.ForReading(ctx, refused)
		if err != nil {
			return nil, err
		}
		return keptHere(s, func(r *store.Record) bool { // its lock is root's
			_, err := os.Stat(fmt.Sprintf("/proc/%d", r.Pid))
			return err == nil
		})
	}
	err = store.Transact(ctx, func(s *store.Store) error {
		out, err = keptHere(s, func(r *store.Record) bool {
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

func keptHere(s *store.Store, running func(*store.Record) bool) (out []Kept, err error) {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return nil, err
	}
	all, err := s.Records()
	if err != nil {
		return nil, err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, kernel.Refuse(err, "list the interfaces of this network namespace")
	}
	for _, r := range all {
		if r.Netns != netns {
			continue
		}
		k := Kept{Names: r.Names, Policy: r.Policy, Pid: r.Pid, Running: running(&r)}
		for _, name := range r.Names {
			fits := func(l netlink.Link) bool { return policy.Fits(name, l.Attrs().Name) }
			if !slices.ContainsFunc(links, fits) {
				k.Waiting = append(k.Waiting, name)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// Unkeep unbinds all policies of this network namespace that no interface has, and says of which
// names.
func Unkeep(ctx context.Context) (names []string, err error) {
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
			others, lerr := othersOf(s, &r, "")
			if err = errors.Join(err, lerr); len(others) == 0 && lerr == nil {
				err = errors.Join(err, forgetKept(s, &r))
				names = append(names, r.Names...)
			}
		}
		return err
	})
	return names, err
}

// adopt gives an interface the program that was in force on the one of its name before. It reports
// false where there is none, or none that fits what the interface is now.
func adopt(s *store.Store, dev string) (bool, error) {
	d, err := attach.FindDevice(dev)
	if err != nil {
		return false, err
	}
	keys, err := s.Keys()
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		a, err := attach.Open(s, key)
		if err != nil {
			continue // not this command's business
		}
		done, err := adoptFrom(s, a, d)
		a.Close()
		if done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// adoptFrom does so with what waits under one key.
func adoptFrom(s *store.Store, a *attach.Attachment, d *attach.Device) (bool, error) {
	last := a.Last()
	if a.Link == nil || a.Ifindex != 0 || last == nil || last.Dev != d.Name ||
		last.Netns != d.Netns {
		return false, nil
	}
	g := a.Lasting()
	if g == nil || g.Link != d.Link || g.Mode == store.Clsact || g.Joined {
		return false, nil
	}
	pin := filepath.Join(s.Pins(a.Key, g.Generation), store.PinProg)
	prog, err := s.OpenProgram(pin)
	if errors.Is(err, fs.ErrNotExist) { // see below
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer prog.Close()
	if !g.Mode.AtTC() {
		if joins, err := attach.RefuseForeign(s, d); err != nil || joins {
			return false, err
		}
	}
	if left, err := attach.LeaveAgain(s, a.Key, d, g); err != nil || !left {
		return false, err
	}
	l, err := attach.AttachAgain(s, a.Key, d, g, prog)
	if err != nil {
		// A device that has gone again may come back.
		if now, gone := attach.FindDevice(d.Name); gone != nil || now.Index != d.Index {
			return false, nil
		}
		// Another way may do, with a program for it. What this one has at egress goes first.
		return false, errors.Join(attach.Unlink(s, a.Key, nil), os.Remove(pin))
	}
	defer l.Close() // without a pin, this detaches
	if err := generation.Repin(s, a.Key, l); err != nil {
		return false, err
	}
	if err := endShadows(s, a); err != nil { // that judged on the interface before
		return true, err
	}
	g.Ifindex = d.Index
	if err := store.WriteJSON(s.DescriptionPath(a.Key, g.Generation), g); err != nil {
		return true, err
	}
	after, err := generation.Settle(s, a.Key)
	if after != nil {
		after.Close()
	}
	return true, err
}
