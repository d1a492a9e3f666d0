package plan

import (
	"fmt"
	"math/bits"

	"levee/internal/lang/policy"
)

// SetPlace says where a program finds the memory of a dynamic set.
type SetPlace struct {
	Map  string // an array of maps
	Key  uint32 // where in it
	Room int    // for how many entries the memory is laid out, at least the set's max
}

// MaxOwn is up to how many dynamic sets of a policy have a map of their own: a program may use 64
// (MAX_USED_MAPS, include/linux/bpf_verifier.h), and each takes up to four functions, of which it
// may have 256 (BPF_MAX_SUBPROGS). The sets of a policy with more share a map, and the functions
// that search it, with all of the same type and room.
const MaxOwn = 48

// minRoom is the smallest room of sets that share a map. Rooms are powers of two, so that there are
// not more maps for all addresses, for all services and endpoints, and for all names, than a
// program may use.
const minRoom = 64

// Kinds of memory.
const (
	addressMemory  = "addresses"
	endpointMemory = "endpoints" // and services
	nameMemory     = "names"
)

// Names of maps of dynamic sets: of one, "set_NAME", or of many. No set's own map is called so.
const (
	SetPrefix    = "set_"
	SharedPrefix = "sets_"
)

// placesOf gives every dynamic set its place. It depends on the sets alone: programs for all
// targets find them in the same.
func placesOf(p *policy.Policy) map[*policy.Set]SetPlace {
	var sets []*policy.Set
	for _, s := range p.Sets {
		if s.Kind == policy.Dynamic {
			sets = append(sets, s)
		}
	}
	places := make(map[*policy.Set]SetPlace, len(sets))
	used := map[string]uint32{} // keys, by map
	for _, s := range sets {
		if len(sets) <= MaxOwn {
			places[s] = SetPlace{Map: SetPrefix + s.Name, Room: s.Max}
			continue
		}
		room := max(minRoom, 1<<bits.Len(uint(s.Max-1)))
		kind := addressMemory
		switch s.Type {
		case policy.Services, policy.Endpoints:
			kind = endpointMemory
		case policy.Names:
			kind = nameMemory
		}
		name := fmt.Sprintf("%s%s_%d", SharedPrefix, kind, room)
		places[s] = SetPlace{Map: name, Key: used[name], Room: room}
		used[name]++
	}
	return places
}

// Shared reports whether dynamic sets share maps.
func (p *Plan) Shared() bool { return len(p.Places) > MaxOwn }

// WhyPlace says why a set is where it is.
func (p *Plan) WhyPlace(place SetPlace) string {
	const why = "filled at run time, each entry with a lease"
	if !p.Shared() {
		return why
	}
	return fmt.Sprintf("%s; more than %d dynamic sets: looked up by number in %s", why, MaxOwn,
		place.Map)
}

// SetFunction looks up a key in a map of dynamic sets.
type SetFunction struct {
	Map  string
	IPv4 bool // addresses of this family; services are looked up as IPv4, names are not
	Type policy.SetType
	Room int
}

// setFunction notes that a dynamic set is asked.
func (p *planner) setFunction(s *policy.Set, ip4 bool) {
	place := p.Places[s]
	f := SetFunction{Map: place.Map, IPv4: ip4, Type: s.Type, Room: place.Room}
	key := SetKey{f.Map, ip4}
	if _, ok := p.SetFunctionOf[key]; !ok {
		p.SetFunctionOf[key] = len(p.SetFunctions)
		p.SetFunctions = append(p.SetFunctions, f)
	}
}

// SetKey finds a SetFunction.
type SetKey struct {
	Map  string
	IPv4 bool
}
