package dataplane

import (
	"bytes"
	"context"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/route"
	"levee/internal/filter/state"
	"levee/internal/host/session"
	"levee/internal/kernel"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// waysOf are the contents of the map with the interfaces that packets come up to.
func waysOf(index int, dev string) ([]byte, error) {
	is, err := session.WaysUp(dev)
	if err != nil {
		return nil, err
	}
	slices.Sort(is.Untagged)
	w := route.Ways{From: loopback, Own: index, Untagged: is.Untagged, Tagged: is.Tagged}
	if is.VRF { // whose routes are asked by one of its interfaces
		w.From = index
	}
	return w.Bytes(), nil
}

func putWays(m *ebpf.Map, contents []byte) error {
	if err := m.Put(uint32(0), contents); err != nil {
		return kernel.Refuse(err, "tell the program which interfaces packets come up to")
	}
	return nil
}

// fillWays tells rules on ways back the interfaces that packets come up to. The map is the
// interface's. The kernel does not answer on an interface that does not forward.
func (u *up) fillWays(l *loader.Loaded) error {
	m := l.Holding(state.HoldsWays)
	if m == nil {
		return nil
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if !forwards(family, u.Dev) {
			u.Note("%s: the kernel tells no way back of %s, and rules with reverse-path do not "+
				"hold: `sysctl -w net.%s.conf.lo.forwarding=1` lets it, and forwards nothing",
				u.Dev, map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family], family)
		}
	}
	contents, err := waysOf(u.dev.Index, u.Dev)
	if err != nil {
		return err
	}
	return putWays(m, contents)
}

// forwards tells whether the kernel looks routes up for lo, or for the interface. A family that is
// switched off is not missed.
func forwards(family, dev string) bool {
	known := false
	for _, of := range []string{"lo", dev} {
		is, err := os.ReadFile("/proc/sys/net/" + family + "/conf/" + of + "/forwarding")
		if err == nil && string(is) != "0\n" {
			return true
		}
		known = known || err == nil
	}
	return !known
}

// tellWays tells the policy on an interface of a change. It does nothing where no rule asks.
func tellWays(ctx context.Context, dev string, contents []byte) error {
	return generation.TransactOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.Current()
		name, has := codegen.MapOf(g.Maps, state.HoldsWays)
		if !has {
			return nil
		}
		m, err := s.OpenPinned(a.Key, g.Generation, name)
		if m == nil || err != nil {
			return err
		}
		defer m.Close()
		return putWays(m, contents)
	})
}

// tellWays tells a policy which interfaces packets come up to, where that has changed.
func (k *keeper) tellWays(ctx context.Context, index int, dev string) {
	is, err := waysOf(index, dev)
	if err == nil && !bytes.Equal(is, k.ways[index]) {
		err = tellWays(ctx, dev, is)
	}
	k.ways[index] = is
	if err != nil {
		k.ways[index] = nil
		k.refused(ctx, dev, err)
	}
}
