package signature

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"levee/internal/agent/spread"
	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// mixture takes turns between four floods.
func mixture() string {
	var lines []string
	for _, f := range []int{0, 2, 3, 4} {
		lines = append(lines, floods[f].packets)
	}
	return strings.Join(lines, "\n")
}

func TestAMixtureTakesARuleForEachFlood(t *testing.T) {
	flood := sampleOf(nil, frames(t, mixture(), 0, 20_000), frames(t, good, 50_000, 3_000))
	p := propose(t, flood, sampleOf(nil, frames(t, good, 0, 18_000)), Limits{Collateral: 0.001})
	if len(p.Rules) < 3 || len(p.Rules) > 5 || p.Flood.Dropped < 19_800 ||
		p.Good.Collateral() > 0.001 {
		t.Errorf("%d rules, %d of 20000 packets, %d good ones", len(p.Rules), p.Flood.Dropped,
			p.Good.Dropped)
	}
	wantPolicy(t, p)
}

func TestAFloodLikeGoodTrafficTakesNoRule(t *testing.T) {
	p := propose(t, sampleOf(nil, frames(t, good, 0, 18_000)),
		sampleOf(nil, frames(t, good, 50_000, 18_000)), Limits{Collateral: 0.001})
	if len(p.Rules) > 0 || !strings.HasPrefix(p.Sentence, "No rule is proposed: the flood looks") {
		t.Errorf("%d rules: %s", len(p.Rules), p.Sentence)
	}
}

// Figures of one half of the packets hold for the other, which the search has not seen.
func TestFiguresHoldForPacketsThatWereNotSeen(t *testing.T) {
	calm, later := frames(t, good, 0, 18_000), frames(t, good, 50_000, 18_000)
	for _, f := range floods {
		t.Run(f.name, func(t *testing.T) {
			p := propose(t, sampleOf(nil, frames(t, f.packets, 0, 6_000)), sampleOf(nil, calm),
				Limits{Collateral: 0.001})
			text := string(p.Policy())
			q, ds := resolve.Parse("proposal", []byte(text), nil)
			if q == nil {
				t.Fatal(ds)
			}
			flood, collateral := dropped(q, frames(t, f.packets, 6_000, 6_000)), dropped(q, later)
			if flood < p.Flood.Coverage()/2 || flood > 2*p.Flood.Coverage() {
				t.Errorf("coverage %.4f became %.4f", p.Flood.Coverage(), flood)
			}
			if collateral > max(2*p.Good.Collateral(), 2*highest(p.Good.Dropped, p.Good.Packets)) {
				t.Errorf("collateral %.5f became %.5f", p.Good.Collateral(), collateral)
			}
		})
	}
}

// dropped is the share of frames that a policy drops.
func dropped(p *policy.Policy, frames [][]byte) float64 {
	s := sampleOf(nil, frames)
	w := &work{}
	n := 0
	w.judge(p, nil, s, func(_, slot int, act action.Action) {
		if act == action.Drop {
			n++
		}
	})
	return float64(n) / float64(len(frames))
}

func TestTheSameSamplesGiveTheSameProposal(t *testing.T) {
	made := func() *Proposal {
		return propose(t, sampleOf(nil, frames(t, mixture(), 0, 4_000)),
			sampleOf(nil, frames(t, good, 0, 4_000)), Limits{Collateral: 0.001})
	}
	a, b := made(), made()
	if !slices.Equal(a.Policy(), b.Policy()) || !reflect.DeepEqual(a, b) {
		t.Errorf("%s\nand then\n%s", a.Policy(), b.Policy())
	}
}

// TestSearchesOfAPairKnowNothingOfEachOther: each finds what it would find alone.
func TestSearchesOfAPairKnowNothingOfEachOther(t *testing.T) {
	flood := sampleOf(nil, frames(t, mixture(), 0, 4_000), frames(t, good, 50_000, 1_000))
	calm := sampleOf(nil, frames(t, good, 0, 4_000))
	pair, err := NewPair(flood, calm, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []float64{0, 0.05, 0.001, 0, 0.05} {
		got, err := pair.Propose(share)
		if err != nil {
			t.Fatal(err)
		}
		want := propose(t, flood, calm, Limits{Collateral: share})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("at most %g of good packets:\n%s\nalone:\n%s", share, got.Policy(),
				want.Policy())
		}
	}
}

func TestWithoutGoodTrafficRulesAreNarrow(t *testing.T) {
	p := propose(t, sampleOf(nil, frames(t, floods[0].packets, 0, 4_000)), nil,
		Limits{Collateral: 0.001})
	if len(p.Rules) != 1 || !strings.Contains(p.Rules[0].Text, "to "+victim) ||
		!strings.Contains(p.Rules[0].Text, "len 40") ||
		!strings.Contains(p.Sentence, "an unknown share of the good traffic") ||
		!strings.Contains(strings.Join(p.Notes, " "), "collateral is unknown") {
		t.Errorf("%v, %s, %q", p.Rules, p.Sentence, p.Notes)
	}
	wantPolicy(t, p)
}

// TestTwoGoodPacketsTellNothing: a rule spared their ports, and dropped all other good traffic.
func TestTwoGoodPacketsTellNothing(t *testing.T) {
	p := propose(t, sampleOf(nil, frames(t, good, 0, 4_000)),
		sampleOf(nil, frames(t, good, 9_000, 2)), Limits{Collateral: 0.001})
	if len(p.Rules) > 0 || !strings.Contains(p.Sentence, "too few good packets were given") {
		t.Errorf("%v, %s", p.Rules, p.Sentence)
	}
}

// A destination is no signature: what goes to it is what is to be defended.
func TestTheVictimIsNotBanned(t *testing.T) {
	elsewhere := strings.ReplaceAll(good, victim, "198.51.100.77")
	p := propose(t, sampleOf(nil, frames(t, good, 0, 9_000)),
		sampleOf(nil, frames(t, elsewhere, 0, 9_000)), Limits{Collateral: 0.001})
	for _, r := range p.Rules {
		t.Errorf("proposed: %s", r.Text)
	}
}

func mustParse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("edge.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p
}

func TestRulesStandWhereAPolicyPassesTheFlood(t *testing.T) {
	const text = `protect from 203.0.112.0/20 tcp port 22
set partners = { 24.0.0.0/16 }
drop udp from port 19
pass from partners
pass tcp port { 80, 443 }
pass udp port 53
pass udp from port 53
pass icmp type echo-request
drop fragments
default drop
`
	p := mustParse(t, text)
	flood := sampleOf(p, frames(t, floods[0].packets, 0, 4_000))
	got := propose(t, flood, sampleOf(p, frames(t, good, 0, 9_000)),
		Limits{Collateral: 0.001, Policy: p})
	if len(got.Rules) != 1 || got.Rules[0].Before == nil || got.Rules[0].Before.Pos.Line != 5 ||
		got.Tail != "" {
		t.Fatalf("%+v", got)
	}
	// in place, the policy drops what it drops in the figures
	f, _ := syntax.Parse("edge.levee", []byte(text))
	q := mustParse(t, string(got.Into(f)))
	if again := dropped(q, frames(t, floods[0].packets, 0, 4_000)); again != got.Flood.Coverage() {
		t.Errorf("coverage %.4f became %.4f", got.Flood.Coverage(), again)
	}
	if q.Rules[2].Text != got.Rules[0].Text[:len(q.Rules[2].Text)] {
		t.Errorf("the rule stands behind %s", q.Rules[1].Text)
	}
	if len(ir.Build(q).Findings) > len(ir.Build(p).Findings) {
		t.Errorf("%v", ir.Build(q).Findings)
	}
}

// A label that the policy has already goes to no second rule.
func TestLabelsAreNew(t *testing.T) {
	p := mustParse(t, "drop udp port 1 as \"flood\"\ndrop fragments\ndefault pass\n")
	got := propose(t, sampleOf(p, frames(t, floods[0].packets, 0, 2_000)),
		sampleOf(p, frames(t, good, 0, 9_000)), Limits{Collateral: 0.001, Policy: p})
	if len(got.Rules) != 1 || !strings.HasSuffix(got.Rules[0].Text, `as "flood 2"`) {
		t.Errorf("%+v", got.Rules)
	}
}

func TestWhatAPolicyDropsOrProtectsIsNoFlood(t *testing.T) {
	flood := frames(t, floods[0].packets, 0, 2_000)
	calm := frames(t, good, 0, 9_000)
	for _, c := range []struct{ text, want string }{
		{"drop tcp syn len 40\ndrop fragments\ndefault pass\n", "No rule is needed"},
		{"protect to " + victim + "\ndefault pass\n", "is protected or essential"},
	} {
		p := mustParse(t, c.text)
		got := propose(t, sampleOf(p, flood), sampleOf(p, calm),
			Limits{Collateral: 0.001, Policy: p})
		if len(got.Rules) > 0 || !strings.Contains(got.Sentence, c.want) {
			t.Errorf("%s: %d rules, %s", c.text, len(got.Rules), got.Sentence)
		}
	}
}

// Broken packets have proposals that are policies, too.
func TestBrokenPackets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(20261124, 0))
	for k := range 30 {
		data := slices.Concat(frames(t, floods[k%len(floods)].packets, 0, 20)...)
		for range 200 {
			data[rnd.IntN(len(data))] = byte(rnd.Uint32())
		}
		wantPolicy(t, propose(t, chopped(data, 20+rnd.IntN(100)), nil, Limits{}))
	}
}

// chopped is a sample of data in pieces, four times each.
func chopped(data []byte, size int) *Sample {
	s := NewSample(packet.Ethernet, nil, 100)
	for piece := range slices.Chunk(data, size) {
		for range 4 {
			s.Add(piece, 0)
		}
	}
	return s
}

// Whatever packets hold, memory is bounded and nothing fails.
func TestHostilePackets(t *testing.T) {
	s := NewSample(packet.Ethernet, nil, 50)
	for i := range 500 {
		b := make([]byte, i*37%2000)
		for k := range b {
			b[k] = byte(i * k)
		}
		s.Add(b, 0)
	}
	long := make([]byte, 60_000) // headers that are longer than those that are kept
	copy(long[12:], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0x40, 0, 60})
	long[14+40+1] = 200
	s.Add(long, 0)
	if s.Len() != 50 || s.Seen() != 501 || s.LeftOut() != 1 {
		t.Errorf("%d of %d, %d left out", s.Len(), s.Seen(), s.LeftOut())
	}
	propose(t, s, s, Limits{Collateral: 0.001})
	if _, err := Propose(NewSample(packet.Ethernet, nil, 0), nil, Limits{}); err == nil {
		t.Error("a flood without packets has a proposal")
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, f := range []struct{ name, packets string }{
		{"syn", floods[0].packets}, {"mixture", mixture()},
		{"random", floods[2].packets}, {"clients", good},
	} {
		b.Run(f.name, func(b *testing.B) {
			flood := sampleOf(nil, frames(b, f.packets, 0, 100_000))
			calm := sampleOf(nil, frames(b, good, 0, 100_000))
			for b.Loop() {
				if _, err := Propose(flood, calm, Limits{Collateral: 0.001}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Forged sources are no field, however many of them lie in one prefix.
func TestForgedSourcesAreNoField(t *testing.T) {
	forged := strings.ReplaceAll(floods[2].packets, "0.0.0.0/0 permuted", "11.0.0.0/8 random")
	p := propose(t, sampleOf(nil, frames(t, forged, 0, 6_000), frames(t, good, 50_000, 6_000)),
		sampleOf(nil, frames(t, good, 0, 9_000)), Limits{Collateral: 0.001})
	if len(p.Rules) != 1 || !p.Rules[0].Forged || strings.Contains(p.Rules[0].Text, "from ") ||
		!strings.Contains(p.Sentence, "sources that look forged") {
		t.Errorf("%+v", p.Rules)
	}
}

// Sources that are those of clients, or of few networks, do not look forged.
func TestOfSourcesOnlyThoseDrawnAtRandomLookForged(t *testing.T) {
	for from, want := range map[string]bool{
		"0.0.0.0/0 permuted":   true,
		"0.0.0.0/0 random":     true,
		"11.0.0.0/8 random":    true,
		"2001:db8::/32 random": true,
		"11.20.0.0/22 random":  false, // a network: a field to ask for
		"{ 24.0.0.0/9, 80.64.0.0/11, 151.0.0.0/12, 203.0.112.0/20 } random": false,
		"192.0.2.1": false,
	} {
		var addrs []netip.Addr
		text := "udp from " + from + " to 198.51.100.1 port 9"
		if strings.Contains(from, ":") {
			text = "udp from " + from + " to 2001:db8:ffff::1 port 9"
		}
		for _, b := range frames(t, text, 0, 2_000) {
			var p packet.Packet
			packet.Decode(b, &p)
			addrs = append(addrs, p.Src)
		}
		if got := spread.Of(addrs); got.Forged != want {
			t.Errorf("%s: %+v", from, got)
		}
	}
}

// What a capture has cut off is no field, whatever stands for it.
func TestBytesThatWereNotCapturedAreNoField(t *testing.T) {
	flood := NewSample(packet.Ethernet, nil, 0)
	for _, b := range frames(t, floods[2].packets, 0, 3_000) {
		clear(b[14+20+8:])
		flood.Add(b, len(b)-14-20-8)
	}
	p := propose(t, flood, sampleOf(nil, frames(t, good, 0, 9_000)), Limits{Collateral: 0.001})
	if len(p.Rules) != 1 || strings.Contains(p.Rules[0].Text, "payload") {
		t.Errorf("%+v", p.Rules)
	}
}
