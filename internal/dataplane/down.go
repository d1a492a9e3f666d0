package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/keep"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// Down takes the policy off dev and removes everything that was kept for it. It works whatever
// state the attachment is in, and from either network namespace where the interface has been moved
// to another. notes tells what was found and mended on the way, one sentence each; a policy whose
// interface has vanished, or whose trial had ended with nothing before it, is such a case. with are
// interfaces that it is taken off in the same go.
func Down(ctx context.Context, dev string, with ...string) (notes []string, err error) {
	return DownAfter(ctx, dev, nil, with...)
}

// DownAfter is Down with a call of before if the removal interrupts the interface: what says how.
func DownAfter(ctx context.Context, dev string, before func(what string), with ...string) (
	notes []string, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		defer func() { notes = s.Notes }()
		d, err := attach.FindDevice(dev)
		devs := []string{dev}
		if err != nil {
			now, rerr := attach.Renamed(s, dev)
			if rerr != nil {
				return rerr
			}
			if len(now) > 0 {
				s.Note("%s is called %s now, and had kept its policy", dev, strings.Join(now, ", "))
				devs = now
			}
		}
		kept, kerr := keep.Leave(s, dev, slices.Concat(devs, with))
		if kerr != nil {
			return kerr
		}
		if err == nil {
			return downFound(s, d, kept, before)
		}
		if devs[0] == dev {
			if kept {
				s.Note("%s is waited for no more", dev)
			}
			return downVanished(s, dev, err)
		}
		for _, now := range devs {
			if d, err = attach.FindDevice(now); err == nil {
				err = downFound(s, d, kept, before)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return notes, err
}

// downFound takes the policy off an interface that there is.
func downFound(s *store.Store, d *attach.Device, kept bool, before func(what string)) error {
	key, err := attach.KeyOn(s, d)
	if err != nil {
		return err
	}
	a, err := generation.Settle(s, key)
	switch {
	case err != nil:
		return downBroken(s, key, d, err)
	case a == nil && (kept || len(s.Notes) > 0):
		return nil
	case a == nil:
		if found, err := attach.RemoveStray(s, d); found || err != nil {
			return err
		}
		return notOnNamesake(s, d.Name)
	}
	defer a.Close()
	if _, err := sets.SaveAttached(s, a, d.Name, ""); err != nil {
		s.Note("%v", err)
	}
	if g := a.Current(); before != nil && g != nil && g.Mode == store.XDPNative && !g.Joined {
		if what := d.Card().Bounces(); what != "" {
			before(what)
		}
	}
	return generation.Detach(s, a)
}

// notOnNamesake says that an interface has no policy, and if another one of its name had one.
func notOnNamesake(s *store.Store, dev string) error {
	a, err := attach.MovedAway(s, dev)
	if err != nil {
		return err
	}
	if a == nil {
		return attach.SayRenamed(s, dev, generation.NotAttached(dev))
	}
	defer a.Close()
	return fmt.Errorf("levee has no policy on this %s: the one that had %s is in another network "+
		"namespace now, and `levee down` there takes it off", dev, a.Current().Policy)
}

// downVanished cleans up after interfaces that are gone, or takes the policy off one that is in
// another network namespace now; notFound is the answer if there is none.
func downVanished(s *store.Store, dev string, notFound error) error {
	if err := generation.Sweep(s, "", func(*attach.Attachment) error { return nil }); err != nil {
		return err
	}
	a, err := attach.MovedAway(s, dev)
	switch {
	case err != nil:
		return err
	case a != nil:
		defer a.Close()
		s.Note("%s is in another network namespace now, and had kept its policy %s", dev,
			a.Current().Policy)
		return generation.Detach(s, a)
	case len(s.Notes) > 0:
		return nil
	}
	return notFound
}

// downBroken detaches a policy whose state cannot be read; why is the error of the reading.
func downBroken(s *store.Store, key string, d *attach.Device, why error) error {
	l, err := link.LoadPinnedLink(s.BPF(key, store.PinLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := attach.RemoveStray(s, d); err != nil {
			return err
		}
		return generation.Remove(s, key)
	}
	if err != nil {
		return kernel.Refuse(errors.Join(why, err), "open the pinned link of attachment %s", key)
	}
	defer l.Close()
	err = generation.Detach(s, &attach.Attachment{Key: key, Link: l})
	if err == nil { // of what is kept by filters, descriptions would have told
		_, err = attach.RemoveStray(s, d)
	}
	return err
}
