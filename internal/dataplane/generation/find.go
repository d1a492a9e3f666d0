package generation

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
)

// IsNotAttached says whether an error is that an interface has no policy.
func IsNotAttached(err error) bool { return errors.As(err, new(*NotAttachedError)) }

// IsGone says whether an error is that an interface has no policy, or that there is none of its
// name. What is known of interfaces may be some seconds old, and they are renamed and deleted.
func IsGone(err error) bool { return IsNotAttached(err) || errors.Is(err, unix.ENODEV) }

// TransactOn is transact with what is attached to an interface.
func TransactOn(ctx context.Context, dev string,
	fn func(*store.Store, *attach.Attachment) error) error {
	_, err := NotedOn(ctx, dev, fn)
	return err
}

// NotedOn is TransactOn with the notes on what was done.
func NotedOn(ctx context.Context, dev string, fn func(*store.Store, *attach.Attachment) error) (
	notes []string, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		defer func() { notes = s.Notes }()
		a, err := Find(s, dev)
		if err != nil {
			return err
		}
		defer a.Close()
		return fn(s, a)
	})
	return notes, err
}

// Find returns the attachment on dev in this network namespace, settled.
func Find(s *store.Store, dev string) (*attach.Attachment, error) {
	d, err := attach.FindDevice(dev)
	if err != nil {
		return nil, attach.SayRenamed(s, dev, err)
	}
	key, err := attach.KeyOn(s, d)
	if err != nil {
		return nil, err
	}
	a, err := Settle(s, key)
	if err != nil {
		a, err = unsettled(s, key, err)
	}
	if err == nil && a == nil {
		err = NotAttached(dev)
	}
	return a, err
}

// Has reports whether an interface of this network namespace has a policy, also one that cannot be
// read.
func Has(ctx context.Context, dev string) bool {
	err := TransactOn(ctx, dev, func(*store.Store, *attach.Attachment) error { return nil })
	return !IsGone(err)
}

// NotAttachedError says that no policy is on an interface.
type NotAttachedError struct{ dev string }

func NotAttached(dev string) error { return &NotAttachedError{dev} }

// Exists says whether this network namespace has an interface of a name.
func Exists(dev string) bool {
	_, err := netlink.LinkByName(dev)
	return err == nil
}

func (e *NotAttachedError) Error() string {
	return fmt.Sprintf("levee has no policy on %s in this network namespace; `levee status "+
		"--all` lists what there is", e.dev)
}
