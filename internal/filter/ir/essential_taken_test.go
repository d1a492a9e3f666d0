package ir

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// withFiles resolves a policy whose set files all hold the private networks.
func withFiles(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, diags := resolve.Parse("test.levee", []byte(text), func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("10.0.0.0/8\n172.16.0.0/12\n192.168.0.0/16\n")), nil
	})
	if diags.HasErrors() {
		t.Fatalf("%s\n%v", text, diags)
	}
	return p
}

const takes = "this rule drops what essential rules would let through: "

// lost lists what rules take, as "line: essential rules".
func lost(p *policy.Policy) (out []string) {
	sources := regexp.MustCompile(`( from [^;(]*)? \([^)]*\)`)
	for _, f := range Build(p).Findings {
		if what, ok := strings.CutPrefix(f.Message, takes); ok {
			out = append(out, fmt.Sprintf("%d: %s", f.Pos.Line, sources.ReplaceAllString(what, "")))
		}
	}
	return out
}

func TestRulesThatTakeWhatIsEssential(t *testing.T) {
	const web = "pass tcp port 443\ndefault drop\n"
	for _, tt := range []struct {
		name, policy string
		want         []string
	}{
		{"nothing", web, nil},
		{"ARP by its neighbour's words", "drop not ipv4\n" + web, []string{"1: arp; link"}},
		{"all frames to everybody", "drop ether to ff:ff:ff:ff:ff:ff\n" + web,
			[]string{"1: arp; dhcp"}},
		{"all frames to others than this machine", "drop not ether to 02:00:00:00:00:09\n" + web,
			[]string{"1: arp; nd; dhcp; mld; link"}},
		{"short frames", "drop len < 60\n" + web, []string{"1: arp; nd; pmtu; link"}},
		{"ICMP", "drop icmp\n" + web, []string{"1: pmtu"}},
		{"ICMPv6", "drop icmp6\n" + web, []string{"1: nd; pmtu; mld"}},
		{"all ICMP but echoes",
			"pass icmp type echo-request\npass icmp6 type echo-request\ndrop icmp\ndrop " +
				"icmp6\n" + web, []string{"3: pmtu", "4: nd; pmtu; mld"}},
		{"type 3 whole", "drop icmp type 3\n" + web, []string{"1: pmtu"}},
		{"multicast", "drop to ff00::/8\n" + web, []string{"1: nd; mld"}},
		{"broadcast", "drop to 255.255.255.255\n" + web, []string{"1: dhcp"}},
		{"link-local addresses", "drop from fe80::/10\n" + web, []string{"1: nd; pmtu; dhcp; mld"}},
		{"UDP", "drop udp\n" + web, []string{"1: dhcp"}},
		{"low ports", "drop udp port < 1024\n" + web, []string{"1: dhcp"}},
		{"low source ports", "drop udp from port < 1024\n" + web, []string{"1: dhcp"}},
		{"services", "drop to { udp/1-1023 }\n" + web, []string{"1: dhcp"}},
		{"endpoints", "drop from { 10.0.0.0/8 udp/67, 172.16.0.0/12 udp/53 }\n" + web,
			[]string{"1: dhcp"}},
		{"private networks", "drop from { 10.0.0.0/8, 203.0.113.9 }\n" + web,
			[]string{"1: pmtu; dhcp"}},
		{"private networks of a set",
			"set bogons = { 10.0.0.0/8, 203.0.113.9 }\ndrop from bogons\n" + web,
			[]string{"2: pmtu; dhcp"}},
		{"private networks of a file", "set bogons = file(\"bogons.txt\")\ndrop from bogons\n" +
			web, []string{"2: pmtu; dhcp"}},
		{"all that are not here", "drop not from 192.168.7.0/24\n" + web,
			[]string{"1: pmtu; dhcp"}},
		{"all that are in no dynamic set", "set known = dynamic(max 9)\ndrop not from known\n" +
			web, []string{"2: nd; pmtu; dhcp; mld"}},
		{"all that are in no private network, of ICMP",
			"drop icmp not from { 10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, " +
				"192.168.0.0/16 }\n" + web, []string{"1: pmtu"}},
		{"ICMP to one server", "drop icmp to 192.0.2.10\n" + web, []string{"1: pmtu"}},
		{"ICMP of a VLAN", "drop icmp vlan 5\n" + web, []string{"1: pmtu"}},
		{"the rest, by a rule", "pass tcp port 443\ndrop\ndefault drop\n",
			[]string{"2: arp; nd; pmtu; dhcp; mld; link"}},
		{"the rest of a family, by a rule", "pass tcp port 443\ndrop ipv4\ndefault drop\n",
			[]string{"2: pmtu; dhcp"}},
		{"under default pass", "drop udp\ndefault pass\n", []string{"1: dhcp"}},
		{"with a protect rule alone", "protect from 192.0.2.1\ndrop\ndefault drop\n",
			[]string{"2: arp; pmtu; dhcp; link"}},
		{"the second, as the first takes others", "drop icmp from 10.0.0.0/8\ndrop icmp\n" + web,
			[]string{"1: pmtu", "2: pmtu"}},

		{"one host", "drop from { 10.0.0.66, 203.0.113.9, fe80::66 }\n" + web, nil},
		{"public networks", "drop from { 203.0.113.0/24, 198.51.100.0/22, 2001:db8::/32 }\n" + web,
			nil},
		{"a dynamic set",
			"set bad = dynamic(max 9)\nset doors = dynamic(of services, max 9)\ndrop from " +
				"bad\ndrop udp to doors\n" + web, nil},
		{"fragments", "drop fragments\n" + web, nil},
		{"low hop limits", "drop ttl < 5\n" + web, []string{"1: mld"}},
		{"what no such packet is like",
			"drop ipv4 ttl < 5\ndrop len > 1500\ndrop dscp ef\ndrop malformed\n" + web, nil},
		{"spoofed multicast and loopback sources",
			"drop from { 224.0.0.0/3, 127.0.0.0/8, 0.0.0.0/8, ::1, ff00::/8 }\n" + web, nil},
		{"a VLAN", "drop vlan 5\n" + web, nil},
		{"tags", "drop not untagged\n" + web, nil},
		{"a neighbour", "drop ether from 02:00:00:00:00:09\n" + web, nil},
		{"one destination", "drop to 192.0.2.10\n" + web, nil},
		{"a family that nothing of passes", "drop ipv6\n" + web, nil},
		{"all but a family", "drop not ipv6\npass ipv6 tcp port 443\ndefault drop\n",
			[]string{"1: link"}},
		{"on purpose",
			"drop arp\ndrop icmp6 type mld-query\ndrop ether 0x8809\ndrop ether 0x888e\ndrop " +
				"icmp6 type 133-137\ndrop icmp6 type { router-advertisement, redirect }\ndrop " +
				"icmp type 3/4\ndrop icmp6 type 2\ndrop udp port 68\ndrop from port 547\n" + web,
			nil},
		{"on purpose, and then all", "drop icmp type 3/4\ndrop icmp\n" + web, nil},
		{"essential off", "essential off\ndrop\n" + web, nil},
		{"kept above", "pass udp from port 67 port 68\npass icmp type 3/4\ndrop from 10.0.0.0/8\n" +
			web, nil},
		{"kept above for the same sources",
			"pass from 10.0.0.0/8 to tcp/443\npass icmp from { 10.0.0.0/9, 10.128.0.0/9 }\npass " +
				"udp from 0.0.0.0/4\ndrop from 10.0.0.0/8\n" + web, nil},
		{"kept by protect", "protect udp port 68\ndrop ipv4 udp\n" + web, nil},
		{"kept above for half of the sources",
			"pass icmp from 10.0.0.0/9\ndrop icmp from 10.0.0.0/8\n" + web, []string{"2: pmtu"}},
		{"kept by a dynamic set, which may be empty",
			"set known = dynamic(max 9)\npass from known\ndrop icmp\n" + web, []string{"3: pmtu"}},
		{"only counted above", "count icmp\ndrop icmp\n" + web, []string{"2: pmtu"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := lost(withFiles(t, tt.policy)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q\n%s", got, tt.want, tt.policy)
			}
		})
	}
}

func TestTakenNamesSourcesAndLoss(t *testing.T) {
	f := Build(resolved(t,
		"drop from { 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7 } as \"bogon\"\npass "+
			"tcp port 443\ndefault drop\n")).Findings
	if len(f) != 1 {
		t.Fatalf("%v", f)
	}
	const dhcp = "dhcp from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, ... (the address is lost " +
		"at renewal)"
	if !strings.HasSuffix(f[0].Message, dhcp) ||
		!strings.Contains(f[0].Hint,
			"put `pass icmp type 3/4`, `pass icmp6 type 2`, `pass ipv4 udp from port 67 port "+
				"68`,") {
		t.Errorf("%s\n%s", f[0].Message, f[0].Hint)
	}
}

func TestManyRulesThatTakeAreCounted(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "drop from 10.%d.0.0/16\n", 2*i)
	}
	got := Build(resolved(t, b.String()+"pass tcp port 443\ndefault drop\n")).Findings
	if len(got) != 21 || !strings.HasSuffix(got[20].Message, "; so do 79 rules behind it") {
		t.Errorf("%d findings: %v", len(got), got)
	}
}

// What a hint proposes must do what it says: with it above the rule, the warning is gone, kept or
// lost on purpose.
func TestHintsOfTakenHelp(t *testing.T) {
	for _, rule := range []string{"drop", "drop icmp", "drop icmp6", "drop udp",
		"drop from { 10.0.0.0/8, fe80::/10 }", "drop len < 1000"} {
		const rest = "\npass ttl 7\ndefault drop\n"
		above := "pass tcp port 443\n"
		found := Build(resolved(t, above+rule+rest)).Findings
		n := slices.IndexFunc(found,
			func(f Finding) bool { return strings.HasPrefix(f.Message, takes) })
		if n < 0 {
			t.Fatalf("%s: %v", rule, found)
		}
		put, _, _ := strings.Cut(found[n].Hint, " above")
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(put, -1) {
			above += m[1] + "\n"
		}
		for _, text := range []string{above,
			strings.ReplaceAll(strings.ReplaceAll(above, "pass ", "drop "), "drop tcp",
				"pass tcp")} {
			if got := lost(resolved(t, text+rule+rest)); got != nil {
				t.Errorf("%s%s: %q", text, rule, got)
			}
		}
	}
}

// No rule is blamed wrongly: from what a rule is said to take, a packet is drawn, and the rules are
// asked about it one by one.
func TestBlamedRulesDropAnEssentialPacket(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	blamed := 0
	for range 3000 {
		var b strings.Builder
		b.WriteString("set known = dynamic(max 9)\nset pairs = { 10.0.0.0/8 udp/60-70, " +
			"192.168.0.0/16 udp/67, 172.16.0.0/12 icmp, fe80::/10 udp/500-600, fe80::/12 icmp6 }\n")
		for range 1 + rng.IntN(9) {
			b.WriteString(pick("drop", "drop", "pass", "count"))
			for _, term := range []string{
				pick("", "ipv4", "not ipv4", "ipv6", "udp", "icmp", "icmp6", "icmp6 type 130-135",
					"icmp type 3"),
				pick("", "", "from 10.0.0.0/8",
					"from { 10.64.0.0/10, 192.168.1.0/24, fe80::/16, 203.0.113.9 }",
					"not from { 10.0.0.0/9, fe80::/11 }", "from known", "not from known",
					"from pairs", "not from pairs"),
				pick("", "", "", "to 255.255.255.255", "not to 192.0.2.0/24", "to ff00::/8"),
				pick("", "", "", "ttl > 64", "ttl < 200", "dscp 0", "len < 100", "len > 90"),
				pick("", "", "", "", "untagged", "vlan 1-9", "not vlan 5",
					"ether to ff:ff:ff:ff:ff:ff", "not ether from 02:00:00:00:00:01"),
			} {
				b.WriteString(" " + term)
			}
			b.WriteString("\n")
		}
		b.WriteString(pick("default drop", "default pass\npass ttl 9") + "\n")
		f, diags := syntax.Parse("test.levee", []byte(b.String()))
		p, more := resolve.Resolve(f, nil)
		if diags.HasErrors() || more.HasErrors() {
			continue // no packet has all of this
		}
		prog := Build(p)
		for slot, all := range take(prog) {
			for _, k := range all {
				blamed++
				if got := decides(prog.Lists[k.class.Index()], slot, k.part, rng); got != slot {
					t.Fatalf("seed %d: slot %d is blamed for %s, slot %d decides\n%s", seed, slot,
						k.keep, got, b.String())
				}
			}
		}
	}
	if blamed < 1000 {
		t.Errorf("only %d rules were blamed", blamed)
	}
}

// decides tells which rule decides a packet drawn from a box. Dynamic sets have what keeps other
// rules than the blamed one from deciding.
func decides(rules []Rule, blamed int, b *box, rng *rand.Rand) int {
	var numbers [field.NumFields]uint64
	for f, values := range b.numbers {
		if len(values) > 0 {
			r := values[rng.IntN(len(values))]
			numbers[f] = rng.Uint64()
			if n := r.Hi - r.Lo + 1; n != 0 { // not all of 64 bits
				numbers[f] = r.Lo + numbers[f]%n
			}
		}
	}
	var addrs [2]netip.Addr
	for side, list := range b.addrs {
		if len(list) > 0 {
			addrs[side] = list[rng.IntN(len(list))].Addr()
		}
	}
	holds := func(c Cond, slot int) bool {
		side := 0
		if c.Field == field.DstAddr || c.Field == field.DstEndpoint {
			side = 1
		}
		switch {
		case c.Dynamic():
			return c.Not && slot == blamed
		case c.Pairs != nil:
			return c.Not != slices.ContainsFunc(c.Pairs, func(p Pair) bool {
				return p.Prefix.Contains(addrs[side]) && p.Range.Lo <= numbers[c.Number] &&
					numbers[c.Number] <= p.Range.Hi
			})
		case c.Ranges != nil:
			return contains(c.Ranges, numbers[c.Field])
		}
		return c.Not != slices.ContainsFunc(c.Prefixes,
			func(p netip.Prefix) bool { return p.Contains(addrs[side]) })
	}
	for i := range rules {
		r := &rules[i]
		if r.Action.Decides() && !slices.ContainsFunc(r.Conds,
			func(c Cond) bool { return !holds(c, r.Slot) }) {
			return r.Slot
		}
	}
	return -1
}

// Operations on lists of addresses against the same on single addresses.
func TestPrefixLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	random := func() []netip.Prefix {
		var out []netip.Prefix
		for range rng.IntN(6) {
			p, _ := netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(256))}).Prefix(24 + rng.IntN(9))
			out = append(out, p)
		}
		return literal.MergePrefixes(out)
	}
	in := func(ps []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for range 2000 {
		a, b := random(), random()
		both, less := common(a, b), without(a, b)
		for i := range 256 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if in(both, addr) != (in(a, addr) && in(b, addr)) ||
				in(less, addr) != (in(a, addr) && !in(b, addr)) {
				t.Fatalf("%v and %v at %v: both %v, less %v", a, b, addr, both, less)
			}
		}
	}
}

// 100,000 rules, of which each cuts something out of what is left of the essential traffic, are
// followed in a fraction of a second.
func TestTakenOfManyRulesIsFoundInTime(t *testing.T) {
	var b strings.Builder
	for i := range 100000 {
		fmt.Fprintf(&b, "pass from 10.%d.%d.%d/31 ttl %d len != %d\n", i>>15, i>>7&255, i<<1&255,
			64+i%100, 60+i%999)
	}
	b.WriteString("drop\ndefault drop\n")
	p := resolved(t, b.String())
	if got := lost(p); !slices.Equal(got, []string{"100001: arp; pmtu; dhcp; link"}) {
		t.Errorf("got %q", got)
	}
}
