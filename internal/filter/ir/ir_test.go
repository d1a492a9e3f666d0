package ir

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/field"
	"levee/internal/lang/field/fieldtest"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

func resolved(t *testing.T, text string) *policy.Policy {
	t.Helper()
	f, diags := syntax.Parse("test.levee", []byte(text))
	if diags.HasErrors() {
		t.Fatalf("%s\n%v", text, diags)
	}
	p, diags := resolve.Resolve(f, func(string) (io.ReadCloser, error) {
		return nil, fs.ErrNotExist
	})
	if diags.HasErrors() {
		t.Fatalf("%s\n%v", text, diags)
	}
	return p
}

func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		name, policy string
		want         []string // "line: part of the message", in order
	}{
		{"none", "drop from 10.0.0.0/8\npass tcp port 80\ndefault drop\n", nil},
		{"same rule twice", "drop ttl 1\ndrop ttl 1\ndefault pass\n",
			[]string{"2: line 1 matches the same packets"}},
		{"same, written otherwise", "drop tcp flags syn/fin,syn,rst,ack\npass syn\ndefault pass\n",
			[]string{"2: line 1 matches the same packets"}},
		{"narrower behind wider",
			"drop from 10.0.0.0/8\ndrop from 10.1.0.0/16 ttl 5\ndefault pass\n",
			[]string{"2: line 1 decides all its packets"}},
		{"several prefixes in one",
			"drop from 10.0.0.0/8\npass from { 10.1.0.0/16, 10.9.0.1 }\ndefault pass\n",
			[]string{"2: line 1 decides"}},
		{"host behind its network",
			"drop from 2001:db8::/32\npass from 2001:db8::1\ndefault pass\n",
			[]string{"2: line 1 decides"}},
		{"wider behind narrower", "drop from 10.1.0.0/16\ndrop from 10.0.0.0/8\ndefault pass\n",
			nil},
		{"behind a rule for all", "drop\npass ttl 5\ndefault pass\n",
			[]string{"2: line 1 decides every packet before it",
				"3: the default can never be reached: line 1 decides every packet before it " +
					"(drop)"}},
		{"a default behind rules for all", "count\npass ipv4\ndrop not ipv4\ndefault drop\n",
			[]string{"4: the default can never be reached: line 2 and line 3 decide every packet"}},
		{"a default behind a rule for all and one for some",
			"drop fragments\npass as \"rest\"\ndefault drop\n",
			[]string{"3: the default can never be reached: line 2 decides every packet " +
				"before it (pass as \"rest\")"}},
		{"a default behind a protect rule for all", "protect\ndefault drop\n",
			[]string{"2: the default can never be reached: line 1 decides every packet"}},
		{"a default for ARP alone", "pass ipv4\npass ipv6\ndefault drop\n", nil},
		{"a default behind a rule that counts", "count\ndefault drop\n", nil},
		{"two rules by family", "drop ipv4 ttl 5\ndrop ipv6 ttl 5\npass ttl 5\ndefault pass\n",
			[]string{"3: line 1 and line 2 decide"}},
		{"count covers nothing", "count ttl 5\npass ttl 5\ndefault drop\n", nil},
		{"negations",
			"drop not from 10.0.0.0/8\ndrop not from { 10.0.0.0/8, 11.0.0.0/8 }\npass from " +
				"192.0.2.1\ndefault pass\n",
			[]string{"2: line 1 decides", "3: line 1 decides"}},
		{"negations one after the other",
			"drop ipv4 not from 10.0.0.0/8 not from 11.0.0.0/8\npass ipv4 not from { 10.0.0.0/8, " +
				"11.0.0.0/8, 192.0.2.0/24 }\ndefault pass\n", []string{"2: line 1 decides"}},
		{"negations that leave nothing",
			"drop ipv4 not from 0.0.0.0/1 not from 128.0.0.0/1\ndefault pass\n",
			[]string{"1: no packet has all of this"}},
		{"protect covers a drop", "protect from 10.0.0.0/8\ndrop from 10.0.0.0/9\ndefault pass\n",
			[]string{"2: line 1 decides"}},
		{"malformed behind malformed", "drop malformed\npass malformed\ndefault pass\n",
			[]string{"2: line 1 decides every malformed"}},
		{"drops by port let fragments by", "drop udp port 53\ndefault pass\n",
			[]string{"1: fragments slip by"}},
		{"groups are forgotten", "pass to 239.1.2.3\ndefault drop\n",
			[]string{"1: a switch that snoops"}},
		{"groups and all the rest", "pass to { 239.1.2.3, 192.0.2.1 }\ndefault drop\n", nil},
		{"groups with IGMP", "pass to 239.1.2.3\npass igmp\ndefault drop\n", nil},
		{"groups that no switch forgets", "pass to 224.0.0.18\ndefault drop\n", nil},
		{"groups by default", "pass to 239.1.2.3 len 100\ndefault pass\n", nil},
		{"services break for large datagrams", "pass udp port 53\ndefault drop\n",
			[]string{"1: large datagrams break"}},
		{"large answers break", "pass established\ndefault drop\n",
			[]string{"1: large datagrams break: a non-first fragment belongs to no connection"}},
		{"large answers over IPv6 break", "pass ipv6 udp established\ndefault drop\n",
			[]string{"1: large datagrams break"}},
		{"connections of tcp are not fragmented", "pass tcp established\ndefault drop\n", nil},
		{"large answers, followed", "pass established\nfragments track\ndefault drop\n", nil},
		{"large answers, not wanted", "drop fragments\npass established\ndefault drop\n", nil},
		{"large answers, with all of udp", "pass established\npass udp\ndefault drop\n", nil},
		{"fragments of what is unknown pass", "drop not established\ndefault pass\n",
			[]string{"1: fragments slip by: a non-first fragment belongs to no connection"}},
		{"tcp is not fragmented", "pass tcp port 53\ndefault drop\n", nil},
		{"what asks is no answer", "pass\nout pass tcp syn established\nout pass icmp type 8 " +
			"established\nout pass icmp6 type { 128, 135 } established\nout default pass\n" +
			"default drop\n", []string{"6: the default", "2: this rule can never match: no packet",
			"3: this rule can never match: no packet", "4: this rule can never match: no packet"}},
		{"an answer is one", "pass\nout drop tcp flags rst/rst not established\nout drop icmp " +
			"type 0 not established\nout default pass\ndefault drop\n", []string{"5: the default",
			"2: this rule can never match: no packet", "3: this rule can never match: no packet"}},
		{"what may be either", "pass\nout pass tcp flags ack established\nout pass tcp flags " +
			"syn/syn established\nout pass icmp type { 0, 8 } established\nout pass icmp type " +
			"{ 0, 8 } not established\nout drop tcp syn not established\nout default pass\n" +
			"default drop\n", []string{"8: the default"}},
		{"an endpoint twice",
			"drop from 192.0.2.1 tcp/80\ndrop from 192.0.2.1 tcp/80 ttl 3\ndefault drop\n",
			[]string{"2: line 1 decides"}},
		{"endpoints within a prefix",
			"drop from 192.0.2.0/24\npass from { 192.0.2.1 tcp/80, 192.0.2.2 tcp/81 }\ndefault " +
				"drop\n", []string{"2: line 1 decides"}},
		{"endpoints within ports",
			"drop tcp port < 1024\npass to { 192.0.2.1 tcp/80, 192.0.2.2 tcp/81 }\ndefault drop\n",
			[]string{"2: line 1 decides"}},
		{"endpoints within endpoints",
			"drop to { 192.0.2.0/24 tcp/80-90, 192.0.3.0/24 tcp/7 }\npass to { 192.0.2.1 tcp/80, " +
				"192.0.2.2 tcp/81 }\ndefault drop\n", []string{"2: line 1 decides"}},
		{"address and port within endpoints",
			"drop to { 192.0.2.0/24 tcp/80-90, 192.0.3.0/24 tcp/7 }\npass to 192.0.2.7 tcp port " +
				"85\ndefault drop\n", []string{"2: line 1 decides"}},
		{"the other side's endpoints",
			"drop from { 192.0.2.0/24 tcp/80-90, 192.0.3.0/24 tcp/7 }\npass to { 192.0.2.0/24 " +
				"tcp/80-90, 192.0.3.0/24 tcp/7 }\ndefault drop\n", nil},
		{"endpoints beside endpoints",
			"drop to { 192.0.2.0/24 tcp/80-90, 192.0.3.0/24 tcp/7 }\npass to { 192.0.2.1 tcp/80, " +
				"192.0.2.2 tcp/91 }\ndefault drop\n", nil},
		{"no endpoint of a family",
			"drop ipv6 not to { 192.0.2.1 tcp/80, 192.0.2.2 udp/9 }\npass ipv6 tcp port " +
				"443\ndefault drop\n", []string{"2: line 1 decides"}},
		{"endpoints let fragments by",
			"drop from { 192.0.2.1 tcp/80, 192.0.2.2 udp/9 }\ndefault pass\n",
			[]string{"1: fragments slip by"}},
		{"endpoints break large datagrams",
			"pass to { 192.0.2.1 tcp/80, 192.0.2.2 udp/9 }\ndefault drop\n",
			[]string{"1: large datagrams break"}},
		{"endpoints without udp do not",
			"pass to { 192.0.2.1 tcp/80, 192.0.2.2 gre }\ndefault drop\n", nil},
		{"endpoints without ports do not",
			"drop from { 192.0.2.1 gre, 192.0.2.2 esp }\ndefault pass\n", nil},
		{"a protocol alone in braces asks for a port",
			"drop to { 192.0.2.1 udp, 192.0.2.2 gre }\npass to 192.0.2.0/24\ndefault drop\n",
			[]string{`1: "192.0.2.1 udp" asks for a port`}},
		{"a protocol alone that is warned of already",
			"drop to { 192.0.2.1 udp }\ndefault pass\n", []string{"1: fragments slip by"}},
		{"a protocol and an address as terms", "drop to 192.0.2.1 udp\ndefault drop\n", nil},
		{"a protocol without ports alone", "drop to { 192.0.2.1 gre }\ndefault drop\n", nil},
		{"a protocol alone where fragments are spoken of",
			"drop fragments\ndrop to { 192.0.2.1 udp }\npass to 192.0.2.0/24\ndefault drop\n", nil},
		{"fragments are spoken of", "drop fragments\npass udp port 53\ndefault drop\n", nil},
		{"a limit by port lets fragments by", "limit udp port 53 rate 9/s\ndefault pass\n",
			[]string{"1: fragments slip by: a non-first fragment has no ports, so this limit"}},
		{"a limit with a port as its key lets fragments by",
			"limit udp rate 9/s by source, port\ndefault pass\n", []string{"1: fragments slip by"}},
		{"a limit of flows lets fragments by", "limit udp rate 9/s by flow\ndefault pass\n",
			[]string{"1: fragments slip by"}},
		{"a limit by source does not", "limit udp rate 9/s by source\ndefault pass\n", nil},
		{"a limit by port where fragments are dropped",
			"limit tcp port 53 rate 9/s\npass tcp port 53\ndefault drop\n", nil},
		{"a limit behind a rule that decides",
			"pass tcp port 80\nlimit tcp port 80 rate 9/s\ndefault drop\n",
			[]string{"2: line 1 matches the same packets and decides first"}},
		{"a limit behind rules that decide a part each",
			"pass ipv4 tcp\npass ipv6 tcp\nlimit tcp port 80 rate 9/s\ndefault drop\n",
			[]string{"3: line 1 decides every packet before it"}},
		{"a limit that some packets reach",
			"pass tcp port 80\nlimit tcp port 80-81 rate 9/s\ndefault drop\n", nil},
		{"a cookie behind a rule that decides",
			"pass tcp port { 80, 443 }\ncookie tcp port 80\npass tcp\ndefault drop\n",
			[]string{"2: line 1 decides all its packets first"}},
		{"a cookie behind a rule that decides SYNs",
			"pass tcp syn port 80\ncookie tcp port 80\npass tcp\ndefault drop\n",
			[]string{"2: line 1 decides all its packets first"}},
		{"a cookie that SYNs reach",
			"pass tcp established\npass tcp flags rst port 80\ncookie tcp port 80\n" +
				"pass tcp syn port " +
				"80\ndefault drop\n", nil},
		{"a cookie that lets nobody connect",
			"pass tcp established\ncookie tcp port 80\ndefault drop\n",
			[]string{"2: no client can connect"}},
		{"a cookie behind which SYNs of others pass",
			"cookie tcp port 80\npass tcp syn port 443\npass tcp flags ack\npass udp\ndefault " +
				"drop\n",
			[]string{"1: no client can connect"}},
		{"a cookie of two services, one of which is reached",
			"cookie tcp port { 80, 443 }\npass tcp syn port 443\ndefault drop\n", nil},
		{"a cookie for queries that nobody can ask again",
			"pass established\ncookie dns udp port 53\npass udp\npass tcp syn port 80\n" +
				"default drop\n",
			[]string{"2: no client can ask again"}},
		{"a cookie for queries where nobody is proven",
			"cookie dns udp port 53\npass udp\npass tcp syn port 53\ndefault drop\n",
			[]string{"1: nobody is ever proven"}},
		{"a cookie for queries where nobody is proven, behind a rule that asks who is",
			"limit udp not proven rate 9/s\ncookie dns udp port 53\npass udp\n" +
				"pass tcp syn port 53\ndefault drop\n",
			[]string{"2: nobody is ever proven, and all use TCP"}},
		{"a cookie for queries",
			"pass tcp syn port 53\ncookie dns udp port 53\npass established\npass udp\n" +
				"default drop\n", nil},
		{"a cookie for queries behind a rule that decides",
			"pass fragments\npass udp port 53\ncookie dns udp port 53\npass established\n" +
				"pass tcp\ndefault drop\n",
			[]string{"3: line 2 decides all its packets first"}},
		{"a cookie for A2S whose proven queries nobody passes",
			"cookie a2s udp port 27015\npass udp port 27016\ndrop fragments\ndefault drop\n",
			[]string{"1: no query ever passes"}},
		{"a cookie for A2S in front of a rule that passes, or behind it",
			"pass udp proven flow\ncookie a2s udp port 27015\ncookie a2s udp port 27016\n" +
				"pass udp port 27016\ndrop fragments\ndefault drop\n", nil},
		{"a cookie for A2S behind a rule that decides",
			"pass udp port 27015\ncookie a2s udp port 27015\ndrop fragments\n" +
				"default drop\n",
			[]string{"2: line 1 decides all its packets first"}},
		{"who is proven, where nobody can be",
			"count udp port 9\nlimit udp not proven rate 9/s\ndefault pass\n",
			[]string{"2: nobody is ever proven"}},
		{"room for connections that are never known",
			"connections max 100000\npass tcp port 22\ndefault drop\n",
			[]string{"1: no connection is ever known"}},
		{"room for connections",
			"connections max 100000\npass tcp established\ndefault drop\n", nil},
		{"who is proven to a cookie", "cookie tcp port 80\npass tcp proven\ndefault drop\n", nil},
		{"who is proven by handshakes",
			"pass tcp established\npass udp proven\ndefault drop\n", nil},
		{"who is proven to a cookie of the agent",
			"detect \"floods\" enforce\npass udp proven\ndefault drop\n", nil},
		{"a trap behind a cookie", "cookie tcp port 22\ndivert tcp port 22\ndefault drop\n", nil},
		{"a diversion behind a rule that decides",
			"pass tcp port 22\ndivert tcp port 22\ndefault drop\n",
			[]string{"2: line 1 matches the same packets and decides first"}},
		{"fragments that are followed behind a rule that decides",
			"pass ipv4 fragments\nfragments track ipv4\ndefault drop\n",
			[]string{"2: line 1 decides every packet before it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// what is essential has tests of its own
			got := Build(resolved(t, tt.policy+"essential off\n")).Findings
			for i, f := range got {
				if i >= len(tt.want) {
					t.Fatalf("unexpected: line %d: %s", f.Pos.Line, f.Message)
				}
				line, part, _ := strings.Cut(tt.want[i], ": ")
				if string(rune('0'+f.Pos.Line)) != line || !strings.Contains(f.Message, part) {
					t.Errorf("got line %d: %s; want %s", f.Pos.Line, f.Message, tt.want[i])
				}
			}
			if len(got) < len(tt.want) {
				t.Errorf("missing: %s", tt.want[len(got)])
			}
		})
	}
}

func TestListsHoldOnlyWhatCanMatch(t *testing.T) {
	p := resolved(t,
		"essential off\npass tcp port 80\ndrop from 10.0.0.0/8\ndrop fragments\ndefault pass\n")
	prog := Build(p)
	for _, tt := range []struct {
		class Class
		rules int // with the default
	}{
		{Class{}, 1},
		{Class{IPv4, TCP, false}, 3},
		{Class{IPv4, UDP, false}, 2},
		{Class{IPv6, UDP, false}, 1},
		{Class{IPv4, Other, true}, 2},
		{Class{IPv6, TCP, true}, 2},
	} {
		if got := len(prog.Lists[tt.class.Index()]); got != tt.rules {
			t.Errorf("%v: %d rules, want %d", tt.class, got, tt.rules)
		}
	}
}

func TestClassIndexFollowsTheList(t *testing.T) {
	cs := Classes()
	if len(cs) != NumClasses {
		t.Fatalf("%d classes, want %d", len(cs), NumClasses)
	}
	for i, c := range cs {
		if c.Index() != i {
			t.Errorf("%v has index %d, stands at %d", c, c.Index(), i)
		}
	}
}

// Set operations on ranges against the same on a small array.
func TestRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	random := func() (rs []field.Range) {
		for v := uint64(rng.IntN(3)); v < 60; {
			hi := v + uint64(rng.IntN(6))
			rs = append(rs, field.Range{Lo: v, Hi: hi})
			v = hi + 2 + uint64(rng.IntN(5))
		}
		return rs
	}
	in := func(rs []field.Range, v uint64) bool {
		for _, r := range rs {
			if v >= r.Lo && v <= r.Hi {
				return true
			}
		}
		return false
	}
	for range 2000 {
		a, b := random(), random()
		both, less, inside := field.Intersect(a, b), field.Subtract(a, b), true
		for v := range uint64(80) {
			if in(both, v) != (in(a, v) && in(b, v)) || in(less, v) != (in(a, v) && !in(b, v)) {
				t.Fatalf("%v and %v at %d: both %v, less %v", a, b, v, both, less)
			}
			inside = inside && (!in(a, v) || in(b, v))
		}
		if within(a, b, new(int)) != inside {
			t.Fatalf("within(%v, %v) = %v", a, b, !inside)
		}
	}
}

// Only comparing all pairs could tell which of many rules without addresses cover others: 10,000
// took half a minute.
func TestManyStraightRulesAreLoweredInTime(t *testing.T) {
	var b strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&b, "drop ttl %d len %d\n", i%250, 50+i)
	}
	b.WriteString("drop ttl 3 len 53\ndefault pass\n")
	p := resolved(t, b.String())
	one, two := Build(p), Build(p)
	if !reflect.DeepEqual(one.Lists, two.Lists) {
		t.Error("the same policy was lowered to different rules")
	}
}

// What a match asks is worked out once for all classes in which that cannot differ: it must be what
// each class by itself asks.
func TestClassesThatDoNotDifferAskTheSame(t *testing.T) {
	written := `set hosts = { 10.0.0.0/8, 2001:db8::/32, 192.0.2.1 }
set services = { tcp/80, udp/53, sctp/9 }
set endpoints = { 192.0.2.1 tcp/80, 192.0.2.2 udp/53, 198.51.100.1 gre, 2001:db8::/48 icmp6 }
set dyn = dynamic(max 9)
set dynservices = dynamic(of services, max 9)
set dynendpoints = dynamic(of endpoints, max 9)
drop
drop ipv4
drop not ipv6
drop ether 0x88cc
drop vlan 5 inner-vlan 6
drop untagged
drop ether from 02:00:00:00:00:01 not ether to 02:00:00:00:00:02
drop from hosts not to hosts
drop from dyn
drop not to dynservices
drop from dynendpoints
drop to services
drop not from services
drop to endpoints
drop not from endpoints fragments
drop port 80
drop not from port 80-90 len > 100
drop proto { tcp, 47, 255 }
drop not proto udp
drop tcp port 80 not fragments
drop icmp type 8
drop icmp6 type 128 ttl 255
drop flags syn/syn,ack
drop not flags syn
drop fragments
drop not fragments ttl 3 dscp 5
drop udp from port 53 len > 468 fragments
default pass
`
	text := fieldtest.Sets
	for _, s := range fieldtest.Samples() {
		if s.Field == field.None {
			continue
		}
		if text += s.Side() + "drop " + s.Text + "\n"; !strings.HasSuffix(s.Text, " any") {
			text += s.Side() + "drop not " + s.Text + "\n"
		}
	}
	for _, text := range []string{written, text + "default pass\n"} {
		p := resolved(t, text)
		rules := p.Rules
		if out := p.Leaving(); out != nil {
			rules = slices.Concat(rules, out.Rules)
		}
		for _, r := range rules {
			all := newAcross(r.Match, newWork(p))
			for _, c := range Classes() {
				got := all.in(c)
				want, possible := newAcross(r.Match, newWork(p)).specialise(c)
				if got.possible != possible || possible &&
					!reflect.DeepEqual(unnumbered(got.conds), unnumbered(want)) {
					t.Errorf("%s, in %v: %v %v, by itself %v %v", r.Text, c, got.possible,
						got.conds, possible, want)
				}
			}
		}
	}
}

// unnumbered gives conditions without the numbers of their lists.
func unnumbered(conds []Cond) []Cond {
	var out []Cond
	for _, q := range conds {
		q.List = 0
		out = append(out, q)
	}
	return out
}

// A list has one number wherever it is asked for, and no other list has it: what is made of lists
// is found by it.
func TestListsAreTheSameWhereTheirNumbersAre(t *testing.T) {
	p := resolved(t, `set ends = { 192.0.2.0/26 tcp/80, 192.0.2.0/24 udp/53, 198.51.100.1 tcp/80, 2001:db8::1 tcp/80 }
set nets = { 192.0.2.0/24, 198.51.100.0/24, 2001:db8::/32, 2001:db8:8000::/33, 10.0.0.0/9 }
drop from nets not to nets ttl 3
drop udp to { 192.0.2.0/24, 2001:db8::/32 } not from 10.0.0.0/9 not from 10.128.0.0/9
drop not from ends to ends
pass to { 192.0.2.0/26 tcp/80, 192.0.2.0/26 udp/53, 198.51.100.0/24 tcp/80, 198.51.100.0/24 udp/53 } dscp 3
pass from nets
default drop
`)
	type list struct {
		prefixes []netip.Prefix
		pairs    []Pair
	}
	known := map[ListID]list{}
	for class, rules := range Build(p).Lists {
		for _, r := range rules {
			for _, q := range r.Conds {
				has := list{q.Prefixes, q.Pairs}
				if (q.List != 0) != (len(q.Prefixes)+len(q.Pairs) > 0) {
					t.Errorf("class %d, slot %d: list %d has %d elements", class, r.Slot, q.List,
						len(q.Prefixes)+len(q.Pairs))
				}
				if before, ok := known[q.List]; ok && !reflect.DeepEqual(before, has) {
					t.Errorf("class %d, slot %d: list %d is %v, was %v", class, r.Slot, q.List, has,
						before)
				}
				known[q.List] = has
			}
		}
	}
	if len(known) < 9 {
		t.Errorf("only %d lists", len(known))
	}
}

// Telling why rules can never match took minutes for some thousand behind one that decides
// everything.
func TestManyRulesBehindOneForAllAreToldInTime(t *testing.T) {
	var b strings.Builder
	for i := range 20000 {
		if i == 10000 {
			b.WriteString("pass\n")
		}
		fmt.Fprintf(&b, "drop tcp port %d len > %d\n", 1+i, 100+i%7)
	}
	b.WriteString("default pass\n")
	dead := 0
	for _, f := range Build(resolved(t, b.String())).Findings {
		if strings.Contains(f.Message,
			"this rule can never match: line 10001 decides every packet before it") {
			dead++
		}
	}
	if dead != 10000 {
		t.Errorf("%d rules were found dead, want 10000", dead)
	}
}

// Looking for covered rules among sets that differ in one element took minutes: each pair is as
// long as the sets.
func TestSetsThatAreNearlyTheSameAreLoweredInTime(t *testing.T) {
	var b strings.Builder
	b.WriteString("set common = { 10.0.0.0/25")
	for i := range 1000 {
		fmt.Fprintf(&b, ", 10.%d.%d.0/25", 1+i/256, i%256)
	}
	b.WriteString(" }\n")
	for i := range 3000 {
		fmt.Fprintf(&b, "set s%d = { common, 11.0.%d.%d }\ndrop from s%[1]d\n", i, i>>8, i&255)
	}
	b.WriteString("drop from s0 ttl 3\ndefault pass\n")
	Build(resolved(t, b.String()))
}

// TestFindingsNameRulesOfProfiles: all rules of a profile stand where it is used, so a rule was
// behind "line 2 and line 2", and which one of the profile never matches was not said.
func TestFindingsNameRulesOfProfiles(t *testing.T) {
	p, ds := resolve.Parse("test.levee", []byte("pass established\nuse dns-recursive\n"+
		"pass tcp from { 10.1.0.0/16, 3fff::/20 } port 53\ndrop fragments\ndefault drop\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	var got []string
	for _, f := range Build(p).Findings {
		got = append(got, fmt.Sprintf("%d: %s; %s", f.Pos.Line, f.Message, f.Hint))
	}
	never := func(rule string) string {
		return fmt.Sprintf("2: its rule %q can never match: line 1 decides all its packets first "+
			"(pass established); move it up, unless that is meant", rule)
	}
	want := []string{never("dns-recursive/answered"), never("dns-recursive/answered over TCP"),
		`3: this rule can never match: line 2 ("dns-recursive/query over TCP") and line 2 ` +
			`("dns-recursive/not a client, over TCP") decide all its packets first; move it up, ` +
			"or remove it"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
