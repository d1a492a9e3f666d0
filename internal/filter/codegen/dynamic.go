package codegen

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/endpoint"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
)

// SetPlace says where a program finds the memory of a dynamic set.
type SetPlace struct {
	Map  string // an array of maps
	Key  uint32 // where in it
	Room int    // for how many entries the memory is laid out, at least the set's max
}

// maxOwn is up to how many dynamic sets of a policy have a map of their own: a program may use 64 (MAX_USED_MAPS,
// include/linux/bpf_verifier.h), and each takes up to four functions, of which it may have 256 (BPF_MAX_SUBPROGS). The sets
// of a policy with more share a map, and the functions that search it, with all of the same type and room.
const maxOwn = 48

// minRoom is the smallest room of sets that share a map. Rooms are powers of two, so that there are not more maps
// for all addresses, and for all services and endpoints, than a program may use.
const minRoom = 64

// Kinds of memory.
const (
	addressMemory  = "addresses"
	endpointMemory = "endpoints" // and services
)

// placesOf gives every dynamic set its place. It depends on the sets alone: programs for all targets find them in the same.
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
		if len(sets) <= maxOwn {
			places[s] = SetPlace{Map: setPrefix + s.Name, Room: s.Max}
			continue
		}
		room := max(minRoom, 1<<bits.Len(uint(s.Max-1)))
		kind := addressMemory
		if s.Type != policy.Addresses {
			kind = endpointMemory
		}
		name := fmt.Sprintf("%s%s_%d", sharedPrefix, kind, room)
		places[s] = SetPlace{Map: name, Key: used[name], Room: room}
		used[name]++
	}
	return places
}

// shared says whether sets share maps.
func (c *compiler) shared() bool { return len(c.setPlaces) > maxOwn }

// dynamicSets adds the map of every dynamic set, also of one that no rule asks for now: its entries
// are the operator's, and outlive the rules.
func (c *compiler) dynamicSets(out *Program) error {
	out.Places = map[string]SetPlace{}
	for _, s := range c.prog.Policy.Sets {
		place, ok := c.setPlaces[s]
		if !ok {
			continue
		}
		if c.maps[place.Map] == nil {
			spec, err := dynamicSpec(s, place)
			if err != nil {
				return c.errorf("set %s: %w", s.Name, err)
			}
			if c.shared() {
				// The next program may have other sets, at other numbers: what it continues is each set.
				c.addMap(spec, Identity{What: DynamicSets, Name: place.Map}, Pinned)
			} else {
				c.addMap(spec, Identity{DynamicSet, s.Name, s.Type.String()}, Carried)
			}
		}
		spec := c.maps[place.Map]
		spec.MaxEntries = max(spec.MaxEntries, place.Key+1)
		out.Dynamic = append(out.Dynamic, s)
		out.Places[s.Name] = place
		if s.RollUp {
			out.Spared = c.prog.Policy.Protected()
		}
		out.Tables = append(out.Tables, Table{
			For: "set " + s.Name, Kind: "buckets of hashed " + hashed(s.Type), Bytes: int(spec.InnerMap.ValueSize),
			Why: c.whyPlace(place),
		})
	}
	return nil
}

func (c *compiler) whyPlace(place SetPlace) string {
	const why = "filled at run time, each entry with a lease"
	if !c.shared() {
		return why
	}
	return fmt.Sprintf("%s; more than %d dynamic sets: looked up by number in %s", why, maxOwn, place.Map)
}

// hashed says what the memory of a set holds.
func hashed(t policy.SetType) string {
	switch t {
	case policy.Services:
		return "services"
	case policy.Endpoints:
		return "endpoints"
	}
	return "prefixes"
}

func dynamicSpec(s *policy.Set, place SetPlace) (*ebpf.MapSpec, error) {
	if s.Type == policy.Addresses {
		return prefix.DynamicSpec(place.Map, place.Room)
	}
	return endpoint.Spec(place.Map, place.Room)
}

// lookupKey finds the function that looks an address of a family up in a map.
type lookupKey struct {
	set string
	ip4 bool
}

// dynamic looks the address in R1 (and R2) up in a set that is filled at run time; R0 is the answer.
// The code is a global function: it loops over the prefix lengths in use, which the verifier walks
// for every length that there can be.
func (c *compiler) dynamic(s *policy.Set, ip4 bool) {
	label := c.dynamicFunction(s, ip4)
	if c.shared() {
		c.emit(asm.Mov.Imm(numberOf(ip4), int32(c.setPlaces[s].Key)))
	}
	c.emit(asm.Call.Label(label))
}

// numberOf is the register, behind the address, in which functions of maps that sets share take the set's number.
func numberOf(ip4 bool) asm.Register {
	if ip4 {
		return asm.R2
	}
	return asm.R3
}

// dynamicFunction is the label of the function that looks an address up in a dynamic set.
func (c *compiler) dynamicFunction(s *policy.Set, ip4 bool) string {
	place := c.setPlaces[s]
	return c.lookupFunction(lookupKey{place.Map, ip4}, func(b *assembler.Builder, label string) {
		switch {
		case c.shared() && ip4:
			prefix.NumberedFunction4(b, place.Map, label, place.Room)
		case c.shared():
			prefix.NumberedFunction6(b, place.Map, label, place.Room)
		case ip4:
			prefix.DynamicFunction4(b, place.Map, label, place.Room)
		default:
			prefix.DynamicFunction6(b, place.Map, label, place.Room)
		}
	})
}

// endpointFunction is the label of the function that looks an endpoint up in a dynamic set.
func (c *compiler) endpointFunction(s *policy.Set, ip4 bool) string {
	place := c.setPlaces[s]
	return c.lookupFunction(lookupKey{place.Map, ip4}, func(b *assembler.Builder, label string) {
		if c.shared() {
			endpoint.NumberedFunction(b, place.Map, label, place.Room, ip4)
		} else {
			endpoint.Function(b, place.Map, label, place.Room, ip4)
		}
	})
}

// lookupFunction gives the label of a function, which is made when it is first asked for.
func (c *compiler) lookupFunction(key lookupKey, function func(b *assembler.Builder, label string)) string {
	label, ok := c.lookupOf[key]
	if !ok {
		label = fmt.Sprintf("lookup_%d", len(c.lookupOf))
		c.lookupOf[key] = label
		code := c.Aside()
		function(code, label)
		c.lookups = append(c.lookups, code)
	}
	return label
}
