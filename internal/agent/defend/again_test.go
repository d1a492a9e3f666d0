package defend

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/filter/greylist"
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

// askedAgain is a search against datagrams like those of 100 sessions.
func askedAgain(t *testing.T) (j *job, now time.Time) {
	t.Helper()
	j, now = againstUDP(t, "default pass\ndetect \"floods\" enforce\n", 27015), time.Now()
	for i := range 1000 {
		from := fmt.Sprintf("203.%d.%d.7", i/250, i%250)
		j.flood.Add(datagramTo(t, from, 4000, 27015, []byte("hello")), 0)
	}
	j.flows, j.Alarm.Since = newFlows(), now.Add(20*time.Second)
	for s := range 10 {
		for i := range 100 {
			j.flows.add(now.Add(time.Duration(s)*time.Second), &packet.Packet{Family: packet.IPv4,
				Src: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), SrcPort: 4000,
				Dst: netip.MustParseAddr("192.0.2.1"), DstPort: 27015, Proto: packet.ProtoUDP,
				Transport: packet.PortTransport}, 1)
		}
	}
	return j, now
}

// TestConnectionsLeaveRoomForSessions: one flow in 32 was drawn where a server of pages stands
// beside that of sessions, so that too few of these were known.
func TestConnectionsLeaveRoomForSessions(t *testing.T) {
	j, now := askedAgain(t)
	for i := range 100_000 {
		j.flows.add(now.Add(time.Duration(i)*100*time.Microsecond), &packet.Packet{
			Family: packet.IPv4, Src: netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8),
				byte(i)}), SrcPort: 4000, Dst: netip.MustParseAddr("192.0.2.1"), DstPort: 443,
			Proto: packet.ProtoTCP, Transport: packet.TCPTransport, Flags: packet.ACK}, 1)
	}
	if rule, fault := j.greylist(); fault != "" {
		t.Errorf("%s: %s", rule.Rule, fault)
	}
	o := j.once(&spared{}, true)
	if o.flows != 100 || o.all < 70_000 || o.all > 130_000 || len(j.flows.of) > 2*mostFlows {
		t.Errorf("%+v of %d flows", o, len(j.flows.of))
	}
}

// TestAPolicyHasRoomForSoManyGreylists, live ones among them.
func TestAPolicyHasRoomForSoManyGreylists(t *testing.T) {
	j, _ := askedAgain(t)
	for i := range greylist.Meters {
		if rule, fault := j.greylist(); fault != "" {
			t.Fatalf("%d: %s: %s", i, rule.Rule, fault)
		}
		j.Live = append(j.Live, episode.Live{Of: j.Of, Rule: incident.Rule{
			Rule: "greylist udp after 100ms within 60s", Action: episode.Greylist}})
	}
	if _, fault := j.greylist(); fault != "the policy has as many as it may have" {
		t.Error(fault)
	}
}
