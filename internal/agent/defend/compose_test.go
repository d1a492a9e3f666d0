package defend

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/known"
	"levee/internal/agent/peers"
	"levee/internal/agent/signature"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("edge.levee", []byte(text), nil)
	if p == nil {
		t.Fatal(ds)
	}
	return p
}

// udpFrom is a UDP packet to port 53 from an address, as a frame.
func udpFrom(t *testing.T, from string) []byte {
	t.Helper()
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}
	b = append(b, netip.MustParseAddr(from).AsSlice()...)
	b = append(b, 10, 0, 0, 1, 0x9c, 0x40, 0, 53, 0, 8, 0, 0)
	var p packet.Packet
	if packet.Decode(b, &p); p.Malformed != packet.WellFormed {
		t.Fatal(p.Malformed)
	}
	return b
}

// TestRulesThatKeepAreRules: the text of a limit whose detector keeps somebody could not be put
// into a policy: it had whom it keeps behind its rate.
func TestRulesThatKeepAreRules(t *testing.T) {
	const sets = "set partners = { 198.51.100.0/24 }\n"
	for _, keep := range []string{"partners", "{ 203.0.113.7, 203.0.113.9 }"} {
		d := parsed(t, sets+"default pass\ndetect \"a\" enforce keep "+keep+"\n").Detects[0]
		for _, body := range []string{"drop udp port 53", "limit udp rate 100/s by source",
			"limit udp not from { 192.0.2.9 } to 192.0.2.1 rate 100/s", "cookie tcp port { 80 }",
			"greylist udp not from { 192.0.2.9 } after 100ms within 60s above 200/s"} {
			text := written(body, d, "flood-1-1")
			parsed(t, sets+text+"\ndefault pass\n")
			r := incident.Rule{Rule: text, Label: "flood-1-1"}
			if _, err := rulesOf(&r, d); err != nil || !strings.Contains(text, keepTerm(d)) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestLiveRulesSpareWhomTheyMust: whom protect rules and the detector keep, and what rules in front
// decide.
func TestLiveRulesSpareWhomTheyMust(t *testing.T) {
	p := parsed(t, `set partners = { 198.51.100.0/24 }
protect from 192.0.2.1
pass from 192.0.2.2
pass udp
pass from partners
default drop
detect "floods" enforce keep partners
detect "list" enforce keep { 203.0.113.7, 203.0.113.9 }
`)
	for at, d := range p.Detects {
		r := incident.Rule{Rule: written(`drop udp port 53 as "flood"`, d, "flood-1-1"),
			Label: "flood-1-1", Before: "pass udp"}
		with, err := compose(p, []episode.Live{{Rule: r, Of: d}})
		if err != nil {
			t.Fatal(err)
		}
		if !fits(p, with) {
			t.Error("it does not fit")
		}
		i := slices.IndexFunc(with.Rules, func(r *policy.Rule) bool {
			return r.Label == "flood-1-1"
		})
		if i != 1 || with.Rules[i].Text != r.Rule || with.Rules[i].Pos.Line != 0 {
			t.Errorf("it stands at %d: %+v", i, with.Rules[i])
		}
		judge := oracle.NewOn(with, packet.Ethernet)
		for from, want := range map[string]action.Action{
			"192.0.2.1": action.Pass, "192.0.2.2": action.Pass, "192.0.2.3": action.Drop,
			"198.51.100.9": []action.Action{action.Pass, action.Drop}[at],
			"203.0.113.7":  []action.Action{action.Drop, action.Pass}[at],
		} {
			if got := judge.Eval(udpFrom(t, from)).Action; got != want {
				t.Errorf("%s: %s is %v, want %v", r.Rule, from, got, want)
			}
		}
		if len(p.Rules) != 3 {
			t.Error("the operator's policy was changed")
		}
	}
}

// TestRulesAreLoosenedAndTightened without changing what they match.
func TestRulesAreLoosenedAndTightened(t *testing.T) {
	d := &policy.Detect{}
	for _, text := range []string{`drop udp from port 53 len > 468 as "flood-1-1"`,
		`drop tcp flags syn/syn,ack ttl 64 not from 192.0.2.0/24 as "flood-2-1"`,
		`drop as "flood-3-1"`} {
		loose := episode.Loosened(text, 250)
		for _, s := range []string{text, loose} {
			if _, err := rulesOf(&incident.Rule{Rule: s}, d); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		}
		if got := episode.Tightened(loose); got != text {
			t.Errorf("%q became %q and then %q", text, loose, got)
		}
	}
}

// searching is a search against a flood.
func searching(a detect.Alarm) *job {
	return &job{Search: episode.Search{ID: "7", Round: 1, Alarm: a, Of: &policy.Detect{}},
		ports: []uint16{80}}
}

func completed(j *job, rules []incident.Rule, dropped float64) []incident.Rule {
	out, _ := j.complete(rules, dropped, false)
	return out
}

// TestEachPatternIsARule: limits by pattern are in the words of the language.
func TestEachPatternIsARule(t *testing.T) {
	for _, row := range kind.Rows {
		for _, to := range []string{"", "192.0.2.1", "2001:db8::1"} {
			text := row.LimitTo(to, rateText(100.5))
			if _, ok := valid(text); !ok && row.Limit != "" {
				t.Errorf("%s to %s: %q", row.Name, to, text)
			}
		}
	}
	if kind.Rows[kind.Packets].LimitTo("192.0.2.1", rateText(1)) != "" {
		t.Error("all packets are limited")
	}
}

// TestGoodTrafficKeepsIncidentsOut: what came shortly before an alarm and during it is not good,
// nor is what was unlike the traffic before; all is bounded, and old packets go.
func TestGoodTrafficKeepsIncidentsOut(t *testing.T) {
	g := newGood()
	now := time.Unix(1e9, 0)
	second := func(seconds, packets int, raised bool) {
		for range seconds {
			for i := range packets {
				g.add(&frame{at: now.Add(time.Duration(i) * time.Second / time.Duration(packets)),
					length: 60, n: 60})
			}
			now = now.Add(time.Second)
			g.tidy(now, raised)
		}
	}
	size := func() int { return g.sample(now, packet.Ethernet, nil).Len() }
	second(20, 100, false)
	if n := size(); n < 1500 || n > 1800 {
		t.Errorf("%d good packets after 20 s", n)
	}
	second(5, 100, true)
	before := size()
	g.forget(now)
	if n := size(); n > before {
		t.Errorf("%d good packets, %d before the alarm", n, before)
	}
	second(3600, 300, false)
	if n := size(); n < mostGood/2 || n > mostGood*5/4 {
		t.Errorf("%d good packets after an hour", n)
	}
	now = now.Add(2 * goodAge)
	if g.tidy(now, false); size() != 0 {
		t.Errorf("%d old packets", size())
	}
}

// TestTheBeginningOfASlowFloodIsNotGood: half a minute in which it rose spoke for it, as only its
// last second was marked.
func TestTheBeginningOfASlowFloodIsNotGood(t *testing.T) {
	g := newGood()
	now := time.Unix(1e9, 0)
	second := func(seconds, length int, raised bool) {
		for range seconds {
			for range 30 {
				g.add(&frame{at: now, length: length, n: 60})
			}
			now = now.Add(time.Second)
			g.tidy(now, raised)
		}
	}
	second(120, 60, false)
	second(3, 1000, false) // too few yet to be unlike what was before
	second(8*60, 1000, true)
	none := func(when string) {
		t.Helper()
		for _, c := range g.chunks {
			for i := range c.frames {
				if c.frames[i].length == 1000 && c.isGood(now) {
					t.Fatalf("%s: a packet of the rise is good, %v after it", when, now.Sub(c.from))
				}
			}
		}
	}
	none("while it rises")
	g.forget(now)
	if n := g.sample(now, packet.Ethernet, nil).Len(); n < 1000 {
		t.Errorf("%d good packets", n)
	}
	none("at the alarm")
}

// TestPortsOfACookieAreFew, or there is no cookie.
func TestPortsOfACookieAreFew(t *testing.T) {
	if got := portsOf(map[uint16]int{80: 900, 443: 90, 22: 1}); !slices.Equal(got,
		[]uint16{80, 443}) {
		t.Error(got)
	}
	many := map[uint16]int{}
	for i := range uint16(1000) {
		many[i] = 1
	}
	if got := portsOf(many); got != nil {
		t.Error(got)
	}
}

// tcp adds TCP segments of a source to a sample.
func tcp(t *testing.T, s *signature.Sample, from string, flags uint8, n int) {
	t.Helper()
	for i := range n {
		s.Add(segmentOf(t, from, uint16(40000+i), flags), 0)
	}
}

// segmentOf is a TCP segment from a source and port.
func segmentOf(t *testing.T, from string, port uint16, flags uint8) []byte {
	t.Helper()
	b, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
		To: netip.MustParseAddr("192.0.2.1"), Proto: new(uint8(packet.ProtoTCP)), Flags: &flags,
		FromPort: &port, ToPort: new(uint16(80))})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForgedSegmentsMakeNoClients: whoever sent two ACKs in the name of an address before a flood
// had it pass the cookie. Whom the kernel knows passes; strangers are counted by their SYNs.
func TestForgedSegmentsMakeNoClients(t *testing.T) {
	s := signature.NewSample(packet.Ethernet, nil, 1000)
	tcp(t, s, "198.51.100.1", packet.SYN, 1) // has a connection
	tcp(t, s, "198.51.100.1", packet.ACK, 9)
	tcp(t, s, "198.51.100.2", packet.ACK|packet.PSH, 900) // forged
	tcp(t, s, "198.51.100.3", packet.SYN, 1)              // was there once
	tcp(t, s, "198.51.100.3", packet.ACK, 9)
	tcp(t, s, "198.51.100.4", packet.SYN, 5) // forged, or refused
	there := netip.MustParseAddr("198.51.100.1")
	j := searching(detect.Alarm{Kind: kind.SYN})
	j.peers, j.good = peers.New(func() ([]netip.Addr, error) {
		return []netip.Addr{there, there}, nil
	}), s
	if r, ok := j.cookie(0); !ok || r.Predicted != 2/float64(s.Len()) {
		t.Errorf("of clients of which one is known a cookie costs %v", r.Predicted)
	}
	if n := strangers(s, map[netip.Addr]bool{there: true}, kind.SYN.Is, sourceOf); n != 1 {
		t.Errorf("%d strangers", n)
	}
}

// TestACookieCostsNoMoreThanAllGoodPackets: where little more than SYNs of scans was good, it cost
// twice all of them, and by the square root of that no incident could be written to the disk.
func TestACookieCostsNoMoreThanAllGoodPackets(t *testing.T) {
	j := searching(detect.Alarm{Kind: kind.SYN})
	j.few, j.good = true, signature.NewSample(packet.Ethernet, nil, 10)
	for i := range 5 {
		tcp(t, j.good, fmt.Sprintf("198.51.100.%d", i), packet.SYN, 1)
	}
	r, ok := j.cookie(0)
	if _, err := json.Marshal(r); !ok || err != nil || r.Predicted != 1 || r.AtMost != 1 {
		t.Errorf("%v: it costs %v, %v at most", err, r.Predicted, r.AtMost)
	}
	if !strings.Contains(r.Why, "few good packets") {
		t.Errorf("of a drop that was not looked for: %s", r.Why)
	}
}

// TestWhatLiveRulesAreAgainstIsNotGood: while they are not in force, as behind a policy that has
// taken their place, it passes, and would speak for itself.
func TestWhatLiveRulesAreAgainstIsNotGood(t *testing.T) {
	w := New(Options{})
	w.link = packet.Ethernet
	now := time.Now()
	pass := func() int {
		w.sample(tap.Sampled{At: now, Passed: true, Weight: 1,
			Packet: udpFrom(t, "192.0.2.1"), Bytes: 42})
		return w.good.sample(now.Add(2*goodCalm), w.link, nil).Len()
	}
	if n := pass(); n != 1 {
		t.Errorf("%d good packets without a rule", n)
	}
	enforced := incident.Incident{ID: "1", Detector: "floods", State: incident.Open,
		Rules: []incident.Rule{{Rule: "drop udp", State: incident.Live}}}
	w.step(t.Context(), episode.Event{Policy: &episode.Policy{
		Detects: []*policy.Detect{{Name: "floods"}}}})
	w.step(t.Context(), episode.Event{Adopt: &episode.Adopt{InKernel: true,
		Texts: []string{"drop udp"}, Incidents: []incident.Incident{enforced}}})
	w.followed = now.Add(2 * goodCalm)
	if now = now.Add(goodCalm); pass() != 2 {
		t.Errorf("what passes a rule in force is not good")
	}
	w.lost(t.Context(), []string{"drop udp"})
	if n := pass(); n != 3 {
		t.Errorf("%d good packets where it goes on in another policy", n)
	}
	w.lost(t.Context(), nil)
	if n := pass(); n != 1 {
		t.Errorf("%d good packets where a rule is not in force any more", n)
	}
}

// TestACookieTakesWhatDropsLeaveOfSYNs: alone where they leave much, and not at all where they
// leave nothing.
func TestACookieTakesWhatDropsLeaveOfSYNs(t *testing.T) {
	j := &job{Search: searching(detect.Alarm{Kind: kind.SYN}).Search, ports: []uint16{80},
		beyond: 1,
		good:   signature.NewSample(packet.Ethernet, nil, 10)}
	drops := []incident.Rule{{Rule: "drop tcp syn"}}
	for _, c := range []struct {
		dropped float64
		want    string
	}{{1, "drop tcp syn"}, {0.95, `drop tcp syn, cookie tcp port { 80 } as "flood-7-2"`},
		{0.6, `cookie tcp port { 80 } as "flood-7-1"`},
		{0, `cookie tcp port { 80 } as "flood-7-1"`}} {
		var got []string
		for _, r := range completed(j, slices.Clone(drops), c.dropped) {
			got = append(got, r.Rule)
		}
		if all := strings.Join(got, ", "); all != c.want {
			t.Errorf("with %v dropped: %s, want %s", c.dropped, all, c.want)
		}
	}
	j.ports = nil
	if got, _ := j.complete(nil, 0, false); len(got) != 1 || got[0].Rule != `cookie tcp as "flood-7-1"` {
		t.Errorf("of SYNs to many ports: %v", got)
	}
}

// TestPacketsOfKnownSourcesAreNoFlood, unless they are most of it.
func TestPacketsOfKnownSourcesAreNoFlood(t *testing.T) {
	w := &Watcher{link: packet.Ethernet}
	frames := func(from string, n int) (out []frame) {
		b := udpFrom(t, from)
		for range n {
			f := frame{length: len(b)}
			f.n = uint8(copy(f.head[:], b))
			out = append(out, f)
		}
		return out
	}
	good := signature.NewSample(packet.Ethernet, nil, 100)
	for _, from := range []string{"198.51.100.1", "198.51.100.1", "198.51.100.2"} {
		good.Add(udpFrom(t, from), 0)
	}
	known := sourcesOf(good)
	if len(known) != 1 || !known[netip.MustParseAddr("198.51.100.1")] {
		t.Fatalf("known: %v", known)
	}
	sample := append(frames("198.51.100.1", 300), frames("203.0.113.9", 700)...)
	if n := len(w.strange(sample, known, 0.7)); n != 700 {
		t.Errorf("%d of the 700 strange packets are the flood", n)
	}
	if n := len(w.strange(sample, known, 1)); n != 700 { // the share is told too high
		t.Errorf("%d of the 700 strange packets are the flood", n)
	}
	sample = append(frames("198.51.100.1", 700), frames("203.0.113.9", 300)...)
	if n := len(w.strange(sample, known, 0.7)); n != 1000 {
		t.Errorf("%d of 1000 packets are the flood, most of them of a known source", n)
	}
}

// TestACrowdIsNoPartOfAFloodBesideIt: a rule against a flood took the crowd of clients that had
// come before it, which is in its sample and in none of good traffic. Who forges sources, sends
// more than before, or was not answered is none of a crowd.
func TestACrowdIsNoPartOfAFloodBesideIt(t *testing.T) {
	for _, c := range []struct {
		what     string
		seconds  int     // that the crowd came before
		times    float64 // what it sends then, of what it sent
		answered bool
		want     bool
	}{
		{"a crowd", 5, 1, true, true},
		{"a crowd that grows", 5, 3, true, true},
		{"who came with the flood", 1, 1, true, false},
		{"bots that begin slowly", 5, 20, true, false},
		{"whom nobody answers", 5, 1, false, false},
	} {
		w := &Watcher{link: packet.Ethernet, regulars: newRegulars()}
		now := time.Unix(1e9, 0)
		for range c.seconds {
			now = now.Add(time.Second)
			for i := range byte(100) {
				w.regulars.pass(now, client(i), 50/c.times, true)
			}
			w.regulars.came(false)
			w.regulars.second(now, false)
		}
		var frames []frame
		for i := range 1000 {
			from := client(byte(i % 100))
			if i%5 > 0 {
				from = netip.AddrFrom4([4]byte{16, byte(i), byte(i >> 8), 1})
			}
			b := udpFrom(t, from.String())
			f := frame{length: len(b)}
			f.n = uint8(copy(f.head[:], b))
			frames = append(frames, f)
		}
		a := &detect.Alarm{All: 5000, Share: 0.8, Answered: c.answered}
		flood, crowd, _ := w.apart(frames, a, false)
		want := 0
		if c.want {
			want = 200
		}
		if len(crowd) != want || len(flood) != 1000-want {
			t.Errorf("%s: %d of the crowd and %d of the flood", c.what, len(crowd), len(flood))
		}
	}
}

// TestWhatIsLeftOfAFloodMayCostLess: of a tenth or more as much as of all of it.
func TestWhatIsLeftOfAFloodMayCostLess(t *testing.T) {
	good := signature.NewSample(packet.Ethernet, nil, 4000)
	for range 4000 {
		good.Add(udpFrom(t, "198.51.100.1"), 0)
	}
	for _, c := range []struct{ all, want float64 }{{1e6, 1e-3}, {2e5, 1e-3}, {1e4, 1e-4},
		{1e3, 1e-5}} {
		j := searching(detect.Alarm{All: c.all})
		j.good, j.Peak, j.Of.Collateral = good, 1e6, 1e-3
		if got := j.allowance(); got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("of %v packets a second %v of the good ones, want %v", c.all, got, c.want)
		}
	}
}

// TestWhereNobodyHearsACookieDropsStay: and a limit takes what they leave.
func TestWhereNobodyHearsACookieDropsStay(t *testing.T) {
	j := &job{Search: searching(detect.Alarm{Kind: kind.SYN}).Search, ports: []uint16{80},
		beyond: 1,
		base:   parsed(t, "default pass\n"), good: signature.NewSample(packet.Ethernet, nil, 10),
		flood: signature.NewSample(packet.Ethernet, nil, 10), kinds: 1,
		unheard: errors.New("a veth device")}
	tcp(t, j.flood, "198.51.100.1", packet.SYN, 1)
	drops := []incident.Rule{{Rule: "drop tcp syn", Action: "drop"}}
	if got, _ := j.complete(drops, 0.6, false); len(got) != 1 || got[0].Rule != drops[0].Rule {
		t.Errorf("%+v", got)
	}
	if got, _ := j.complete(nil, 0, false); len(got) != 1 || got[0].Action != "limit" {
		t.Errorf("%+v", got)
	}
}

// TestFewPacketsShowNoCollateral: one ping in 1,600 good packets looked like the flood, and of a
// sample of 5,200 six were more than a limit of 1/1000 allows, so nothing was done.
func TestFewPacketsShowNoCollateral(t *testing.T) {
	ping := func(from string, data int) []byte {
		b, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
			To: netip.MustParseAddr("192.0.2.1"), Proto: new(uint8(packet.ProtoICMP)),
			Type: new(uint8(8)), Payload: make([]byte, data)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for alike, want := range map[int]bool{3: true, 6: true, 9: true, 30: false} {
		j := &job{Search: searching(detect.Alarm{Kind: kind.ICMP, All: 1e6}).Search,
			beyond: 1, kinds: 2000, base: parsed(t, "default pass\n"),
			good:  signature.NewSample(packet.Ethernet, nil, 6000),
			flood: signature.NewSample(packet.Ethernet, nil, 3000)}
		for i := range 5200 {
			switch from := fmt.Sprintf("198.51.100.%d", i%16); {
			case i < alike:
				j.good.Add(ping(from, 0), 0)
			case i%80 == 0:
				j.good.Add(ping(from, 56), 0)
			default:
				j.good.Add(udpFrom(t, from), 0)
			}
		}
		for i := range 2000 {
			from := netip.AddrFrom4([4]byte{byte(1 + i%200), byte(i * 7), byte(i * 131), byte(i)})
			j.flood.Add(ping(from.String(), 0), 0)
		}
		j.Of.Collateral = 1e-3
		r, err := j.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rules) > 0 != want {
			t.Errorf("%d alike: %d rules, %q", alike, len(r.Rules), r.Notes)
		}
		said := strings.Contains(strings.Join(r.Notes, " "), "by chance")
		if said != (want && alike > 5) {
			t.Errorf("%d alike: %q", alike, r.Notes)
		}
	}
}

// TestAnAnswerThatDoesNotHelpIsFollowedByTheNext: a cookie, whose senders were known, was put into
// force again and again. Each is given once, and the incident says which failed.
func TestAnAnswerThatDoesNotHelpIsFollowedByTheNext(t *testing.T) {
	j := &job{Search: searching(detect.Alarm{Kind: kind.SYN, All: 20_000, Threshold: 5000}).Search,
		ports: []uint16{80}, beyond: 1, base: parsed(t, "default pass\n"), kinds: 800,
		good:  signature.NewSample(packet.Ethernet, nil, 10_000),
		flood: signature.NewSample(packet.Ethernet, nil, 1000),
		known: map[netip.Addr]known.Client{netip.MustParseAddr("198.51.100.1"): {Packets: 40}}}
	j.Of.Collateral = 1e-3
	for i := range 4000 {
		j.good.Add(udpFrom(t, fmt.Sprintf("198.51.100.%d", i%100)), 0)
	}
	for i := range 16 { // hosts that are strangers
		tcp(t, j.flood, fmt.Sprintf("203.0.113.%d", i), packet.SYN, 50)
	}
	for _, c := range []struct{ tried, want string }{
		{"", `cookie tcp port { 80 } as "flood-7-1"`},
		{episode.Cookie, `limit tcp syn rate 20/s by source as "flood-7-1"`},
		{episode.LimitBySource,
			`limit tcp syn not from { 198.51.100.1 } rate 100/s as "flood-7-1"`},
		{episode.LimitStrangers, `limit tcp syn rate 500/s by destination as "flood-7-1"`},
		{episode.LimitByDestination, `limit tcp syn rate 500/s as "flood-7-1"`},
		{episode.Limit, ""},
	} {
		if c.tried != "" {
			j.Tried = append(j.Tried, c.tried)
		}
		rules, why := j.complete(nil, 0, false)
		got := ""
		if len(rules) == 1 {
			got = rules[0].Rule
		}
		if got != c.want || len(why) != len(j.Tried) {
			t.Errorf("with %q: %q, want %q; %q", j.Tried, got, c.want, why)
		}
	}
	j.Tried = []string{episode.Cookie}
	for i := range 16 { // clients, in whose names the SYNs come
		tcp(t, j.good, fmt.Sprintf("203.0.113.%d", i), packet.SYN, 50)
		j.known[netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", i))] = known.Client{Packets: 1}
	}
	if rules, why := j.complete(nil, 0, false); len(rules) > 0 || len(why) != 5 {
		t.Errorf("clients are cut: %+v, %q", rules, why)
	}
}

// TestAMimicOfClientsHasAReasonForEachAnswer: of UDP that nothing but its source tells from
// clients' the incident did not say that nobody can be asked for a proof, nor of a limit by
// destination. Where it goes to hosts without clients, that is the answer.
func TestAMimicOfClientsHasAReasonForEachAnswer(t *testing.T) {
	mimic := func(clients bool) ([]incident.Rule, []string) {
		j := &job{Search: searching(detect.Alarm{Kind: kind.UDP, All: 60_000, Threshold: 10_000,
			UsualAll: 50}).Search, beyond: 1, base: parsed(t, "default pass\n"), kinds: 1000,
			good:  signature.NewSample(packet.Ethernet, nil, 10_000),
			flood: signature.NewSample(packet.Ethernet, nil, 1000)}
		j.Of.Collateral = 1e-3
		for i := range 4000 {
			if clients {
				j.good.Add(udpFrom(t, fmt.Sprintf("198.51.100.%d", i%100)), 0)
			} else {
				tcp(t, j.good, fmt.Sprintf("198.51.100.%d", i%100), packet.ACK, 1)
			}
		}
		for i := range 1000 {
			j.flood.Add(udpFrom(t, fmt.Sprintf("203.0.%d.%d", i/250, i%250)), 0)
		}
		return j.complete(nil, 0, false)
	}
	rules, why := mimic(true)
	all := strings.Join(why, "; ")
	for _, s := range []string{"no proof: ", "no limit by source: ", "no limit by destination: ",
		"no limit: "} {
		if !strings.Contains(all, s) {
			t.Errorf("%q does not say %q", all, s)
		}
	}
	if len(rules) > 0 {
		t.Errorf("clients are cut: %+v", rules)
	}
	rules, _ = mimic(false)
	if len(rules) != 1 || !strings.Contains(rules[0].Rule, " by destination") {
		t.Errorf("%+v", rules)
	}
}

// TestALimitBySourceSparesInWhoseNamesAFloodComes: packets of known sources are no part of the
// sample of a flood. A limit by source was measured on that alone, and clients in whose names more
// came than it lets through were cut.
func TestALimitBySourceSparesInWhoseNamesAFloodComes(t *testing.T) {
	for _, named := range []int{0, 50} { // packets in the name of each client
		j := &job{Search: searching(detect.Alarm{Kind: kind.UDP, All: 3000, Threshold: 2500,
			UsualAll: 100}).Search, beyond: 1, base: parsed(t, "default pass\n"), kinds: 800,
			good:   signature.NewSample(packet.Ethernet, nil, 10_000),
			flood:  signature.NewSample(packet.Ethernet, nil, 1000),
			passes: signature.NewSample(packet.Ethernet, nil, 2000)}
		j.Of.Collateral = 1e-3
		for i := range 4000 {
			j.good.Add(udpFrom(t, fmt.Sprintf("198.51.100.%d", i%16)), 0)
		}
		for i := range 800 {
			b := udpFrom(t, fmt.Sprintf("203.0.113.%d", i%16))
			j.flood.Add(b, 0)
			j.passes.Add(b, 0)
		}
		for i := range 16 * named {
			j.passes.Add(udpFrom(t, fmt.Sprintf("198.51.100.%d", i%16)), 0)
		}
		_, fault := j.limit(episode.LimitBySource)
		if (fault != "") != (named > 0) {
			t.Errorf("with %d in each client's name: %q", named, fault)
		}
	}
}
