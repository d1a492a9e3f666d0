package dataplane

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
)

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
		all, err := attach.Described(s, a.Key)
		return false, errors.Join(err, attach.Unlink(s, a.Key, all, nil), os.Remove(pin))
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
