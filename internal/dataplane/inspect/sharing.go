package inspect

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
)

// teller returns the name of the interface that tells of a memory which an attachment shares with
// it, "" if that tells of its own.
func teller(s *store.Store, a *attach.Attachment, m *ebpf.Map) (string, error) {
	own := a.Together()
	if own == "" {
		return "", nil
	}
	if s.Tellers == nil {
		s.Tellers = map[string]map[ebpf.MapID]store.Sharer{}
	}
	if s.Tellers[own] == nil {
		first, err := firstOf(s, own)
		if err != nil {
			return "", err
		}
		s.Tellers[own] = first
	}
	id, err := store.MapID(m)
	if err != nil {
		return "", err
	}
	first, shared := s.Tellers[own][id]
	if !shared || first.Key == a.Key {
		return "", nil
	}
	return first.Dev, nil
}

// firstOf finds the first of the attachments that have their policy together, by the memories that
// they have.
func firstOf(s *store.Store, together string) (map[ebpf.MapID]store.Sharer, error) {
	all, err := generation.Having(s, together, "")
	if err != nil {
		return nil, err
	}
	out := map[ebpf.MapID]store.Sharer{}
	for _, a := range all {
		a.Close() // what it is made of stays
		if a.Ifindex == 0 {
			continue // nobody tells of what waits
		}
		g := a.Current()
		for _, use := range g.Maps {
			if !IsShared(use) {
				continue
			}
			m, err := s.OpenPinned(a.Key, g.Generation, use.Name)
			if err != nil {
				return nil, err
			}
			if m == nil {
				continue
			}
			id, err := store.MapID(m)
			if err := errors.Join(err, m.Close()); err != nil {
				return nil, err
			}
			if _, other := out[id]; !other {
				out[id] = store.Sharer{Key: a.Key, Dev: g.Dev}
			}
		}
	}
	return out, nil
}

// SharedContents lists the memories that belong to a policy, not to an interface: interfaces that
// have the policy as one share a memory of each kind, and the budget of each limit. Each interface
// pins the maps for itself, so that they go with the last one. See
// docs/explanation/decisions/0104-uplinks.md.
var SharedContents = state.Shared()

func IsShared(use codegen.MapUse) bool { return slices.Contains(SharedContents, use.Holds.What) }
