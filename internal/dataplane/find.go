package dataplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
)

// IsNotAttached says whether an error is that an interface has no policy.
func IsNotAttached(err error) bool { return errors.As(err, new(*notAttachedError)) }

// transactOn is transact with what is attached to an interface.
func transactOn(ctx context.Context, dev string,
	fn func(*store.Store, *attach.Attachment) error) error {
	_, err := notedOn(ctx, dev, fn)
	return err
}

// notedOn is transactOn with the notes on what was done.
func notedOn(ctx context.Context, dev string, fn func(*store.Store, *attach.Attachment) error) (
	notes []string, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		defer func() { notes = s.Notes }()
		a, err := find(s, dev)
		if err != nil {
			return err
		}
		defer a.Close()
		return fn(s, a)
	})
	return notes, err
}

// find is the attachment on dev in this network namespace, settled.
func find(s *store.Store, dev string) (*attach.Attachment, error) {
	d, err := attach.FindDevice(dev)
	if err != nil {
		return nil, err
	}
	key, err := attach.KeyOn(s, d)
	if err != nil {
		return nil, err
	}
	a, err := settle(s, key)
	if err != nil {
		a, err = unsettled(s, key, err)
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
