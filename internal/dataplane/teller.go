package dataplane

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
)

// teller is the name of the interface that tells of a memory which an attachment shares with it, ""
// if that tells of its own.
func (s *store) teller(a *attachment, m *ebpf.Map) (string, error) {
	own := a.together()
	if own == "" {
		return "", nil
	}
	if s.tellers == nil {
		s.tellers = map[string]map[ebpf.MapID]sharer{}
	}
	if s.tellers[own] == nil {
		first, err := s.firstOf(own)
		if err != nil {
			return "", err
		}
		s.tellers[own] = first
	}
	id, err := mapID(m)
	if err != nil {
		return "", err
	}
	first, shared := s.tellers[own][id]
	if !shared || first.key == a.key {
		return "", nil
	}
	return first.dev, nil
}

// firstOf finds the first of the attachments that have their policy together, by the memories that
// they have.
func (s *store) firstOf(together string) (map[ebpf.MapID]sharer, error) {
	all, err := s.having(together, "")
	if err != nil {
		return nil, err
	}
	out := map[ebpf.MapID]sharer{}
	for _, a := range all {
		a.Close() // what it is made of stays
		if a.ifindex == 0 {
			continue // nobody tells of what waits
		}
		g := a.current()
		for _, use := range g.Maps {
			if !isShared(use) {
				continue
			}
			m, err := s.openPinned(a.key, g.Generation, use.Name)
			if err != nil {
				return nil, err
			}
			if m == nil {
				continue
			}
			id, err := mapID(m)
			if err := errors.Join(err, m.Close()); err != nil {
				return nil, err
			}
			if _, other := out[id]; !other {
				out[id] = sharer{a.key, g.Dev}
			}
		}
	}
	return out, nil
}

// What a policy remembers belongs to the policy, not to an interface: interfaces that have it as
// one have one memory of connections, of fragments, of who is proven, of what is diverted, and one
// budget of each limit. Each pins the maps for itself, so that they go with the last that has them.
// See docs/explanation/decisions/0104-uplinks.md.
var sharedContents = state.Shared()

func isShared(use codegen.MapUse) bool { return slices.Contains(sharedContents, use.Holds.What) }
