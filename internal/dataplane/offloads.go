package dataplane

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"levee/internal/host/card"
	"levee/internal/kernel"
)

// A card must not merge packets in front of XDP. The kernel ends that when a generic program comes
// (net/core/dev.c, generic_xdp_install), and some drivers do when a native one comes; when it goes,
// nobody begins again. So what was ended is noted beside the descriptions, and asked for again by
// what takes the policy off.

const offloadsFile = "offloads.json"

// endingOffloads attaches an XDP program, and notes what that ends.
func (s *store) endingOffloads(key string, d *device, attach func() (hold, error)) (hold, error) {
	before := card.Read(d.name)
	at := before.Ended(&card.Card{}) // all of it, should this process be killed
	if len(at) == 0 {
		return attach()
	}
	var earlier []string
	file := s.state(key, offloadsFile)
	if err := readJSON(file, &earlier); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	note := func(ended []string) error {
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(earlier, ended))))
		if len(all) > 0 {
			return writeJSON(file, all)
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := note(at); err != nil {
		return nil, kernel.Refuse(err, "note which offloads %s has", d.name)
	}
	l, err := attach()
	if nerr := note(before.Ended(card.Read(d.name))); nerr != nil && err == nil {
		err = errors.Join(kernel.Refuse(nerr, "note which offloads %s has", d.name), l.Close())
	}
	return l, err
}

// beginOffloads asks again for what was ended on the interface of a key, which has no policy any
// more. What cannot be told or asked for is noted for the user.
func (s *store) beginOffloads(key string) {
	var ended []string
	if err := readJSON(s.state(key, offloadsFile), &ended); err != nil {
		return
	}
	name, err := s.interfaceOf(key)
	switch {
	case err != nil:
		s.note("offloads that a policy ended stay off: %v", err)
	case name != "":
		if err := card.TurnOn(name, ended); err != nil {
			s.note("%s: offloads that the policy ended stay off: ethtool -k %[1]s shows them; %v",
				name, err)
		}
	case s.leaves.key == key && s.leaves.away:
		var on []string
		for _, o := range ended {
			on = append(on, o+" on")
		}
		s.note("%s stays off: say ethtool -K DEV %s in the network namespace where the interface "+
			"is now", strings.Join(ended, ", "), strings.Join(on, " "))
	}
}

func (a *attachment) leaving() leaving {
	l, err := a.here()
	if err != nil || l == nil {
		return leaving{a.key, "", err == nil && a.ifindex != 0}
	}
	return leaving{a.key, l.Attrs().Name, false}
}

// interfaceOf is the name of the interface of a key in this network namespace, "" if it has none.
// One that has moved keeps the key that it had.
func (s *store) interfaceOf(key string) (string, error) {
	if s.leaves.key == key && s.leaves.name != "" {
		return s.leaves.name, nil
	}
	links, err := netlink.LinkList()
	netns, nerr := netnsCookie()
	if err := errors.Join(err, nerr); err != nil {
		return "", err
	}
	for _, l := range links {
		d := device{index: l.Attrs().Index, netns: netns}
		if d.key() == key {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}
