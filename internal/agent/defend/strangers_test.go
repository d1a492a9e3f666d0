package defend

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/kind"
	"levee/internal/agent/signature"
	"levee/internal/packet"
)

// TestKnownClientsAreServedBesideStrangersLikeThem: nothing was done about datagrams and pings that
// only their forged sources tell from those of clients.
func TestKnownClientsAreServedBesideStrangersLikeThem(t *testing.T) {
	for what, like := range map[string]func(r *rand.Rand) packet.Spec{
		"datagrams": likeClients,
		"pings": func(r *rand.Rand) packet.Spec {
			return packet.Spec{Type: new(uint8(8)), Proto: new(uint8(packet.ProtoICMP)),
				Payload: some(r, 56)}
		},
	} {
		a := attacked(t, 12*time.Second, 5*time.Second, &stream{rate: 60_000,
			make: func(r *rand.Rand) packet.Spec {
				s := like(r)
				s.From = forgedSource(r)
				return s
			}})
		if len(a.all) != 1 || a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.001 {
			t.Errorf("%s: half was dropped after %.2f s, %.2f %% from two seconds on, and %.3f %% "+
				"of clients' packets: %+v", what, a.drop, 100*a.dropped, 100*a.lost, a.all)
		}
		if n := len(a.all[0].Rules); n == 0 || !strings.Contains(a.all[0].Rules[n-1].Rule,
			" not from { 198.18.0.2, ") {
			t.Errorf("%s: %+v", what, a.all[0].Rules)
		}
	}
}

// TestKnownClientsAreNamedByFewNetworks: by addresses where these are few, by networks where they
// are many. Where these would be too much of the Internet, those with most packets are named.
func TestKnownClientsAreNamedByFewNetworks(t *testing.T) {
	of := func(n, packets int, at func(i int) netip.Addr) map[netip.Addr]int {
		out := map[netip.Addr]int{}
		for i := range n {
			out[at(i)] = packets
		}
		return out
	}
	four := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{16, byte(i >> 8), byte(i), 1}) }
	wide := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), 1, 1}) }
	steered := of(1000, 0, wide)
	maps.Copy(steered, of(100, 20, four))
	for _, c := range []struct {
		of    map[netip.Addr]int
		six   bool
		n     int
		first string
		holds string
	}{
		{of(100, 1, four), false, 100, "16.0.0.1/32", "16.0.99.1"},
		{of(100, 1, four), true, 0, "", ""},
		{of(1000, 1, four), false, 63, "16.0.0.0/20", "16.3.1.1"},
		{of(60_000, 1, four), false, 235, "16.0.0.0/16", "16.200.1.1"},
		{of(1000, 1, wide), false, 256, "0.0.0.0/16", ""},
		{steered, false, 256, "0.0.1.1/32", "16.0.99.1"},
		{of(300, 1, func(i int) netip.Addr {
			return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", i%200, i))
		}), true, 200, "2001:db8::/64", ""},
	} {
		got := networksOf(c.of, !c.six, c.six, 10)
		if len(got) != c.n || c.n > 0 && got[0].String() != c.first ||
			c.holds != "" && !newPrefixes(got).has(netip.MustParseAddr(c.holds)) {
			t.Errorf("%d addresses: %d networks, %v", len(c.of), len(got), got[:min(2, len(got))])
		}
	}
}

// TestStrangersHaveNoHandshake: who has done one was said to be known, and was not. Where a
// detector keeps just who is known, the rule was not understood.
func TestStrangersHaveNoHandshake(t *testing.T) {
	client, guest := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("203.0.113.9")
	alarm := detect.Alarm{Kind: kind.UDP, All: 60_000, Threshold: 10_000}
	j := &job{Search: searching(alarm).Search,
		beyond: 1, good: signature.NewSample(packet.Ethernet, nil, 10_000),
		flood: signature.NewSample(packet.Ethernet, nil, 1000),
		known: map[netip.Addr]int{client: 100},
		peers: NewPeers(func() ([]netip.Addr, error) { return []netip.Addr{guest}, nil })}
	j.Of.Collateral = 1e-3
	j.Of.KeepText = "{ 198.51.100.1, 203.0.113.9 }"
	j.Of.Keep = []netip.Prefix{netip.PrefixFrom(client, 32), netip.PrefixFrom(guest, 32)}
	for i := range 200 {
		j.good.Add(udpFrom(t, client.String()), 0)
		j.flood.Add(udpFrom(t, fmt.Sprintf("192.0.2.%d", i)), 0)
	}
	r, fault := j.limitStrangers()
	if want := "limit udp not from " + j.Of.KeepText + " rate "; fault != "" ||
		!strings.HasPrefix(r.Rule, want) {
		t.Fatalf("%q, %q: want %q", r.Rule, fault, want)
	}
	if rule, err := rulesOf(&r, j.Of); err != nil || len(rule.Match) < 3 {
		t.Errorf("%+v, %v: want those that are known, and those that are kept", rule, err)
	}
}
