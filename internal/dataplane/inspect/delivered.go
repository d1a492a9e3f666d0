package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

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

// SettleTime is for how long what the policy on an interface takes for this machine's own has to
// differ from what the kernel takes before it is told: a keeper that follows it needs a moment.
var SettleTime = 2 * time.Second

// settleLook is the pause between two looks meanwhile.
const settleLook = 50 * time.Millisecond

// differing is since when something differs, as this process has seen it.
var differing = struct {
	sync.Mutex
	since map[place]time.Time
}{since: map[place]time.Time{}}

// place is an interface of a network namespace.
type place struct {
	netns uint64
	index int
}

// settles notes whether something differs, and says for how long that may still settle by itself.
func settles(at place, differs bool) time.Duration {
	differing.Lock()
	defer differing.Unlock()
	if !differs {
		delete(differing.since, at)
		return 0
	}
	since, seen := differing.since[at]
	if !seen {
		since = time.Now()
		differing.since[at] = since
	}
	return SettleTime - time.Since(since)
}

// Undelivered says, a sentence each, how what the policy on an interface takes for this machine's
// own differs from what the kernel takes: none where that is the same, or there is no policy, or
// this process has not seen it for long. It does not wait for that.
func Undelivered(ctx context.Context, dev string) ([]string, error) {
	all, left, err := undeliveredOn(ctx, dev)
	if left > 0 {
		return nil, err
	}
	return all, err
}

func undeliveredOn(ctx context.Context, dev string) (all []string, left time.Duration, err error) {
	err = generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		l, err := a.Here()
		if err != nil || l == nil {
			return err
		}
		all, left, err = undelivered(s, a, l)
		return err
	})
	if errors.As(err, new(*generation.NotAttachedError)) {
		return nil, 0, nil
	}
	return all, left, err
}

// Settled waits until what differs on interfaces that Status tells of has done so for long enough
// to be told, or does no more.
func Settled(ctx context.Context, all []Attachment) error {
	for _, t := range all {
		if t.Judging == nil {
			continue
		}
		err := t.Judging.settle(ctx, func() ([]string, time.Duration, error) {
			return undeliveredOn(ctx, t.Dev)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *Judging) settle(ctx context.Context, look func() ([]string, time.Duration, error)) error {
	for j.settles > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(j.settles, settleLook)):
		}
		apart, left, err := look()
		if err != nil {
			return err
		}
		j.differs(apart, left)
	}
	return nil
}

// differs notes how the policy's list of destinations differs from the kernel's, once the
// difference has lasted.
func (j *Judging) differs(apart []string, left time.Duration) {
	if j.settles = left; left <= 0 {
		j.Amiss = append(j.Amiss, apart...)
	}
}

func undelivered(s *store.Store, a *attach.Attachment, l netlink.Link) (all []string,
	left time.Duration, err error) {
	for _, info := range a.Current().Sets {
		if !info.Self {
			continue
		}
		why, err := lacks(s, a, info)
		if err != nil {
			return nil, 0, err
		}
		if why != "" {
			all = append(all, why)
		}
	}
	why, err := unanswered(s, a, l)
	if why != "" {
		all = append(all, why)
	}
	if err != nil {
		return nil, 0, err
	}
	at := place{a.Current().Netns, l.Attrs().Index}
	return all, settles(at, len(all) > 0), nil
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

// unanswered says why cookies leave SYNs unanswered: their list of Ethernet addresses is not that
// of the interface. At tc the kernel itself says which frames are for the machine, so there is no
// such list.
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
