package defend

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

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
// are many, and not at all where these would be too much of the Internet.
func TestKnownClientsAreNamedByFewNetworks(t *testing.T) {
	of := func(n int, at func(i int) netip.Addr) map[netip.Addr]bool {
		out := map[netip.Addr]bool{}
		for i := range n {
			out[at(i)] = true
		}
		return out
	}
	four := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{16, byte(i >> 8), byte(i), 1}) }
	for _, c := range []struct {
		of    map[netip.Addr]bool
		six   bool
		n     int
		first string
	}{
		{of(100, four), false, 100, "16.0.0.1/32"},
		{of(100, four), true, 0, ""},
		{of(1000, four), false, 63, "16.0.0.0/20"},
		{of(60_000, four), false, 235, "16.0.0.0/16"},
		{of(1000, func(i int) netip.Addr {
			return netip.AddrFrom4([4]byte{byte(i), byte(i >> 8), 1, 1})
		}), false, 0, ""},
		{of(300, func(i int) netip.Addr {
			return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", i%200, i))
		}), true, 200, "2001:db8::/64"},
	} {
		got := networksOf(c.of, !c.six, c.six)
		if len(got) != c.n || c.n > 0 && got[0].String() != c.first {
			t.Errorf("%d addresses: %d networks, %v", len(c.of), len(got), got[:min(2, len(got))])
		}
	}
}
