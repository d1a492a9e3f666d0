package dataplane

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// succeed finds what an interface without a policy goes on from: the entries of one that has the
// policy with it, or all that is kept for the one before of its name, which has vanished. Whether
// the program itself could be adopted does not matter: a card of another driver has another one.
func (u *up) succeed() error {
	if u.at != nil {
		return nil
	}
	keys, err := u.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		a, err := attach.Open(u.Store, key)
		if err != nil {
			continue // not this command's business
		}
		last := a.Last()
		if g := a.Lasting(); g != nil && attach.Waits(u.Store, a) && last.Dev == u.dev.Name &&
			last.Netns == u.dev.Netns {
			u.waiting, u.from = a, placed{key: key, g: g}
			return nil
		}
		a.Close()
	}
	here := func(a *attach.Attachment) bool { return a.Ifindex != 0 }
	if i := slices.IndexFunc(u.siblings, here); i >= 0 {
		u.from = placed{key: u.siblings[i].Key, g: u.siblings[i].Current()}
	}
	return nil
}

// unkeep unbinds a policy from an interface that it is taken off, unless others have it with it
// that keep it: with lose it, too.
func unkeep(s *store.Store, dev string, with []string) (found bool, err error) {
	netns, err := attach.NetnsCookie()
	if err != nil {
		return false, err
	}
	all, err := s.Records()
	for _, r := range all {
		if !r.Fits(netns, dev) && !slices.Contains(r.Names, dev) || r.Netns != netns {
			continue
		}
		found = true
		others, lerr := othersOf(s, &r, dev)
		others = slices.DeleteFunc(others, func(o string) bool { return slices.Contains(with, o) })
		if lerr != nil || len(others) > 0 {
			err = errors.Join(err, lerr)
			s.Note("%s is kept together with %s, and gets the policy when it comes anew: "+
				"`levee down` without --dev ends that", dev, strings.Join(others, ", "))
			continue
		}
		err = errors.Join(err, forgetKept(s, &r))
	}
	return found, err
}

// forgetKept unbinds names, so that their keeper ends, and removes what waits for them.
func forgetKept(s *store.Store, r *store.Record) error {
	for _, ending := range []string{".json", ".lock"} {
		if err := os.Remove(s.Keeps(r.ID() + ending)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return kernel.Refuse(err, "unbind the policy from %s", strings.Join(r.Names, ", "))
		}
	}
	_ = os.Remove(s.Keeps()) // fails while there are others
	return generation.Sweep(s, "", func(*attach.Attachment) error { return nil })
}

// othersOf lists the interfaces that have a policy by a record, but for one.
func othersOf(s *store.Store, r *store.Record, dev string) (devs []string, err error) {
	err = generation.Sweep(s, "", func(a *attach.Attachment) error {
		l, err := a.Here()
		if err == nil && l != nil && l.Attrs().Name != dev && r.Fits(r.Netns, l.Attrs().Name) {
			devs = append(devs, l.Attrs().Name)
		}
		return err
	})
	return devs, err
}
