package dataplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// IsNotAttached says whether an error is that an interface has no policy.
func IsNotAttached(err error) bool { return errors.As(err, new(*notAttachedError)) }

// transactOn is transact with what is attached to an interface.
func transactOn(ctx context.Context, dev string, fn func(*store, *attachment) error) error {
	_, err := notedOn(ctx, dev, fn)
	return err
}

// notedOn is transactOn with the notes on what was done.
func notedOn(ctx context.Context, dev string, fn func(*store, *attachment) error) (
	notes []string, err error) {
	err = transact(ctx, func(s *store) error {
		defer func() { notes = s.notes }()
		a, err := s.find(dev)
		if err != nil {
			return err
		}
		defer a.Close()
		return fn(s, a)
	})
	return notes, err
}

// find is the attachment on dev in this network namespace, settled.
func (s *store) find(dev string) (*attachment, error) {
	d, err := findDevice(dev)
	if err != nil {
		return nil, err
	}
	key, err := s.keyOn(d)
	if err != nil {
		return nil, err
	}
	a, err := s.settle(key)
	if err != nil {
		a, err = s.unsettled(key, err)
	}
	if err == nil && a == nil {
		err = notAttached(dev)
	}
	return a, err
}

// notAttachedError says that no policy is on an interface.
type notAttachedError struct{ dev string }

func notAttached(dev string) error { return &notAttachedError{dev} }

// exists says whether this network namespace has an interface of a name.
func exists(dev string) bool {
	_, err := netlink.LinkByName(dev)
	return err == nil
}

func (e *notAttachedError) Error() string {
	return fmt.Sprintf("levee has no policy on %s in this network namespace; `levee status "+
		"--all` lists what there is", e.dev)
}
