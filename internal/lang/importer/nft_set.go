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

// addresses is the set that a policy has for s, made once; an empty one becomes a dynamic set.
func (n *nftables) addresses(s *nftSet, d *dim) (*addrSet, error) {
	if s.addrs != nil {
		return s.addrs, nil
	}
	v, err := d.elements(s)
	if err != nil {
		return nil, err
	}
	in := joinAddrs(v.addrs)
	a := &addrSet{name: uniqueName(s.name, n.names), addrs: in}
	switch {
	case len(in) == 0:
		a.dynamic = true
		size := s.size
		if size == 0 {
			size = 65536
		}
		n.out.addSet(a.name, dynamicText(size, s.timeout))
	default:
		n.out.addSet(a.name, addressesText(in))
	}
	s.addrs = a
	return a, nil
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
