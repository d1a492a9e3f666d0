package importer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// nftSet is a named set or map.
type nftSet struct {
	name    string
	elems   []json.RawMessage
	timeout int64
	size    uint64
	leases  bool     // the set, or its flags, have timeouts
	addrs   *addrSet // made of it
	ports   string   // name of the set of ports made of it

	services map[string]*dynSet // by protocols
}

func (n *nftables) set(j *jsonSet) error {
	t, err := n.table(j.Family, j.Table)
	if err != nil {
		return err
	}
	if t.sets[j.Name] != nil {
		return fmt.Errorf("set %s of table %s is defined twice", quote(j.Name), quote(j.Table))
	}
	t.sets[j.Name] = &nftSet{
		name: j.Name, elems: j.Elem, timeout: j.Timeout, size: j.Size,
		leases: j.Timeout > 0 || strings.Contains(string(j.Flags), "timeout") ||
			strings.Contains(string(j.Flags), "dynamic"),
	}
	return nil
}

// addresses is the set that a policy has for s, made once; one that is empty, or is
// filled while it runs, becomes a dynamic set.
func (n *nftables) addresses(s *nftSet, d *dim) (*addrSet, error) {
	if s.addrs != nil {
		return s.addrs, nil
	}
	v, err := d.elements(s)
	if err != nil {
		return nil, err
	}
	in := joinAddrs(v.addrs)
	a := &addrSet{name: uniqueName(s.name, n.out.taken), addrs: in}
	s.addrs = a
	if len(in) > 0 && !s.leases {
		n.out.addSet(a.name, addressesText(in))
		return a, nil
	}
	var held []entry
	for _, e := range s.elems {
		one, err := d.value(e, 0)
		if err != nil {
			return nil, err
		}
		for _, span := range one.addrs {
			held = append(held, entry{span.String(), leaseOf(e)})
		}
	}
	a.dynamic, a.addrs = true, nil
	n.out.addSet(a.name, dynamicText(s.room(), s.timeout)).comments = entriesComment(a.name, held)
	return a, nil
}

// services is the dynamic set of services for a set of ports, made once for each protocol.
func (n *nftables) services(s *nftSet, d *dim) (*dynSet, error) {
	protos := []string{"tcp", "udp"}
	if p := d.dep.f[fProto]; len(p) == 1 && p[0].Lo == p[0].Hi {
		protos = []string{protoNames[uint8(p[0].Lo)]}
	}
	key := strings.Join(protos, "-")
	if s.services[key] != nil {
		return s.services[key], nil
	}
	var in []entry
	for _, e := range s.elems {
		v, err := d.value(e, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range joinSpans(v.nums) {
			for _, p := range protos {
				in = append(in, entry{p + "/" + numberText(r), leaseOf(e)})
			}
		}
	}
	a := &dynSet{name: uniqueName(s.name, n.out.taken), services: true}
	n.out.addSet(a.name, dynamicOf("services", s.room(), s.timeout)).comments =
		entriesComment(a.name, in)
	if s.services == nil {
		s.services = map[string]*dynSet{}
	}
	s.services[key] = a
	return a, nil
}

// room is how many entries the set may hold.
func (s *nftSet) room() uint64 {
	if s.size == 0 {
		return max(65536, 2*uint64(len(s.elems)))
	}
	return max(s.size, uint64(len(s.elems)))
}

// leaseOf is what an element has left: below 0 where nothing is said.
func leaseOf(raw json.RawMessage) int64 {
	key, inner := object(raw)
	var e struct{ Timeout, Expires *int64 }
	switch _ = json.Unmarshal(inner, &e); {
	case key != "elem":
	case e.Expires != nil:
		return max(*e.Expires, 1)
	case e.Timeout != nil:
		return *e.Timeout
	}
	return -1
}

// elements is what stands in a set of one dimension.
func (d *dim) elements(s *nftSet) (v value, err error) {
	for _, e := range s.elems {
		one, err := d.value(e, 0)
		if err != nil {
			return v, fmt.Errorf("set %s: %w", quote(s.name), err)
		}
		v.add(one)
	}
	return v, nil
}
