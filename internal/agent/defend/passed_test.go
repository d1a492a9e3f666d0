package defend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/signature"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// TestWhatPassedASampleIsKnown: samples were judged again by the policy, with dynamic sets that are
// empty and no connections. What a rule passes that asks one of these looked as if the default had
// dropped it: no rule was found against such a flood, and rules cost nothing of such good traffic.
func TestWhatPassedASampleIsKnown(t *testing.T) {
	for _, rule := range []string{"pass to self", "pass from known", "pass established",
		"pass udp to services"} {
		base := parsed(t, "set known = dynamic(max 100, lease 1h)\n"+
			"set services = dynamic(of endpoints, max 100, lease 1h)\n"+rule+
			"\ndefault drop\ndetect \"floods\" enforce\n")
		slots := base.Slots()
		by := slots[slices.IndexFunc(slots, func(s policy.Slot) bool {
			return s.Reason == policy.ByRule
		})].ID
		search := func(alike int) *job {
			j := &job{Search: searching(detect.Alarm{Kind: kind.UDP, All: 60_000,
				Threshold: 10_000, UsualAll: 50}).Search, beyond: 1, base: base, kinds: 1000,
				good:  signature.NewSample(packet.Ethernet, nil, 10_000),
				flood: signature.NewSample(packet.Ethernet, nil, 1000)}
			j.Of.Collateral = 1e-3
			for i := range 4000 {
				j.good.AddPassed(segmentOf(t, fmt.Sprintf("198.51.100.%d", i%100),
					uint16(40000+i), packet.ACK), 0, by)
			}
			payload := []byte("a flood has one of its own")
			for i := range 1000 {
				from := fmt.Sprintf("%d.%d.%d.7", 20+i%150, i*7%250, i*13%250)
				b := datagramTo(t, from, uint16(1024+i*61%50_000), 27015, payload)
				j.flood.AddPassed(b, 0, by)
				if i < alike {
					j.good.AddPassed(b, 0, by)
				}
			}
			return j
		}
		found, err := search(0).run(t.Context())
		if err != nil || len(found.Rules) != 1 || found.Rules[0].Action != "drop" ||
			found.Rules[0].Coverage < 0.99 || found.Rules[0].Before != rule {
			t.Errorf("%s: %+v, %v", rule, found, err)
		}
		found, err = search(400).run(t.Context())
		if err != nil || slices.ContainsFunc(found.Rules, func(r incident.Rule) bool {
			return r.Action == "drop"
		}) {
			t.Errorf("%s, which passes clients that send the same: %+v, %v", rule, found, err)
		}
	}
}

// TestALabelOfAnotherRulePassedNothing: packets that a rule had passed before another one got its
// label counted as those of that, in front of rules which by now would drop them.
func TestALabelOfAnotherRulePassedNothing(t *testing.T) {
	first := parsed(t, "pass udp as \"web\"\npass tcp\ndefault drop\n")
	second := parsed(t, "pass icmp as \"web\"\npass udp\npass tcp\ndefault drop\n")
	g, now := newGood(), time.Now()
	for _, by := range []string{"label:web", "text:pass tcp#1", "default", "text:gone#1"} {
		g.add(&frame{at: now, by: by})
	}
	by := func() (out []string) {
		for _, f := range g.chunks[0].frames {
			out = append(out, f.by)
		}
		return out
	}
	g.replaced(first, first)
	if got := by(); got[0] != "label:web" {
		t.Errorf("by the same policy: %q", got)
	}
	g.replaced(first, second)
	if got := by(); !slices.Equal(got, []string{signature.Unsaid, "text:pass tcp#1", "default",
		signature.Unsaid}) {
		t.Errorf("by another: %q", got)
	}
}

// TestALimitCostsWhatItDropsWhereItStands: the cost of a limit on a whole kind was told behind all
// rules, where it drops nothing of what these pass. So it was none, and the limit came into force
// in front of the rule that passes the flood, and took nearly all that clients sent.
func TestALimitCostsWhatItDropsWhereItStands(t *testing.T) {
	j := againstUDP(t, "pass tcp\npass udp port 27015\ndefault drop\n"+
		"detect \"floods\" enforce\n", 27015)
	slots := j.base.Slots()
	by := slots[j.base.RuleSlot(1)].ID
	for i := range 1000 {
		from := fmt.Sprintf("198.51.100.%d", i%64)
		b := datagramTo(t, from, uint16(20_000+i), 27015, []byte("hello"))
		j.flood.AddPassed(b, 0, by)
		j.good.AddPassed(b, 0, by)
	}
	rules, why := j.complete(nil, 0, false)
	if all := strings.Join(why, "; "); len(rules) > 0 || !strings.Contains(all,
		"no limit: it would drop 20 % of 5000 good packets") {
		t.Errorf("%+v; %q", rules, why)
	}
}

// TestFloodsThatRulesPass: in front of `pass` a rule costs what it takes of clients there. Behind
// the default of a policy without rules all was right, and a limit took clients' datagrams here.
func TestFloodsThatRulesPass(t *testing.T) {
	mimic := func(r *rand.Rand) packet.Spec {
		s := likeClients(r)
		s.From = labClient(r.IntN(labHosts))
		return s
	}
	tells := func(r *rand.Rand) packet.Spec {
		return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
			ToPort: new(uint16(443)), Payload: some(r, 30)}
	}
	policy := "pass tcp\npass udp\npass icmp\n" + detecting + "default drop\n"
	a := attackedBehind(t, policy, 8*time.Second, 4*time.Second,
		&stream{rate: 40_000, make: mimic})
	if a.lost > 0.002 || len(a.all) != 1 {
		t.Errorf("like clients: %.2f %% of their packets were dropped: %+v", 100*a.lost, a.all)
	}
	a = attackedBehind(t, policy, 8*time.Second, 3*time.Second, &stream{rate: 40_000, make: tells})
	if a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.002 {
		t.Errorf("unlike clients: half was dropped after %.2f s, %.2f %% from two seconds on, and "+
			"%.3f %% of clients' packets: %+v", a.drop, 100*a.dropped, 100*a.lost, a.all)
	}
}

// TestRulesOfSeveralSearchesCostNoMore than `collateral` together: each search had that for itself,
// and seven rules against datagrams in the name of one client took 0.4 % of the good packets, where
// 0.1 % may be. So did rules of floods beside each other.
func TestRulesOfSeveralSearchesCostNoMore(t *testing.T) {
	j := againstUDP(t, "default pass\ndetect \"floods\" enforce\n", 27015)
	j.link = packet.Ethernet
	for i := range 1000 {
		b := datagramTo(t, fmt.Sprintf("%d.%d.%d.7", 20+i%150, i*7%250, i*13%250),
			uint16(1024+i*61%50_000), 27015, []byte("a flood has one of its own"))
		j.flood.AddPassed(b, 0, "default")
		if i < 3 {
			j.good.AddPassed(b, 0, "default")
		}
	}
	for _, c := range []struct {
		cost   float64
		action string
		rules  int
	}{{0, "drop", 1}, {0.0002, "drop", 1}, {0.0018, "drop", 0}, {0.0018, episode.Cookie, 1}} {
		j.Live = []episode.Live{{Of: j.Of, Rule: incident.Rule{Rule: `drop icmp as "flood-6-1"`,
			Label: "flood-6-1", Action: c.action, Predicted: c.cost}}}
		found, err := j.run(t.Context())
		if err != nil || len(found.Rules) != c.rules {
			t.Errorf("beside a %s that costs %v: %+v, %v", c.action, c.cost, found.Rules, err)
		}
	}
}
