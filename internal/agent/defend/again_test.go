package defend

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/packet"
)

// sessions are so many clients of datagrams, each in a session with a port of its own, four packets
// a second; they begin so long after the lab.
func sessions(n int, first byte, after time.Duration) *stream {
	return &stream{rate: 4 * float64(n), answers: 1, after: after,
		make: func(r *rand.Rand) packet.Spec {
			s, at := likeClients(r), r.IntN(n)
			own := rand.New(rand.NewPCG(uint64(at), uint64(first)))
			s.From = netip.AddrFrom4([4]byte{first, byte(own.IntN(256)), byte(own.IntN(256)),
				byte(own.IntN(256))})
			s.FromPort, s.ToPort = labPort(own), new(uint16(27015))
			return s
		}}
}

// TestNewClientsSendAgainBesideAFloodLikeThem: a limit on strangers let in who came before a flood.
// Clients who came once it was in force lost 98 % of their packets as long as the flood went on.
func TestNewClientsSendAgainBesideAFloodLikeThem(t *testing.T) {
	for what, c := range map[string]struct {
		before int
		from   func(r *rand.Rand) netip.Addr
	}{
		"from anywhere":             {100, forgedSource},
		"from anywhere, 400 before": {400, forgedSource},
		"in the names of clients": {400, func(r *rand.Rand) netip.Addr {
			return sessions(400, 77, 0).make(r).From
		}},
		"from the networks of clients": {400, func(r *rand.Rand) netip.Addr {
			a := sessions(400, 77, 0).make(r).From.As4()
			a[2], a[3] = byte(r.Uint32()), byte(r.Uint32())
			return netip.AddrFrom4(a)
		}},
	} {
		before, later := sessions(c.before, 77, 0), sessions(200, 78, 22*time.Second)
		flood := &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From, s.ToPort = c.from(r), new(uint16(27015))
			return s
		}}
		a := attacked(t, 20*time.Second, 8*time.Second, flood, before, later)
		lost, new := before.dropped/before.came, later.dropped/later.came
		if a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.001 || lost > 0.04 ||
			new > 0.06 {
			t.Errorf("%s: half was dropped after %.2f s, %.2f %% from two seconds on, %.3f %% of "+
				"clients' packets, %.1f %% of sessions before and %.1f %% of those after it", what,
				a.drop, 100*a.dropped, 100*a.lost, 100*lost, 100*new)
			for _, i := range a.all {
				for _, r := range i.Rules {
					t.Logf("%s: %.150s %.150s", r.State, r.Rule, r.Why)
				}
				t.Log(strings.Join(i.Notes, "; "))
			}
		}
	}
}
