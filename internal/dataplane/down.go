package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf/link"

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

// DownAfter is Down that tells before what the interface does when its program goes, where that
// interrupts it.
func DownAfter(ctx context.Context, dev string, before func(what string), with ...string) (
	notes []string, err error) {
	err = transact(ctx, func(s *store) error {
		defer func() { notes = s.notes }()
		d, err := findDevice(dev)
		kept, kerr := s.unkeep(dev, with)
		if kerr != nil {
			return kerr
		}
		if err != nil && kept {
			s.note("%s is waited for no more", dev)
		}
		if err != nil {
			return s.downVanished(dev, err)
		}
		key, err := s.keyOn(d)
		if err != nil {
			return err
		}
		a, err := s.settle(key)
		switch {
		case err != nil:
			return s.downBroken(key, d, err)
		case a == nil && (kept || len(s.notes) > 0):
			return nil
		case a == nil:
			if found, err := s.removeStray(d); found || err != nil {
				return err
			}
			return s.notOnNamesake(dev)
		}
		defer a.Close()
		if _, err := s.save(a, dev, ""); err != nil {
			s.note("%v", err)
		}
		if g := a.current(); before != nil && g != nil && g.Mode == XDPNative && !g.Joined {
			if what := d.card().Bounces(); what != "" {
				before(what)
			}
		}
		return s.detach(a)
	})
	return notes, err
}

// notOnNamesake says that an interface has no policy, and if another one of its name had one.
func (s *store) notOnNamesake(dev string) error {
	a, err := s.movedAway(dev)
	if err != nil {
		return err
	}
	if a == nil {
		return notAttached(dev)
	}
	defer a.Close()
	return fmt.Errorf("levee has no policy on this %s: the one that had %s is in another network "+
		"namespace now, and `levee down` there takes it off", dev, a.current().Policy)
}

// downVanished cleans up after interfaces that are gone, or takes the policy off one that is in
// another network namespace now; notFound is the answer if there is none.
func (s *store) downVanished(dev string, notFound error) error {
	if err := s.sweep("", func(*attachment) error { return nil }); err != nil {
		return err
	}
	a, err := s.movedAway(dev)
	switch {
	case err != nil:
		return err
	case a != nil:
		defer a.Close()
		s.note("%s is in another network namespace now, and had kept its policy %s", dev,
			a.current().Policy)
		return s.detach(a)
	case len(s.notes) > 0:
		return nil
	}
	return notFound
}

// downBroken detaches where the state cannot be read; why is the error that said so.
func (s *store) downBroken(key string, d *device, why error) error {
	l, err := link.LoadPinnedLink(s.bpf(key, pinLink), nil)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := s.removeStray(d); err != nil {
			return err
		}
		return s.remove(key)
	}
	if err != nil {
		return kernel.Refuse(errors.Join(why, err), "open the pinned link of attachment %s", key)
	}
	defer l.Close()
	err = s.detach(&attachment{key: key, link: l})
	if err == nil { // of what is kept by filters, descriptions would have told
		_, err = s.removeStray(d)
	}
	return err
}
