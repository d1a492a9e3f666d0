package tap

import (
	"github.com/cilium/ebpf"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Taken are the places of a map of the policy in force, of sockets or programs, that have one.
func Taken(s *store.Store, a *attach.Attachment, what state.Contents) (all []int, err error) {
	m, err := openHolding(s, a, what)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.Close()
	for at := range m.MaxEntries() {
		is, err := m.LookupBytes(at)
		if err != nil {
			return nil, kernel.Refuse(err, "look into the map %s", what)
		}
		if is != nil {
			all = append(all, int(at))
		}
	}
	return all, nil
}

// openHolding opens the map of the policy in force that holds something, nil if there is none.
func openHolding(s *store.Store, a *attach.Attachment, what state.Contents) (*ebpf.Map, error) {
	g := a.Current()
	name, ok := codegen.MapOf(g.Maps, what)
	if !ok {
		return nil, nil
	}
	return s.OpenPinned(a.Key, g.Generation, name)
}
