package known

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
)

// TestKnownClientsAreNamedByFewNetworks: by addresses where these are few, by networks where they
// are many. Where these would be too much of the Internet, those with most packets are named, by as
// narrow networks.
func TestKnownClientsAreNamedByFewNetworks(t *testing.T) {
	of := func(n, packets int, at func(i int) netip.Addr) map[netip.Addr]Client {
		out := map[netip.Addr]Client{}
		for i := range n {
			out[at(i)] = Client{Packets: packets}
		}
		return out
	}
	four := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{16, byte(i >> 8), byte(i), 1}) }
	wide := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), 1, 1}) }
	steered := of(1000, 0, wide)
	maps.Copy(steered, of(100, 20, four))
	for _, c := range []struct {
		of    map[netip.Addr]Client
		n     int
		first string
		holds string
	}{
		{of(100, 1, four), 100, "16.0.0.1/32", "16.0.99.1"},
		{of(1000, 1, four), 63, "16.0.0.0/20", "16.3.1.1"},
		{of(20_000, 1, four), 79, "16.0.0.0/16", "16.70.1.1"},
		{of(1000, 1, wide), 256, "0.0.1.1/32", ""},
		{steered, 256, "0.0.1.1/32", "16.0.99.1"},
		{of(300, 1, func(i int) netip.Addr {
			return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", i%200, i))
		}), 200, "2001:db8::/64", ""},
	} {
		got := Networks(c.of, nil, 0, 10)
		if len(got) != c.n || c.n > 0 && got[0].String() != c.first ||
			c.holds != "" && !hold(got, c.holds) {
			t.Errorf("%d addresses: %d networks, %v", len(c.of), len(got), got[:min(2, len(got))])
		}
	}
}

// hold says whether an address is in one of some networks.
func hold(all []Network, a string) bool {
	return slices.ContainsFunc(all, func(n Network) bool {
		return n.Contains(netip.MustParseAddr(a))
	})
}

// TestWhoIsKnownInManyNetworksWidensNoList: beside 1,000 clients of 50 networks some packets each
// from 200 other networks had all of these named, up to a /16, and a flood from there passed.
func TestWhoIsKnownInManyNetworksWidensNoList(t *testing.T) {
	all, flood := map[netip.Addr]Client{}, map[netip.Addr]int{}
	for i := range 1000 {
		all[netip.AddrFrom4([4]byte{16, byte(i % 50), byte(i), 1})] = Client{Packets: 20}
	}
	for i := range 200 {
		all[netip.AddrFrom4([4]byte{17, byte(i), 1, 1})] = Client{Packets: i % 2}
		for k := range 20 {
			flood[netip.AddrFrom4([4]byte{17, byte(i), byte(k), 9})]++
		}
	}
	flood[netip.MustParseAddr("16.0.0.9")]++ // what is usual goes on
	got := Networks(all, flood, 20, 30)
	if !hold(got, "16.49.1.1") || !hold(got, "16.0.0.1") {
		t.Errorf("clients are left out of %d networks", len(got))
	}
	passes := 0
	for a, n := range flood {
		if hold(got, a.String()) {
			passes += n
		}
	}
	if passes > 20 {
		t.Errorf("%d of %d packets of the flood pass", passes, len(flood))
	}
}
