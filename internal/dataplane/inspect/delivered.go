package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
	"levee/internal/host/local"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Undelivered says, a sentence each, how what the policy on an interface takes for this machine's
// own differs from what the kernel takes: none where that is the same, or there is no policy.
func Undelivered(ctx context.Context, dev string) (all []string, err error) {
	err = generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		l, err := a.Here()
		if err != nil || l == nil {
			return err
		}
		all, err = undelivered(s, a, l)
		return err
	})
	if errors.As(err, new(*generation.NotAttachedError)) {
		return nil, nil
	}
	return all, err
}

func undelivered(s *store.Store, a *attach.Attachment, l netlink.Link) (all []string, err error) {
	for _, info := range a.Current().Sets {
		if !info.Self {
			continue
		}
		why, err := lacks(s, a, info)
		if err != nil {
			return nil, err
		}
		if why != "" {
			all = append(all, why)
		}
	}
	why, err := unanswered(s, a, l)
	if why != "" {
		all = append(all, why)
	}
	return all, err
}

// lacks says which destinations the set `self` lacks. What it has besides, somebody has put there,
// or nobody sends to any more.
func lacks(s *store.Store, a *attach.Attachment, info store.SetInfo) (why string, err error) {
	there, err := local.Prefixes()
	if err != nil {
		return "", err
	}
	if err := sets.RoomFor(info.Name, info.Max, there); err != nil {
		return err.Error(), nil
	}
	set, err := sets.OpenSetOf(s, a, info.Name)
	if err != nil {
		return "", err
	}
	defer set.Close()
	if err := set.Writers.Lock(s.Ctx); err != nil {
		return "", err
	}
	defer set.Writers.Unlock()
	has := map[policy.Element]bool{}
	m := set.Maps[0]
	m.Expire(m.Clock.Now())
	for e := range m.All() {
		has[e] = true
	}
	var lacking []netip.Prefix
	for _, p := range there {
		if !has[policy.Element{Prefix: p}] {
			lacking = append(lacking, p)
		}
	}
	if len(lacking) == 0 {
		return "", nil
	}
	return fmt.Sprintf("the kernel delivers %s to this machine, and %q lacks it (%d of %d in "+
		"all): levee up --keep follows what comes", lacking[0], info.Name, len(lacking),
		len(there)), nil
}

// unanswered says that cookies were told otherwise whom a SYN has to be for. At tc the kernel
// itself says which frames are its own.
func unanswered(s *store.Store, a *attach.Attachment, l netlink.Link) (why string, err error) {
	g := a.Current()
	name, has := codegen.MapOf(g.Maps, state.HoldsOwn)
	if !has || g.Mode.AtTC() {
		return "", nil
	}
	is, err := local.OwnOf(l.Attrs().Index)
	if err != nil {
		return "", err
	}
	m, err := s.OpenPinned(a.Key, g.Generation, name)
	if m == nil || err != nil {
		return "", err
	}
	defer m.Close()
	told, err := m.LookupBytes(uint32(0))
	if err != nil {
		return "", kernel.Refuse(err, "read whom cookies of %s answer for", g.Dev)
	}
	want := cookie.Own{MACs: is.MACs, None: is.None}
	if bytes.Equal(told, want.Bytes()) {
		return "", nil
	}
	return fmt.Sprintf("%s has other Ethernet addresses, or the machine other broadcast "+
		"addresses, than when the policy came, and cookies go by those: levee up --keep follows "+
		"what changes", g.Dev), nil
}
