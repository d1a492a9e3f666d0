package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gaissmai/bart"

	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// decider returns the deciding rule of a frame, in the words of a test.
func decider(t testing.TB, text string, frame []byte) string {
	t.Helper()
	e := New(parse(t, text))
	r := e.Eval(frame)
	s := e.p.Slots()[r.Slot]
	if s.Rule != nil && s.Rule.Label != "" {
		return r.Action.String() + " " + s.Rule.Label
	}
	if s.Name != "" {
		return r.Action.String() + " " + s.Name
	}
	return r.Action.String() + " " + s.Reason.String()
}

func TestOrderOfJudging(t *testing.T) {
	all := packets(t)
	broken := all["tcp4"][:35]
	tests := []struct {
		name, policy string
		frame        []byte
		want         string
	}{
		{"the first match decides", "drop tcp as \"a\"\npass tcp as \"b\"\ndefault pass",
			all["tcp4"], "drop a"},
		{"no match is the default", "drop udp as \"a\"\ndefault pass", all["tcp4"], "pass default"},
		{"protect comes before rules that stand above it",
			"drop as \"a\"\nprotect tcp as \"p\"\ndefault drop", all["tcp4"], "pass p"},
		{"the first protect rule decides",
			"protect tcp port 80 as \"p\"\nprotect tcp as \"q\"\ndefault drop", all["tcp4"],
			"pass p"},
		{"a rule with no terms matches what is well-formed", "drop as \"a\"\ndefault pass",
			all["lldp"], "drop a"},
		{"essential comes after the rules", "drop arp as \"a\"\ndefault drop", all["arp"],
			"drop a"},
		{"essential comes before the default", "drop tcp as \"a\"\ndefault drop", all["arp"],
			"pass arp"},
		{"essential off", "essential off\ndefault drop", all["arp"], "drop default"},
		{"malformed is dropped", "pass as \"a\"\nprotect ipv4 as \"p\"\ndefault pass", broken,
			"drop ip-length"},
		{"unless a rule says otherwise", "drop as \"a\"\npass malformed as \"m\"\ndefault drop",
			broken, "pass m"},
		{"the first malformed rule decides",
			"count malformed\ndrop malformed as \"m\"\npass malformed as \"n\"\ndefault pass",
			broken, "drop m"},
		{"malformed rules see nothing else", "drop malformed as \"m\"\ndefault pass", all["tcp4"],
			"pass default"},
		{"no bytes", "pass as \"a\"\ndefault pass", nil, "drop truncated-ethernet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decider(t, tt.policy+"\n", tt.frame); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEveryMalformedReasonHasItsSlot(t *testing.T) {
	names := map[packet.Malformed]string{
		packet.TruncatedEthernet: "truncated-ethernet", packet.VLANDepth: "vlan-depth",
		packet.TruncatedIP: "truncated-ip", packet.IPVersion: "ip-version",
		packet.IPHeaderLength: "ip-header-length",
		packet.IPLength:       "ip-length", packet.ExtHeaders: "ext-headers",
		packet.TruncatedExt: "truncated-ext",
		packet.TruncatedL4:  "truncated-l4", packet.L4Length: "l4-length",
		packet.FragmentOverlap: "fragment-overlap", packet.FragmentTiny: "fragment-tiny",
		packet.FragmentOrphan: "fragment-orphan",
	}
	if len(names) != len(policy.Malformed) {
		t.Fatalf("%d reasons in package packet, %d in package policy", len(names),
			len(policy.Malformed))
	}
	for m, name := range names {
		if policy.Malformed[m-1] != name {
			t.Errorf("reason %d is %q in package policy, want %q", m, policy.Malformed[m-1], name)
		}
	}
}

func TestCountRulesBeforeTheDecisionCount(t *testing.T) {
	e := New(parse(t,
		"count malformed as \"m\"\ncount tcp as \"a\"\ncount udp as \"b\"\ncount as \"c\"\ndrop "+
			"tcp as \"d\"\ncount as \"e\"\ndefault pass\n"))
	all := packets(t)
	want := []int{e.p.RuleSlot(1), e.p.RuleSlot(3)}
	if r := e.Eval(all["tcp4"]); !slices.Equal(r.Counted, want) {
		t.Errorf("counted %v, want %v", r.Counted, want)
	}
	if r := e.Eval(all["tcp4"][:20]); !slices.Equal(r.Counted, []int{e.p.RuleSlot(0)}) ||
		r.Malformed != packet.TruncatedIP {
		t.Errorf("malformed: %+v", r)
	}
}

func TestEssentialRules(t *testing.T) {
	six := packet.IPv6
	icmp6 := func(typ, code, ttl uint8) packet.Spec {
		return packet.Spec{Family: six, Type: &typ, Code: code, TTL: &ttl}
	}
	udp := func(f packet.Family, from, to uint16) packet.Spec {
		return packet.Spec{Family: f, FromPort: &from, ToPort: &to}
	}
	query := func(from string, code, ttl uint8) packet.Spec {
		s := icmp6(130, code, ttl)
		s.From = netip.MustParseAddr(from)
		return s
	}
	link := func(ether uint16) packet.Spec {
		return packet.Spec{Family: packet.OtherFamily, EtherType: ether, Len: new(46)}
	}
	frag := icmp6(135, 0, 255)
	frag.Frag = new(uint16(0))
	first := udp(packet.IPv4, 67, 68)
	first.Frag = new(uint16(0))
	later := udp(packet.IPv4, 67, 68)
	later.Frag = new(uint16(2))
	lite := udp(packet.IPv4, 67, 68)
	lite.Proto = new(uint8(packet.ProtoUDPLite))
	tests := []struct {
		name string
		s    packet.Spec
		want string
	}{
		{"arp", packet.Spec{Family: packet.ARP}, "pass arp"},
		{"router solicitation", icmp6(133, 0, 255), "pass nd"},
		{"redirect", icmp6(137, 0, 255), "pass nd"},
		{"type below", icmp6(132, 0, 255), "drop default"},
		{"type above", icmp6(138, 0, 255), "drop default"},
		{"code 1", icmp6(135, 1, 255), "drop default"},
		{"hop limit 254", icmp6(135, 0, 254), "drop default"},
		{"nd as a fragment", frag, "drop default"},
		{"too big", icmp6(2, 0, 3), "pass pmtu"},
		{"unreachable in IPv6", icmp6(1, 4, 3), "drop default"},
		{"fragmentation needed", packet.Spec{Type: new(uint8(3)), Code: 4}, "pass pmtu"},
		{"port unreachable", packet.Spec{Type: new(uint8(3)), Code: 3}, "drop default"},
		{"type 2 in IPv4", packet.Spec{Type: new(uint8(2))}, "drop default"},
		{"dhcp reply", udp(packet.IPv4, 67, 68), "pass dhcp"},
		{"dhcp request", udp(packet.IPv4, 68, 67), "drop default"},
		{"dhcp ports in IPv6", udp(six, 67, 68), "drop default"},
		{"dhcpv6 reply", udp(six, 547, 546), "pass dhcp"},
		{"dhcpv6 ports in IPv4", udp(packet.IPv4, 547, 546), "drop default"},
		{"dhcp in a first fragment", first, "pass dhcp"},
		{"dhcp in a later fragment", later, "drop default"},
		{"dhcp ports of UDP-Lite", lite, "drop default"},
		{"query of listeners", query("fe80::1", 0, 1), "pass mld"},
		{"query of listeners with a code", query("febf::1", 9, 1), "pass mld"},
		{"query of listeners over a router", query("fe80::1", 0, 2), "drop default"},
		{"query of listeners from elsewhere", query("fec0::1", 0, 1), "drop default"},
		{"LACP", link(0x8809), "pass link"},
		{"EAPOL", link(0x888e), "pass link"},
		{"flow control", link(0x8808), "drop default"},
		{"LLDP", link(0x88cc), "drop default"},
	}
	for _, tt := range tests {
		if got := decider(t, "default drop\n", build(t, tt.s)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestLeasesEndByTheClock(t *testing.T) {
	e := New(parse(t,
		"set bad = dynamic(max 2, lease 10m)\ndrop from bad as \"bad\"\ndefault pass\n"))
	now := time.Unix(1000, 0)
	e.SetClock(func() time.Time { return now })
	frame := packets(t)["tcp4"]
	dropped := func() bool { return e.Eval(frame).Action == action.Drop }
	host, network := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.0/24")
	steps := []struct {
		name string
		do   func() error
		want bool
	}{
		{"nothing yet", func() error { return nil }, false},
		{"an entry",
			func() error {
				return e.AddEntry("bad", policy.Element{Prefix: host}, now.Add(time.Second))
			}, true},
		{"a nanosecond before its end", func() error { now = now.Add(time.Second - 1); return nil },
			true},
		{"its end", func() error { now = now.Add(1); return nil }, false},
		{"added again, for good",
			func() error { return e.AddEntry("bad", policy.Element{Prefix: host}, time.Time{}) },
			true},
		{"with a shorter lease, that has ended",
			func() error { return e.AddEntry("bad", policy.Element{Prefix: host}, now) }, false},
		{"a wider prefix around one that has ended",
			func() error { return e.AddEntry("bad", policy.Element{Prefix: network}, time.Time{}) },
			true},
		{"deleted", func() error { return e.DelEntry("bad", policy.Element{Prefix: network}) },
			false},
		{"deleted twice",
			func() error { return e.DelEntry("bad", policy.Element{Prefix: network}) }, false},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if dropped() != s.want {
			t.Errorf("%s: dropped %t", s.name, !s.want)
		}
	}
}

func TestAddEntryRefuses(t *testing.T) {
	e := New(parse(t,
		"set bad = dynamic(max 1)\nset nets = { 10.0.0.0/8 }\ndrop from bad\ndrop from "+
			"nets\ndefault pass\n"))
	if err := e.AddEntry("bad", policy.Element{Prefix: netip.MustParsePrefix("10.0.0.1/32")},
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	for set, prefix := range map[string]string{"bad": "10.0.0.2/32", "nets": "10.0.0.1/32",
		"none": "10.0.0.1/32"} {
		if err := e.AddEntry(set, policy.Element{Prefix: netip.MustParsePrefix(prefix)},
			time.Time{}); err == nil || !strings.Contains(err.Error(), set) {
			t.Errorf("%s: %v", set, err)
		}
	}
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.1/8"),
		netip.MustParsePrefix("::ffff:10.0.0.0/128")} {
		if err := e.AddEntry("bad", policy.Element{Prefix: p}, time.Time{}); err == nil {
			t.Errorf("%s was taken", p)
		}
	}
	if err := e.AddEntry("bad", policy.Element{Prefix: netip.MustParsePrefix("10.0.0.1/32")},
		time.Now()); err != nil {
		t.Errorf("an entry that is there, in a full set: %v", err)
	}
	if err := e.AddEntry("bad", policy.Element{Prefix: netip.MustParsePrefix("10.0.0.2/32")},
		time.Time{}); err != nil {
		t.Errorf("a set that is full of entries whose lease has ended: %v", err)
	}
	if e.DelEntry("nets", policy.Element{Prefix: netip.MustParsePrefix("10.0.0.0/8")}) == nil {
		t.Error("an entry of a static set was deleted")
	}
}

// Whoever asks about the policy in force adds all that its sets hold. Each entry used to look at
// all those before it: of 300,000 that took hours.
func TestEntriesAreAddedWithoutLookingAtAll(t *testing.T) {
	const n = 300_000
	e := New(parse(t, fmt.Sprintf("set bad = dynamic(max %d)\n"+
		"set ends = dynamic(of endpoints, max %[1]d)\n"+
		"drop from bad\ndrop to ends\ndefault pass\n", n)))
	http := policy.Service{Proto: packet.ProtoTCP, Lo: 80, Hi: 80}
	for i := range uint32(n) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24+i)
		host := policy.Element{Prefix: netip.PrefixFrom(netip.AddrFrom4(b), 32)}
		end := policy.Element{Prefix: host.Prefix, Service: http}
		if err := errors.Join(e.AddEntry("bad", host, time.Time{}),
			e.AddEntry("ends", end, time.Time{})); err != nil {
			t.Fatal(err)
		}
	}
	if e.AddEntry("bad", policy.Element{Prefix: netip.MustParsePrefix("192.0.2.1/32")},
		time.Time{}) == nil {
		t.Error("a full set took another entry")
	}
}

// bart is another implementation of the same question.
func TestAddressSetAgreesWithBart(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var lite bart.Lite
	var prefixes []netip.Prefix
	random := func() netip.Addr {
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.Uint32()), byte(r.Uint32())})
		}
		b := [16]byte{0x20, 1, 0x0d, 0xb8, 0, byte(r.IntN(4)), 14: byte(r.Uint32()),
			15: byte(r.Uint32())}
		return netip.AddrFrom16(b)
	}
	for range 5000 {
		a := random()
		p := netip.PrefixFrom(a, 12+r.IntN(a.BitLen()-11)).Masked()
		prefixes = append(prefixes, p)
		lite.Insert(p)
	}
	set := newAddressSet(prefixes[:4000])
	for _, p := range prefixes[4000:] {
		set.add(p, time.Time{})
	}
	for _, p := range prefixes[:500] {
		set.del(p)
		lite.Delete(p)
	}
	for range 20000 {
		a := random()
		if got, want := set.contains(a, time.Now()), lite.Contains(a); got != want {
			t.Fatalf("%s: %t, bart says %t", a, got, want)
		}
	}
}
