package defend

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/kind"
	"levee/internal/agent/known"
	"levee/internal/agent/peers"
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

// TestNewClientsAreNotCutForAFloodLikeThem: what a limit on strangers costs was asked of the sample
// of good traffic, in which who came and went is known. Of a service of short visits the limit took
// nearly all as long as the flood went on: nobody who comes later is known.
func TestNewClientsAreNotCutForAFloodLikeThem(t *testing.T) {
	for what, c := range map[string]struct {
		visits float64 // a second
		lasts  time.Duration
		acts   bool
	}{
		"short visits":  {20, 2 * time.Second, false},
		"long sessions": {0.05, time.Hour, true},
	} {
		visitors := visiting(c.visits, c.lasts)
		flood := &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From = forgedSource(r)
			return s
		}}
		a := attacked(t, 15*time.Second, 3*time.Second, flood, visitors)
		lost := visitors.dropped / max(1, visitors.came)
		// strangers have twice the 770 that are usual
		if acts := a.dropped > 0.97; acts != c.acts || !acts && lost > 0.01 || a.lost > 0.001 {
			t.Errorf("%s: %.2f %% of the flood are dropped, and %.1f %% of their packets: %+v",
				what, 100*a.dropped, 100*lost, a.all)
		}
	}
}

// TestStrangersHaveNoHandshake: who has done one was said to be known, and was not. Where a
// detector keeps just who is known, the rule was not understood.
func TestStrangersHaveNoHandshake(t *testing.T) {
	friend, guest := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("203.0.113.9")
	alarm := detect.Alarm{Kind: kind.UDP, All: 60_000, Threshold: 10_000}
	j := &job{Search: searching(alarm).Search,
		beyond: 1, good: signature.NewSample(packet.Ethernet, nil, 10_000),
		flood: signature.NewSample(packet.Ethernet, nil, 1000),
		known: map[netip.Addr]known.Client{friend: {Packets: 100}},
		peers: peers.New(func() ([]netip.Addr, error) { return []netip.Addr{guest}, nil })}
	j.Of.Collateral = 1e-3
	j.Of.KeepText = "{ 198.51.100.1, 203.0.113.9 }"
	j.Of.Keep = []netip.Prefix{netip.PrefixFrom(friend, 32), netip.PrefixFrom(guest, 32)}
	for i := range 200 {
		j.good.Add(udpFrom(t, friend.String()), 0)
		j.flood.Add(udpFrom(t, fmt.Sprintf("192.0.2.%d", i)), 0)
	}
	r, fault := j.limitStrangers()
	want := "limit udp" + strings.Repeat(keepTerm(j.Of), 2) + " rate "
	if fault != "" || !strings.HasPrefix(r.Rule, want) {
		t.Fatalf("%q, %q: want %q", r.Rule, fault, want)
	}
	if rule, err := rulesOf(&r, j.Of); err != nil || len(rule.Match) < 3 {
		t.Errorf("%+v, %v: want those that are known, and those that are kept", rule, err)
	}
}
