package keep

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/around"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/host/account"
	"levee/internal/host/local"
)

// tellSelf tells `self` of the policies what the kernel delivers, and what it delivers no more: a
// policy may be in force before the machine has any address.
func (k *keeper[R]) tellSelf(ctx context.Context) {
	there, err := local.Prefixes()
	var gone []netip.Prefix
	for _, p := range k.self {
		if !sets.Among(there, p) {
			gone = append(gone, p)
		}
	}
	same := slices.Equal(there, k.self)
	for index, dev := range k.names() {
		k.tellOwn(ctx, index, dev)
		k.tellWays(ctx, index, dev)
		failed := err
		switch {
		case failed != nil:
		case same && !k.unlike[index]:
			continue
		case k.unlike[index]:
			failed = sets.ResetSelf(ctx, dev, there)
		default:
			failed = sets.TellSelf(ctx, dev, gone, there)
		}
		if k.unlike[index] = failed != nil; failed != nil {
			k.refused(ctx, dev, failed)
		}
	}
	if err == nil {
		k.self = there
	}
	k.tellSenders(ctx, true)
}

// tellSenders tells policies who their names stand for, where that has changed: a user or a
// container was made, went or was renamed. Without always, it looks only if files say so.
func (k *keeper[R]) tellSenders(ctx context.Context, always bool) {
	stamp := account.Stamp("/")
	if !always && stamp == k.account {
		return
	}
	k.account = stamp
	for index, dev := range k.names() {
		is, err := around.TellSenders(ctx, dev, k.senders[index])
		k.senders[index] = is
		if err != nil {
			k.refused(ctx, dev, err)
		}
	}
}

// tellOwn updates the addresses to which a SYN may go in programs with cookies, if they have
// changed.
func (k *keeper[R]) tellOwn(ctx context.Context, index int, dev string) {
	is, err := local.OwnOf(index)
	if err == nil && !around.SameOwn(is, k.own[index]) {
		err = around.TellOwn(ctx, dev, is)
	}
	k.own[index] = is
	if err != nil {
		k.own[index] = nil
		k.refused(ctx, dev, err)
	}
}

// tellWays tells a policy which interfaces packets come up to, where that has changed.
func (k *keeper[R]) tellWays(ctx context.Context, index int, dev string) {
	is, err := around.WaysOf(index, dev)
	if err == nil && !bytes.Equal(is, k.ways[index]) {
		err = around.TellWays(ctx, dev, is)
	}
	k.ways[index] = is
	if err != nil {
		k.ways[index] = nil
		k.refused(ctx, dev, err)
	}
}

// names returns what the interfaces that are looked after are called now. One may have been
// renamed, and the message that says so not have been read.
func (k *keeper[R]) names() map[int]string {
	now := maps.Clone(k.seen)
	for index := range now {
		if l, err := netlink.LinkByIndex(index); err == nil {
			now[index] = l.Attrs().Name
		}
	}
	return now
}

// refused says that a policy could not be told of what the kernel takes.
func (k *keeper[R]) refused(ctx context.Context, dev string, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.As(err, new(*generation.NotAttachedError)),
		errors.Is(err, unix.ENODEV): // it has gone
	case k.tell.Unlike != nil:
		k.tell.Unlike(dev, err)
	}
}
