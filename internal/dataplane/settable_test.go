package dataplane

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"levee/internal/dataplane/sets"
	"levee/internal/filter/endpoint"
	"levee/internal/filter/prefix"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// partner is an endpoint of the test's set.
func partner(i int) sets.Entry {
	a := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
	port := uint16(1000 + i%7)
	return sets.Entry{Prefix: netip.PrefixFrom(a, 32),
		Service: policy.Service{Proto: 6, Lo: port, Hi: port}}
}

func partners(from, to int) (out []sets.Entry) {
	for i := from; i < to; i++ {
		out = append(out, partner(i))
	}
	return out
}

// Sets of endpoints change as sets of addresses do: few entries in place, many in one step, all or
// none, and taken over by a set of another size.
func TestSetsOfEndpointsChangeAllOrNothing(t *testing.T) {
	newTestNet(t)
	text := func(max string) string {
		return "set partners = dynamic(of endpoints, max " + max +
			", lease 10m)\npass from partners\ndefault drop\nessential off\n"
	}
	if err := bringPolicy(t, "lv0", text("6000"), 0); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s, err := sets.Open(ctx, "lv0", "partners")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Type() != policy.Endpoints {
		t.Errorf("the set is of %v", s.Type())
	}
	count := func() int {
		t.Helper()
		all, err := s.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for _, step := range []struct {
		name    string
		entries []sets.Entry
		full    bool
		want    int
	}{
		{"few", partners(0, 10), false, 10},
		{"few again", partners(5, 15), false, 15},
		{"more than there is room for", partners(0, 6001), true, 15},
		{"many in one step", partners(0, 5995), false, 5995},
		{"few that do not fit", partners(5990, 6010), true, 5995},
		{"to the last", partners(5990, 6000), false, 6000},
	} {
		if err := s.Add(ctx, step.entries...); errors.Is(err, prefix.ErrFull) != step.full ||
			!step.full && err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if n := count(); n != step.want {
			t.Fatalf("%s: %d entries, want %d", step.name, n, step.want)
		}
	}
	if err := bringPolicy(t, "lv0", text("5000"), 0); err == nil ||
		!strings.Contains(err.Error(), "do not fit") {
		t.Errorf("a set that is too small for its entries: %v", err)
	}
	if err := bringPolicy(t, "lv0", text("9000"), 0); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 6000 {
		t.Errorf("a larger set has %d entries", n)
	}
	if err := s.Replace(ctx, partners(0, 3)); err != nil || count() != 3 {
		t.Errorf("replaced by three: %v, %d", err, count())
	}
	if n, err := s.Remove(ctx, partner(1).Element(), partner(100).Element()); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
}

// endpointsOf makes a set of endpoints in plain memory that holds these entries.
func endpointsOf(t *testing.T, entries []sets.Entry) sets.InForce {
	t.Helper()
	clock, err := kernel.JiffiesClock()
	if err != nil {
		t.Skip("needs the kernel's clock: ", err)
	}
	spec, err := endpoint.Spec("partners", 1000)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, spec.InnerMap.ValueSize/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	if err := endpoint.FormatRoom(mem, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	s := &sets.Memory{Name: "partners", Typ: policy.Endpoints, Clock: clock, Mem: mem}
	if err := s.OpenTable(); err != nil {
		t.Fatal(err)
	}
	if err := (&sets.Set{}).Fill(s, entries, false); err != nil {
		t.Fatal(err)
	}
	return sets.InForce{Memory: s, Places: nil}
}

// shaped are endpoints of n sizes of prefixes and blocks of ports, none of them a host.
func shaped(n int) (out []sets.Entry) {
	for i := range n {
		a := netip.PrefixFrom(netip.MustParseAddr("198.18.0.0"), 16+i%8)
		size := uint16(1) << (i / 8 % 16)
		out = append(out, sets.Entry{Prefix: a,
			Service: policy.Service{Proto: 6, Lo: 0, Hi: size - 1}, Lease: sets.Forever})
	}
	return out
}

func elements(m sets.InForce) map[policy.Element]uint64 { return maps.Collect(m.All()) }

// An entry of a size too many is refused with all that came with it, and what there was stays; only
// the set of a policy to return to, which may hold others, does without it.
func TestEntriesOfTooManySizes(t *testing.T) {
	most, hosts := shaped(endpoint.MaxShapes), partners(0, 3)
	for _, c := range []struct {
		name           string
		main, toReturn []sets.Entry
		refused        bool
	}{
		{"no room in the set in force", most, nil, true},
		{"no room in both", most, most, true},
		{"no room in the one to return to", most[:10], most, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sets.Set{Name: "partners", Maps: []sets.InForce{endpointsOf(t, c.main),
				endpointsOf(t, c.toReturn)}}
			before := [2]map[policy.Element]uint64{elements(s.Maps[0]), elements(s.Maps[1])}
			renewed := most[0]
			renewed.Lease = time.Hour
			_, err := sets.AddInPlace([]*sets.Set{s}, append([]sets.Entry{renewed}, hosts...))
			if errors.Is(err, endpoint.ErrShapes) != c.refused || !c.refused && err != nil {
				t.Fatal(err)
			}
			for i, m := range s.Maps {
				now := elements(m)
				if c.refused {
					if !maps.Equal(now, before[i]) {
						t.Errorf("set %d has %d entries after a refusal, before %d, or another "+
							"lease", i, len(now), len(before[i]))
					}
					continue
				}
				for _, e := range hosts {
					if _, there := now[e.Element()]; there != (i == 0) {
						t.Errorf("set %d: %v is there: %v", i, e.Element(), there)
					}
				}
			}
			// The same in a copy that is to take a set's place.
			next := endpointsOf(t, c.toReturn)
			if err := s.Fill(next.Memory, hosts, true); err != nil {
				t.Errorf("fill what is only returned to: %v", err)
			}
			if err := s.Fill(next.Memory, hosts, false); errors.Is(err,
				endpoint.ErrShapes) != (len(c.toReturn) == len(most)) {
				t.Errorf("fill what is in force: %v", err)
			}
		})
	}
}

func TestEntriesOfAnotherTypeAreRefused(t *testing.T) {
	tcp80 := policy.Service{Proto: 6, Lo: 80, Hi: 80}
	host := netip.MustParsePrefix("192.0.2.1/32")
	for _, c := range []struct {
		e    policy.Element
		t    policy.SetType
		want string // "": taken
	}{
		{policy.Element{Prefix: host}, policy.Addresses, ""},
		{policy.Element{Prefix: host}, policy.Endpoints,
			"is an address, and the set is of endpoints"},
		{policy.Element{Service: tcp80}, policy.Services, ""},
		{policy.Element{Service: tcp80}, policy.Endpoints,
			"is a service, and the set is of endpoints"},
		{policy.Element{Prefix: host, Service: tcp80}, policy.Endpoints, ""},
		{policy.Element{Prefix: host, Service: tcp80}, policy.Addresses,
			"is an endpoint, and the set is of addresses"},
		{policy.Element{}, policy.Services, "not a prefix"},
		{policy.Element{Prefix: host, Service: policy.Service{Proto: 6, Lo: 80, Hi: 90}},
			policy.Endpoints, "not a block"},
		{policy.Element{Service: policy.Service{Proto: 6, Lo: 90, Hi: 80}}, policy.Services,
			"not a service"},
		{policy.Element{Service: policy.Service{Proto: 47, Hi: 0xffff}}, policy.Services,
			"not a service"},
		{policy.Element{Prefix: host, Service: policy.Service{Proto: 47, Lo: 1, Hi: 2}},
			policy.Endpoints, "has no ports"},
		{policy.Element{Prefix: netip.MustParsePrefix("192.0.2.1/24"), Service: tcp80},
			policy.Endpoints, "host bits"},
		{policy.Element{Prefix: netip.MustParsePrefix("::ffff:192.0.2.1/128"), Service: tcp80},
			policy.Endpoints, "IPv4-mapped"},
	} {
		err := sets.CheckEntry(c.e, c.t)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v into a set of %v: %v, want %q", c.e, c.t, err, c.want)
		}
	}
}
