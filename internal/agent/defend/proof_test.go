package defend

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"levee/internal/agent/detect"
	"levee/internal/agent/episode"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/agent/signature"
	"levee/internal/lang/dnsname"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// datagramTo is a UDP packet with a payload to a port.
func datagramTo(t *testing.T, from string, fromPort, port uint16, payload []byte) []byte {
	t.Helper()
	b, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
		From: netip.MustParseAddr(from), To: netip.MustParseAddr("10.0.0.1"),
		FromPort: &fromPort, ToPort: &port, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// askedFor is a query for a name.
func askedFor(t *testing.T, name string) []byte {
	t.Helper()
	p, bad := dnsname.Parse(name)
	if bad != nil {
		t.Fatal(bad)
	}
	return dns.Query(dns.Message{Question: true, Name: p.Name, Type: 1, EDNS: true, Size: 1232})
}

// againstUDP is a search against a flood of UDP to a port behind a policy, with good packets of 100
// clients over TCP.
func againstUDP(t *testing.T, policy string, port uint16) *job {
	t.Helper()
	j := &job{Search: episode.Search{ID: "7", Round: 1, Of: parsed(t, policy).Detects[0],
		Alarm: detect.Alarm{Kind: kind.UDP, All: 1_000_000, Threshold: 10_000, UsualAll: 50}},
		beyond: 1, base: parsed(t, policy), kinds: 1000, link: packet.Ethernet,
		ports: []uint16{port},
		good:  signature.NewSample(packet.Ethernet, nil, 10_000),
		flood: signature.NewSample(packet.Ethernet, nil, 1000)}
	j.Of.Collateral = 1e-3
	for i := range 4000 {
		tcp(t, j.good, fmt.Sprintf("198.51.100.%d", i%100), packet.ACK, 1)
	}
	return j
}

// TestForgedQueriesAreAnsweredByAskingForProof: where the policy says by what clients prove
// themselves, that comes before drops; each answer is given once, and stands in front of the rule
// that passes the flood.
func TestForgedQueriesAreAnsweredByAskingForProof(t *testing.T) {
	const a2s = "prove \"a\" udp port 27015 reply payload at 0 ffffffff41 echo 4 bytes at 5 " +
		"in request at 25\ncount udp proven flow\n"
	drops := []incident.Rule{{Rule: "drop udp port 27015 ttl 64", Coverage: 1}}
	for name, c := range map[string]struct {
		policy  string
		port    uint16
		tried   []string
		dropped float64
		forged  bool
		want    string
		before  string
		action  string
		why     string
	}{
		"echo": {a2s + "pass udp port 27015\ndefault drop\n", 27015, nil, 1, true,
			`limit udp port { 27015 } not proven flow rate 5000/s as "flood-7-1"`,
			"pass udp port 27015", "limit", ""},
		"echo, by the default": {a2s + "default pass\n", 27015, nil, 0, false,
			`limit udp port { 27015 } not proven flow rate 5000/s as "flood-7-1"`, "", "limit", ""},
		"a drop that is clean, of senders that are there": {a2s + "default pass\n", 27015, nil, 1,
			false, drops[0].Rule, "", "", ""},
		"echo, tried": {a2s + "default pass\n", 27015, []string{episode.LimitUnproven}, 1, true,
			drops[0].Rule, "", "", "have proven that they are there"},
		"nothing asks for echoes": {strings.Replace(a2s, "count udp proven flow\n", "", 1) +
			"default pass\n", 27015, nil, 1, true, drops[0].Rule, "", "", ""},
		"another port": {a2s + "default pass\n", 27016, nil, 1, true, drops[0].Rule, "", "", ""},
		"cookie": {"cookie dns udp port 53 above 50kpps\npass udp port 53\n" +
			"pass tcp port 53 established\npass tcp syn port 53\ndefault drop\n", 53, nil, 1, true,
			`cookie dns udp port { 53 } as "flood-7-1"`, "pass udp port 53", "cookie", ""},
		"cookie, tried": {"cookie dns udp port 53\npass tcp established\ndefault pass\n", 53,
			[]string{episode.Cookie}, 1, true, drops[0].Rule, "", "",
			"a cookie does not stop it"},
		"cookie of another port": {"cookie dns udp port 5353\ndefault pass\n", 53, nil, 1, true,
			drops[0].Rule, "", "", ""},
		"cookie for A2S": {"cookie a2s udp port 27015 above 20kpps\npass udp port 27015\n" +
			"default drop\n", 27015, nil, 1, true, `cookie a2s udp port { 27015 } as "flood-7-1"`,
			"pass udp port 27015", "cookie", ""},
		"cookie for A2S, tried": {a2s + "cookie a2s udp port 27015\ndefault pass\n", 27015,
			[]string{episode.Cookie}, 1, true, drops[0].Rule, "", "",
			"a cookie does not stop it"},
		"cookie for A2S, other packets": {a2s + "cookie a2s udp port 1-60000\ndefault pass\n",
			27016, nil, 1, true, drops[0].Rule, "", "", ""},
		"nothing": {"default pass\n", 27015, nil, 0, true,
			`limit udp rate 1000/s by destination as "flood-7-1"`, "", "limit",
			"no `prove`, `cookie dns` or `cookie a2s`"},
	} {
		t.Run(name, func(t *testing.T) {
			j := againstUDP(t, c.policy+"detect \"floods\" enforce\n", c.port)
			j.Tried = c.tried
			payload := []byte("\xff\xff\xff\xffTSource Engine Query\x00")
			if c.port == 27016 {
				payload = []byte("\xff\xff\xff\xffq0123456789")
			}
			if c.port == 53 {
				payload = askedFor(t, "www.example.com")
			}
			for i := range 1000 {
				from := fmt.Sprintf("203.%d.%d.7", i/250, i%250)
				j.flood.Add(datagramTo(t, from, 4000, c.port, payload), 0)
			}
			found := drops
			if c.dropped == 0 {
				found = nil
			}
			rules, why := j.complete(found, c.dropped, c.forged)
			j.inFront(rules)
			if len(rules) != 1 || rules[0].Rule != c.want || rules[0].Before != c.before ||
				rules[0].Action != c.action {
				t.Errorf("%+v; %q", rules, why)
			}
			if all := strings.Join(why, "; "); !strings.Contains(all, c.why) {
				t.Errorf("%q does not say %q", all, c.why)
			}
			if len(rules) == 1 && c.action != "" {
				with, err := compose(j.base, []episode.Live{{Rule: rules[0], Of: j.Of}})
				if err != nil || !fits(j.base, with) {
					t.Errorf("it does not fit: %v", err)
				}
			}
		})
	}
}

// TestALimitOnStrangersKeepsToCollateral: where good packets are those of flows that send one, as
// of clients that prove nothing, most of these would be dropped.
func TestALimitOnStrangersKeepsToCollateral(t *testing.T) {
	j := againstUDP(t, "prove \"a\" udp port 27015 reply echo 4 bytes at 5 in request at 25\n"+
		"count udp proven flow\ndefault pass\ndetect \"floods\" enforce\n", 27015)
	for i := range 1000 {
		j.good.Add(datagramTo(t, "198.51.100.7", uint16(10_000+i), 27015, []byte("hello")), 0)
		from := fmt.Sprintf("203.%d.%d.7", i/250, i%250)
		j.flood.Add(datagramTo(t, from, 4000, 27015, []byte("hello")), 0)
	}
	rules, why := j.complete(nil, 0, true)
	if all := strings.Join(why, "; "); !strings.Contains(all, "no limit on who is not proven: it "+
		"would drop 20 % of 5000 good packets") {
		t.Errorf("%+v; %q", rules, why)
	}
}

// TestAZoneUnderAttackIsLimitedAlone: random names below one zone, by senders who have proven
// themselves. Another zone goes on.
func TestAZoneUnderAttackIsLimitedAlone(t *testing.T) {
	j := againstUDP(t, "default pass\ndetect \"floods\" enforce\n", 53)
	for i := range 1000 {
		name := fmt.Sprintf("x%dx.attacked.example", i*7919)
		j.flood.Add(datagramTo(t, fmt.Sprintf("203.0.%d.%d", i/250, i%250), 4000, 53,
			askedFor(t, name)), 0)
	}
	for i := range 100 {
		j.good.Add(datagramTo(t, fmt.Sprintf("198.51.100.%d", i), 4000, 53,
			askedFor(t, "www.calm.example")), 0)
	}
	if !j.asksNames() {
		t.Fatal("queries are not told")
	}
	rules, why := j.complete(nil, 0, true)
	const want = `limit udp port { 53 } dns query rate 200/s by dns-name/2 as "flood-7-1"`
	if len(rules) != 1 || rules[0].Rule != want || rules[0].Predicted != 0 ||
		rules[0].Coverage < 0.99 {
		t.Errorf("%+v; %q", rules, why)
	}
	for i := range 100 { // clients of that very zone
		j.good.Add(datagramTo(t, fmt.Sprintf("198.51.100.%d", i), 4000, 53,
			askedFor(t, "www.attacked.example")), 0)
	}
	if _, why := j.complete(nil, 0, true); !strings.Contains(strings.Join(why, "; "),
		"no limit by dns-name/2: it would drop") {
		t.Errorf("%q", why)
	}
}

// TestNamesOfHostileQueries: bytes of no meaning, names that are cut, fragments.
func TestNamesOfHostileQueries(t *testing.T) {
	long := strings.Repeat("a234567890.", 5) + "zone.example"
	for name, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"a query":     {askedFor(t, "a.b.Zone.Example"), "zone.example"},
		"of one name": {askedFor(t, "example"), "example"},
		"too long":    {askedFor(t, long), ""},
		"no message":  {[]byte("hello"), ""},
		"a pointer":   {append(askedFor(t, "a.example")[:12], 0xc0, 12, 0, 1, 0, 1), ""},
		"nothing":     {nil, ""},
	} {
		frame := datagramTo(t, "203.0.113.1", 4000, 53, c.payload)
		var p packet.Packet
		packet.Decode(frame, &p)
		if got := zoneOf(&p, frame); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAFloodOfWhatIsEssentialIsLimited: forged path MTU messages, and UDP from port 67 to 68, pass
// as essential, and no rule was found against them.
func TestAFloodOfWhatIsEssentialIsLimited(t *testing.T) {
	for _, c := range []struct {
		kind kind.Kind
		want string
		make func(from netip.Addr, i int) packet.Spec
	}{
		{kind.ICMP, "rate 300/s", func(from netip.Addr, i int) packet.Spec {
			return packet.Spec{Proto: new(uint8(packet.ProtoICMP)), From: from,
				Type: new(uint8(3)), Code: 4, Payload: make([]byte, 28+i%8)}
		}},
		{kind.UDP, "rate 1000/s", func(from netip.Addr, i int) packet.Spec {
			return packet.Spec{Proto: new(uint8(packet.ProtoUDP)), From: from,
				FromPort: new(uint16(67)), ToPort: new(uint16(68)), Payload: make([]byte, i%400)}
		}},
	} {
		j := &job{Search: searching(detect.Alarm{Kind: c.kind, All: 50_000, Threshold: 3000,
			UsualAll: 10}).Search, beyond: 1, base: parsed(t, "default pass\n"), kinds: 1000,
			good:  signature.NewSample(packet.Ethernet, nil, 10_000),
			flood: signature.NewSample(packet.Ethernet, nil, 1000)}
		j.Of.Collateral = 1e-3
		for i := range 2000 {
			tcp(t, j.good, fmt.Sprintf("198.51.100.%d", i%100), packet.ACK, 1)
			s := c.make(netip.AddrFrom4([4]byte{byte(20 + i%150), byte(i), byte(i >> 3), 1}), i)
			s.To = netip.MustParseAddr("192.0.2.1")
			b, err := packet.Build(s)
			if err != nil {
				t.Fatal(err)
			}
			j.flood.Add(b, 0)
		}
		found, err := j.run(t.Context())
		if err != nil || len(found.Rules) == 0 || !strings.Contains(found.Rules[0].Rule, c.want) ||
			found.Rules[0].Action != episode.Limit {
			t.Fatalf("%s: %+v, %v", c.kind, found, err)
		}
		live := []episode.Live{{Rule: found.Rules[0], Of: j.Of}}
		if p, err := compose(j.base, live); err != nil || !fits(j.base, p) {
			t.Errorf("%s: %q does not fit: %v", c.kind, found.Rules[0].Rule, err)
		}
		// In the names of clients, of whom little is known, it may be theirs.
		theirs := *j
		theirs.named = true
		if found, err := theirs.run(t.Context()); err != nil || len(found.Rules) > 0 {
			t.Errorf("%s, in the names of clients: %+v, %v", c.kind, found, err)
		}
		// Beside another flood, of which drops take what is theirs first.
		k := *j
		k.flood, k.kinds = signature.NewSample(packet.Ethernet, nil, 2000), 2000
		for i := range 1000 {
			s := c.make(netip.AddrFrom4([4]byte{byte(20 + i%150), byte(i), byte(i >> 3), 1}), i)
			s.To = netip.MustParseAddr("192.0.2.1")
			b, err := packet.Build(s)
			if err != nil {
				t.Fatal(err)
			}
			k.flood.Add(b, 0)
			k.flood.Add(udpFrom(t, fmt.Sprintf("%d.%d.7.1", 20+i%150, i%200)), 0)
		}
		if found, err = k.run(t.Context()); err != nil || len(found.Rules) == 0 ||
			found.Rules[0].Action == episode.Limit {
			t.Errorf("%s, beside another flood: %+v, %v", c.kind, found, err)
		}
		j.Tried = []string{episode.Limit}
		if found, err = j.run(t.Context()); err != nil || len(found.Rules) > 0 &&
			found.Rules[0].Why != "" {
			t.Errorf("%s: it is limited again: %+v, %v", c.kind, found.Rules, err)
		}
	}
}
