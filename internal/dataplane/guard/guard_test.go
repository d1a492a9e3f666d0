package guard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/filter/difftest"
	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
	"levee/internal/packet/craft"
)

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, ds := resolve.Parse("edge.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	return p
}

// ssh is a session from 192.0.2.7 to port 22.
func ssh(tags ...uint16) []session.Session {
	return []session.Session{{
		Local:  netip.MustParseAddrPort("198.51.100.1:22"),
		Remote: netip.MustParseAddrPort("192.0.2.7:50000"),
		What:   "an SSH session", Tags: tags, Again: true,
	}}
}

func TestAPolicyThatDropsASessionIsRefused(t *testing.T) {
	const pass = ""
	for _, c := range []struct{ name, policy, decider string }{
		{"default", "default drop\n", "the default (edge.levee:1)"},
		{"a rule", "drop tcp port 22 as \"ssh\"\ndefault pass\n", `"ssh" (edge.levee:1)`},
		{"full segments", "drop tcp len > 1000 as \"long\"\ndefault pass\n",
			`"long" (edge.levee:1)`},
		{"protected", "protect tcp from 192.0.2.0/24\ndefault drop\n", pass},
		{"let pass", "pass tcp port 22\ndefault drop\n", pass},
		{"new connections only", "drop tcp syn port 22\ndefault pass\n", pass},
		{"scans", "drop tcp flags none/fin,syn,rst,psh,ack,urg\n" +
			"drop tcp flags fin,psh,urg\ndrop tcp flags fin/fin,ack\ndefault pass\n", pass},
		{"hygiene", "drop fragments\ndrop ttl < 5\ndrop tcp len < 40\ndrop len > 1500\n" +
			"drop tcp flags rst\ndrop tcp flags urg\ndefault pass\n", pass},
	} {
		err := Check(parse(t, c.policy), packet.Ethernet, ssh(), nil)
		var cut *CutError
		switch {
		case c.decider == pass && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.decider != pass && (!errors.As(err, &cut) || cut.Decider != c.decider):
			t.Errorf("%s: %v, want it dropped by %s", c.name, err, c.decider)
		}
	}
	err := Check(parse(t, "default drop\n"), packet.Ethernet, ssh(), nil)
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, " +
		"would be dropped by the default (edge.levee:1); " +
		"let it pass (`protect from 192.0.2.7 tcp port 22`)"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := Check(parse(t, "default drop\n"), packet.Ethernet, nil, nil); err != nil {
		t.Errorf("without a session: %v", err)
	}
}

// TestALimitThatStarvesASession: the commonest is one of new connections that forgot to say `syn`.
func TestALimitThatStarvesASession(t *testing.T) {
	for text, refused := range map[string]bool{
		"limit tcp port 22 rate 10/m by source as \"l\"\ndefault pass\n":       true,
		"limit rate 19/s as \"l\"\ndefault pass\n":                             true,
		"limit tcp rate 8kbit/s as \"l\"\ndefault pass\n":                      true,
		"limit tcp rate 1/s by source, source/24 x32 as \"l\"\ndefault pass\n": true,
		"limit tcp len > 1000 rate 1/s as \"l\"\ndefault pass\n":               true,
		"limit tcp rate 1/s by source/24 x32 as \"l\"\ndefault pass\n":         false,
		"limit tcp syn port 22 rate 10/m by source\ndefault pass\n":            false,
		"limit udp rate 1/s\ndefault pass\n":                                   false,
		"limit tcp rate 20/s\ndefault pass\n":                                  false,
		"limit tcp rate 100kbit/s\ndefault pass\n":                             false,
		"pass tcp port 22\nlimit rate 1/s\ndefault pass\n":                     false,
		"limit arp rate 1/s\ndefault pass\n":                                   false,
		"protect from 192.0.2.7 tcp port 22\nlimit rate 1/s\ndefault pass\n":   false,
	} {
		err := Check(parse(t, text), packet.Ethernet, ssh(), nil)
		var cut *CutError
		if refused != errors.As(err, &cut) || refused && !strings.Contains(cut.Decider, `"l"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
	err := Check(parse(t, "limit tcp port 22 rate 10/m by source\ndefault pass\n"),
		packet.Ethernet, ssh(), nil)
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would be held to 10/m by " +
		"`limit tcp port 22 rate 10/m by source` (edge.levee:1); " +
		"let it pass (`protect from 192.0.2.7 tcp port 22`)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestASessionArrivesWithItsTags: packets of a session on a VLAN carry its ids on the interface
// below.
func TestASessionArrivesWithItsTags(t *testing.T) {
	for _, c := range []struct {
		policy string
		tags   []uint16
		cut    bool
	}{
		{"drop vlan 7\ndefault pass\n", nil, false},
		{"drop vlan 7\ndefault pass\n", []uint16{7}, true},
		{"drop vlan 7\ndefault pass\n", []uint16{8}, false},
		{"drop inner-vlan 9\ndefault pass\n", []uint16{7, 9}, true},
		{"drop untagged\ndefault pass\n", []uint16{7}, false},
		{"drop untagged\ndefault pass\n", nil, true},
		{"default pass\n", []uint16{7, 8, 9}, true}, // which is malformed
		{"pass malformed\ndefault pass\n", []uint16{7, 8, 9}, false},
	} {
		if err := Check(parse(t, c.policy), packet.Ethernet, ssh(c.tags...),
			nil); (err != nil) != c.cut {
			t.Errorf("%q, tags %v: %v", c.policy, c.tags, err)
		}
	}
}

// TestFallbacksThatCutAreNotUsed: if one of the two would cut a session, neither is used.
func TestFallbacksThatCutAreNotUsed(t *testing.T) {
	set := "set friends = dynamic(max 10)\n"
	for _, c := range []struct {
		policy string
		want   int
		cut    bool
	}{
		{"default drop\n", 0, false},
		{"on error pass\ndefault drop\n", 2, false},
		{"on error drop\ndefault pass\n", 0, true},
		{"on error drop\nprotect from 192.0.2.7\ndefault pass\n", 2, false},
		{"on error drop\n" + set + "protect from friends\ndefault pass\n", 0, true},
	} {
		all, err := Fallbacks(parse(t, c.policy), packet.Ethernet, ssh(), nil)
		if len(all) != c.want || (err != nil) != c.cut {
			t.Errorf("%q: %d policies, %v", c.policy, len(all), err)
		}
		if err != nil && !strings.Contains(err.Error(), "would be dropped") {
			t.Errorf("%q: %v", c.policy, err)
		}
	}
}

// TestNoPacketOfASessionIsCut: rules that drop only some of a session's packets, which two probe
// packets of usual looks do not show.
func TestNoPacketOfASessionIsCut(t *testing.T) {
	gateway := net.HardwareAddr{0x02, 0, 0, 0, 0, 0xfe}
	own := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x10}
	for _, c := range []struct{ rules, packet string }{
		{"drop tcp flags psh", "flags psh,ack"},
		{"drop tcp flags fin", "flags fin,ack"},
		{"drop tcp flags ece", "flags ack,ece"},
		{"drop tcp flags fin,psh", "flags fin,psh,ack"},
		{"drop dscp 4", "dscp 4"},
		{"drop dscp { af21, ef }", "dscp 18"},
		{"drop len 41-71", "len 41"},
		{"drop len 1401-1500", "len 1401"},
		{"drop tcp len 52", "len 52"},
		{"pass len < 1000\npass len > 1010\ndrop tcp", "len 1000"},
		{"drop ttl 128", "ttl 128"},
		{"drop ttl < 50", "ttl 32"},
		{"drop window 0", "window 0"},
		{"drop tcp flags psh len > 1000 dscp 4 window < 10",
			"flags psh,ack len 1001 dscp 4 window 0"},
		{"pass tcp flags psh\npass tcp flags fin\npass len < 73\ndrop tcp", "len 73"},
		{"drop ether from 02:00:00:00:00:fe", ""},
		{"drop ether to 02:00:00:00:00:10", ""},
		{"drop not ether to 02:00:00:00:00:11", ""},
		{"drop ether from 02:00:00:00:00:fe len 100", "len 100"},
	} {
		sessions := ssh()
		sessions[0].SrcMAC, sessions[0].DstMAC = gateway, own
		err := Check(parse(t, c.rules+"\ndefault pass\n"), packet.Ethernet, sessions, nil)
		var cut *CutError
		if !errors.As(err, &cut) || cut.Packet != c.packet {
			t.Errorf("%s: %v, want it refused for a packet with %q", c.rules, err, c.packet)
		}
	}
	for _, rules := range []string{
		"drop not ether from 02:00:00:00:00:fe",
		"drop not ether to { 02:00:00:00:00:10, ff:ff:ff:ff:ff:ff }",
		"pass ether from 02:00:00:00:00:fe ether to 02:00:00:00:00:10\npass arp\ndrop",
		"pass tcp flags ack\ndrop tcp",
		"pass len < 1000\npass len > 900\ndrop tcp",
	} {
		sessions := ssh()
		sessions[0].SrcMAC, sessions[0].DstMAC = gateway, own
		if err := Check(parse(t, rules+"\ndefault pass\n"), packet.Ethernet, sessions,
			nil); err != nil {
			t.Errorf("%s: %v", rules, err)
		}
	}
}

// TestAPeerInADynamicSet is cut, or kept, by what the set holds when the policy comes.
func TestAPeerInADynamicSet(t *testing.T) {
	entry := func(s string) Entries {
		return Entries{"some": {{Prefix: netip.MustParsePrefix(s)}}}
	}
	for _, c := range []struct {
		rules   string
		entries Entries
		cut     bool
	}{
		{"drop from some\ndefault pass\n", nil, false},
		{"drop from some\ndefault pass\n", entry("192.0.2.0/24"), true},
		{"drop from some\ndefault pass\n", entry("192.0.2.8/32"), false},
		{"drop not from some\ndefault pass\n", nil, true},
		{"drop not from some\ndefault pass\n", entry("192.0.2.7/32"), false},
		{"pass from some\npass arp\ndefault drop\n", entry("192.0.2.7/32"), false},
		{"drop from some len 100\ndefault pass\n", entry("192.0.2.7/32"), true},
	} {
		p := parse(t, "set some = dynamic(max 10)\n"+c.rules)
		if err := Check(p, packet.Ethernet, ssh(), c.entries); (err != nil) != c.cut {
			t.Errorf("%q with %v: %v", c.rules, c.entries, err)
		}
	}
	for _, c := range []struct {
		of, entry string
		cut       bool
	}{
		{"services", "tcp/22", true}, {"services", "tcp/23", false}, {"services", "udp/22", false},
		{"endpoints", "198.51.100.1 tcp/22", true}, {"endpoints", "198.51.100.2 tcp/22", false},
		{"endpoints", "198.51.100.0/24 tcp/20-23", true},
	} {
		p := parse(t, "set some = dynamic(of "+c.of+", max 10)\ndrop to some\ndefault pass\n")
		e, err := literal.ParseElements(c.entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(p, packet.Ethernet, ssh(), Entries{"some": e}); (err != nil) != c.cut {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestTheNextSessionIsDiverted: one that is there goes on, and its next connection would reach the
// trap.
func TestTheNextSessionIsDiverted(t *testing.T) {
	member := Entries{"some": {{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}}
	for _, c := range []struct {
		rules   string
		entries Entries
		decider string
	}{
		{"divert tcp port 22 from some as \"trap\"", nil, ""},
		{"divert tcp port 22 from some as \"trap\"", member, `"trap" (edge.levee:2)`},
		{"divert tcp port 2222 from some as \"trap\"", member, ""},
		{"divert tcp from 192.0.2.0/24", nil, "`divert tcp from 192.0.2.0/24` (edge.levee:2)"},
		{"divert tcp from port 2000-3000 port 22 as \"trap\"", nil, `"trap" (edge.levee:2)`},
		{"divert tcp from port < 1024 port 22 as \"trap\"", nil, ""},
		{"pass tcp flags ack\ndivert tcp as \"trap\"", nil, `"trap" (edge.levee:3)`},
		{"pass tcp from 192.0.2.7\ndivert tcp as \"trap\"", nil, ""},
		{"protect from 192.0.2.7 tcp port 22\ndivert tcp as \"trap\"", nil, ""},
	} {
		p := parse(t, "set some = dynamic(max 10)\n"+c.rules+"\ndefault pass\n")
		err := Check(p, packet.Ethernet, ssh(), c.entries)
		var cut *CutError
		if errors.As(err, &cut); (c.decider == "") != (err == nil) || err != nil && (cut == nil ||
			cut.Decider != c.decider || cut.Next != "diverted to the trap") {
			t.Errorf("%q: %v", c.rules, err)
		}
	}
	err := Check(parse(t, "divert tcp port 22\ndefault pass\n"), packet.Ethernet, ssh(), nil)
	want := "a new connection such as an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, " +
		"would be diverted to the trap by `divert tcp port 22` (edge.levee:1); let it pass " +
		"(`protect from 192.0.2.7 tcp port 22`)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestASessionNeedsItsNeighbour: without ARP or neighbour discovery it ends a minute later.
func TestASessionNeedsItsNeighbour(t *testing.T) {
	four, six := ssh(), ssh()
	four[0].Neighbour = netip.MustParseAddr("198.51.100.254")
	six[0].Local = netip.MustParseAddrPort("[2001:db8::1]:22")
	six[0].Remote = netip.MustParseAddrPort("[2001:db8:7::1]:50000")
	six[0].Neighbour = netip.MustParseAddr("fe80::fe")
	const arp, nd = "ARP of 198.51.100.254", "neighbour discovery of fe80::fe"
	for _, c := range []struct {
		policy   string
		sessions []session.Session
		needs    string
	}{
		{"protect tcp port 22\ndefault drop\n", four, ""},
		{"protect tcp port 22\ndefault drop\n", six, ""},
		{"essential off\nprotect tcp port 22\ndefault drop\n", four, arp},
		{"essential off\nprotect tcp port 22\ndefault drop\n", six, nd},
		{"essential off\nprotect tcp port 22\npass arp\ndefault drop\n", four, ""},
		{"essential off\nprotect tcp port 22\npass icmp6 type 133-137 ttl 255\ndefault drop\n", six,
			""},
		{"drop arp\ndefault pass\n", four, arp},
		{"drop ether to ff:ff:ff:ff:ff:ff\ndefault pass\n", four, arp},
		{"drop to ff02::/16\ndefault pass\n", six, nd},
		{"drop icmp6 type 136\ndefault pass\n", six, nd},
		{"drop arp\ndefault pass\n", six, ""},
		{"drop arp\ndefault pass\n", ssh(), ""},
	} {
		err := Check(parse(t, c.policy), packet.Ethernet, c.sessions, nil)
		var cut *CutError
		errors.As(err, &cut)
		if (err != nil) != (c.needs != "") || cut != nil && cut.Needs != c.needs {
			t.Errorf("%q: %v, want %q", c.policy, err, c.needs)
		}
	}
	err := Check(parse(t, "drop arp\ndefault pass\n"), packet.Ethernet, four, nil)
	want := "an SSH session, from 192.0.2.7:50000 to 198.51.100.1:22, would end: " +
		"ARP of 198.51.100.254 would be dropped by `drop arp` (edge.levee:1); " +
		"let it pass (`protect arp`)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestTheGuardAgreesWithTheOracle on policies of all kinds: the packet that it names is dropped by
// the rule that it names, and where it names none, no packet of the session is dropped.
func TestTheGuardAgreesWithTheOracle(t *testing.T) {
	cut, kept := 0, 0
	var untold []field.Field // what no frame tells
	for f := range field.NumFields {
		if f.Info().Untold != "" {
			untold = append(untold, f)
		}
	}
	for seed := range uint64(800) {
		p, _, err := difftest.Policy(seed)
		if err != nil {
			t.Fatal(err)
		}
		slots := p.Slots()
		for _, s := range append(ssh(), session.Session{
			Local:  netip.MustParseAddrPort("[2001:db8:1::1]:443"),
			Remote: netip.MustParseAddrPort("[2001:db8::1]:40000"), Tags: []uint16{7},
		}) {
			if p.Asks(untold...) {
				continue // of which the oracle knows none here
			}
			judge := oracle.New(p)
			now := time.Now()
			judge.SetClock(func() time.Time { return now })
			k := arriving(s, packet.Ethernet)[0]
			d := ir.Build(p).FirstDropped(&k.Traffic)
			r := rand.New(rand.NewPCG(seed, 1))
			for n := range 200 {
				value := func(f field.Field, usual uint64) uint64 {
					if d != nil {
						return d.Value(f, usual)
					}
					return pick(r, k.Known[f], usual)
				}
				frame := build(t, &k, s, value)
				now = now.Add(31 * 24 * time.Hour) // no limit is reached
				got := judge.Eval(frame)
				if by := slots[got.Slot].Rule; by != nil && by.Action == action.Greylist {
					continue // a session sends again
				}
				if d == nil && got.Action == action.Drop || d != nil && got.Slot != d.Slot {
					t.Fatalf("seed %d: the guard says %+v, the oracle %+v of %x", seed, d, got,
						frame)
				}
				if d != nil && n > 0 {
					break
				}
			}
			if d != nil {
				cut++
			} else {
				kept++
			}
		}
	}
	if cut < 100 || kept < 100 {
		t.Errorf("%d policies cut, %d do not: too few to say anything", cut, kept)
	}
}

// pick is any of the values; of fields of which nothing is known, the usual or any.
func pick(r *rand.Rand, known []field.Range, usual uint64) uint64 {
	if known == nil {
		return usual
	}
	of := known[r.IntN(len(known))]
	return of.Lo + r.Uint64N(of.Hi-of.Lo+1)
}

// varying are the fields that the packets of a TCP session of a family have, but for those that are
// the same in all of them.
func varying(of ir.Family) (all []field.Field) {
	same := []field.Field{field.EtherType, field.SrcPort, field.DstPort, field.SrcSuffix,
		field.DstSuffix, field.Tags}
	for f := field.None + 1; f < field.NumFields; f++ {
		info := f.Info()
		p := info.Header.Presence()
		numbers := info.Compare == field.ByRange || info.Compare == field.ByMask
		has := of == ir.IPv4 && p.IPv4 || of == ir.IPv6 && p.IPv6
		if numbers && !info.ByClass && !info.Remembered && info.Absent == 0 &&
			!slices.Contains(same, f) && has &&
			(p.Protos == nil || slices.Contains(p.Protos, packet.ProtoTCP)) {
			all = append(all, f)
		}
	}
	return all
}

// build makes a packet of a session.
func build(t *testing.T, k *packets, s session.Session,
	value func(field.Field, uint64) uint64) []byte {
	t.Helper()
	spec := packet.Spec{
		From: k.Src, To: k.Dst, Proto: new(uint8(packet.ProtoTCP)),
		FromPort: new(s.Remote.Port()), ToPort: new(s.Local.Port()),
	}
	if len(s.Tags) > 0 {
		spec.VLAN = &s.Tags[0]
	}
	for _, f := range varying(k.Class.Family) {
		craft.Number(&spec, f, value(f, k.usually(f)), nil)
	}
	frame, err := packet.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestTheGuardTellsOfEveryNumber: the message says what the packets have that a rule would drop,
// whichever field the rule asks for.
func TestTheGuardTellsOfEveryNumber(t *testing.T) {
	k := arriving(ssh()[0], packet.Ethernet)[0]
	for _, f := range varying(k.Class.Family) {
		i := slices.IndexFunc(field.Phrases[:],
			func(ph field.Phrase) bool { return ph.Field == f && ph.Form == field.FormNumber })
		if i < 0 {
			continue // flags and Ethernet addresses
		}
		word, next := field.Phrases[i].Word, k.usually(f)+1
		rule := fmt.Sprintf("drop %s >= %d\ndefault pass\n", word, next)
		err := Check(parse(t, rule), packet.Ethernet, ssh(), nil)
		want := fmt.Sprintf("%s %d", word, next)
		var cut *CutError
		if !errors.As(err, &cut) || cut.Packet != want {
			t.Errorf("%s: %v, want packets with %s", rule, err, want)
		}
	}
}

// Where packets begin with IP, there is no neighbour and no Ethernet address.
func TestASessionArrivesWithoutEthernet(t *testing.T) {
	for text, cut := range map[string]bool{
		"drop tcp port 22\ndefault pass\n":                   true,
		"drop tcp flags psh\ndefault pass\n":                 true,
		"protect from 192.0.2.7 tcp port 22\ndefault drop\n": false,
	} {
		if err := Check(parse(t, text), packet.L3, ssh(), nil); (err != nil) != cut {
			t.Errorf("%q: %v", text, err)
		}
	}
}
