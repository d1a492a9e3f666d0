package nft

import (
	"encoding/json"
	"fmt"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// nftSet is a named set or map.
type nftSet struct {
	name    string
	elems   []json.RawMessage
	timeout int64
	size    uint64
	leases  bool       // the set, or its flags, have timeouts
	addrs   *match.Set // made of it
	ports   string     // name of the set of ports made of it

	services map[string]*match.DynamicSet // by protocols
}

func (n *nftables) set(j *jsonSet) error {
	t, err := n.table(j.Family, j.Table)
	if err != nil {
		return err
	}
	if t.sets[j.Name] != nil {
		return fmt.Errorf("set %s of table %s is defined twice", match.Quote(j.Name),
			match.Quote(j.Table))
	}
	t.sets[j.Name] = &nftSet{
		name: j.Name, elems: j.Elem, timeout: j.Timeout, size: j.Size,
		leases: j.Timeout > 0 || strings.Contains(string(j.Flags), "timeout") ||
			strings.Contains(string(j.Flags), "dynamic"),
	}
	return nil
}

// addresses returns the set that a policy has for s, made once; one that is empty, or is filled
// while it runs, becomes a dynamic set.
func (n *nftables) addresses(s *nftSet, d *dim) (*match.Set, error) {
	if s.addrs != nil {
		return s.addrs, nil
	}
	v, err := d.elements(s)
	if err != nil {
		return nil, err
	}
	a := &match.Set{Addresses: match.JoinAddrs(v.addrs)}
	a.TakeMapped()
	if s.addrs = a; a.Mapped && len(a.Addresses) == 0 && !s.leases {
		return a, nil
	}
	a.Name = match.UniqueName(s.name, n.out.Taken)
	if len(a.Addresses) > 0 && !s.leases {
		n.out.AddSet(a.Name, match.AddressesText(a.Addresses))
		return a, nil
	}
	var held []importer.Entry
	for _, e := range s.elems {
		one, err := d.value(e, 0)
		if err != nil {
			return nil, err
		}
		for _, span := range one.addrs {
			if span.Lo.Is4In6() {
				continue
			}
			held = append(held, importer.Entry{Text: span.String(), Lease: leaseOf(e)})
		}
	}
	a.Dynamic, a.Addresses = true, nil
	n.out.AddSet(a.Name, match.DynamicText(s.room(),
		s.timeout)).Comments = importer.EntriesComment(a.Name, held)
	return a, nil
}

// services returns the dynamic set of services for a set of ports, made once for each protocol.
func (n *nftables) services(s *nftSet, d *dim) (*match.DynamicSet, error) {
	protos := []string{"tcp", "udp"}
	if p := d.dep.Fields[match.Proto]; len(p) == 1 && p[0].Lo == p[0].Hi {
		protos = []string{match.ProtoNames[uint8(p[0].Lo)]}
	}
	key := strings.Join(protos, "-")
	if s.services[key] != nil {
		return s.services[key], nil
	}
	var in []importer.Entry
	for _, e := range s.elems {
		v, err := d.value(e, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range match.JoinSpans(v.nums) {
			for _, p := range protos {
				in = append(in, importer.Entry{Text: p + "/" + match.NumberText(r),
					Lease: leaseOf(e)})
			}
		}
	}
	a := &match.DynamicSet{Name: match.UniqueName(s.name, n.out.Taken), Services: true}
	n.out.AddSet(a.Name, importer.DynamicOf("services", s.room(), s.timeout)).Comments =
		importer.EntriesComment(a.Name, in)
	if s.services == nil {
		s.services = map[string]*match.DynamicSet{}
	}
	s.services[key] = a
	return a, nil
}

// room returns how many entries the set may hold.
func (s *nftSet) room() uint64 {
	if s.size == 0 {
		return max(65536, 2*uint64(len(s.elems)))
	}
	return max(s.size, uint64(len(s.elems)))
}

// leaseOf returns what an element has left: below 0 where nothing is said.
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

// elements returns what stands in a set of one dimension.
func (d *dim) elements(s *nftSet) (v value, err error) {
	for _, e := range s.elems {
		one, err := d.value(e, 0)
		if err != nil {
			return v, fmt.Errorf("set %s: %w", match.Quote(s.name), err)
		}
		v.add(one)
	}
	return v, nil
}
