package attach

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"levee/internal/dataplane/store"
	"levee/internal/host/card"
	"levee/internal/host/local"
	"levee/internal/kernel"
)

// A card must not merge packets in front of XDP. The kernel ends that when a generic program comes
// (net/core/dev.c, generic_xdp_install), and some drivers do when a native one comes; when it goes,
// nobody begins again. So what was ended is noted beside the descriptions, and asked for again by
// what takes the policy off.

const offloadsFile = "offloads.json"

// endingOffloads attaches an XDP program, and notes what that ends.
func endingOffloads(s *store.Store, key string, d *Device, attach func() (Hold, error)) (Hold,
	error) {
	before := card.Read(d.Name)
	at := before.Ended(&card.Card{}) // all of it, should this process be killed
	if len(at) == 0 {
		return attach()
	}
	var earlier []string
	file := s.State(key, offloadsFile)
	if err := store.ReadJSON(file, &earlier); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	note := func(ended []string) error {
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(earlier, ended))))
		if len(all) > 0 {
			return store.WriteJSON(file, all)
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := note(at); err != nil {
		return nil, kernel.Refuse(err, "note which offloads %s has", d.Name)
	}
	l, err := attach()
	if nerr := note(before.Ended(card.Read(d.Name))); nerr != nil && err == nil {
		err = errors.Join(kernel.Refuse(nerr, "note which offloads %s has", d.Name), l.Close())
	}
	return l, err
}

// BeginOffloads restores the offloads that were ended on the interface of a key, after its policy
// is gone. Failures are notes for the user.
func BeginOffloads(s *store.Store, key string) {
	var ended []string
	if err := store.ReadJSON(s.State(key, offloadsFile), &ended); err != nil {
		return
	}
	name, err := interfaceOf(s, key)
	switch {
	case err != nil:
		s.Note("offloads that a policy ended stay off: %v", err)
	case name != "":
		if err := card.TurnOn(name, ended); err != nil {
			s.Note("%s: offloads that the policy ended stay off: ethtool -k %[1]s shows them; %v",
				name, err)
		}
	case s.Leaves.Key == key && s.Leaves.Away:
		var on []string
		for _, o := range ended {
			on = append(on, o+" on")
		}
		s.Note("%s stays off: say ethtool -K DEV %s in the network namespace where the interface "+
			"is now", strings.Join(ended, ", "), strings.Join(on, " "))
	}
}

func (a *Attachment) Leaving() store.Leaving {
	l, err := a.Here()
	if err != nil || l == nil {
		return store.Leaving{Key: a.Key, Name: "", Away: err == nil && a.Ifindex != 0}
	}
	return store.Leaving{Key: a.Key, Name: l.Attrs().Name, Away: false}
}

// interfaceOf returns the name of the interface of a key in this network namespace, "" if it has
// none. One that has moved keeps the key that it had.
func interfaceOf(s *store.Store, key string) (string, error) {
	if s.Leaves.Key == key && s.Leaves.Name != "" {
		return s.Leaves.Name, nil
	}
	links, err := local.Links()
	netns, nerr := NetnsCookie()
	if err := errors.Join(err, nerr); err != nil {
		return "", err
	}
	for _, l := range links {
		d := Device{Index: l.Attrs().Index, Netns: netns}
		if d.Key() == key {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}
