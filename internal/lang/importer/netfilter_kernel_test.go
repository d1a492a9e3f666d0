package importer_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/filter/oracle"
	"levee/internal/lab"
	"levee/internal/lang/action"
	"levee/internal/lang/importer"
	"levee/internal/lang/importer/iptables"
	"levee/internal/lang/importer/nft"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

const packets = 1200 // a ruleset

// observer is a table of nftables that notes, by its identification or flow label, each packet that
// comes to INPUT, and each that the rules between let through.
const observer = `table inet observer {
	set in4 { typeof ip id; flags dynamic; size 65535; }
	set in6 { typeof ip6 flowlabel; flags dynamic; size 65535; }
	set ok4 { typeof ip id; flags dynamic; size 65535; }
	set ok6 { typeof ip6 flowlabel; flags dynamic; size 65535; }
	chain before { type filter hook input priority -200; add @in4 { ip id }; add @in6 { ip6 flowlabel }; }
	chain behind { type filter hook input priority 200; add @ok4 { ip id }; add @ok6 { ip6 flowlabel }; }
}
`

// kernelSide is a host whose netfilter judges what is sent to it:
//
//	outer eth0 ---- eth0 inner: observer, rules under test, observer
type kernelSide struct {
	t            *testing.T
	inner, outer *lab.Host
	near         named     // what every other packet has fields of
	in           [2]string // the sets of those that came
	round        int       // the number before those of this round's packets
	sent         int       // packets of this round

	second map[int][]byte // fragments that follow frames
}

func newKernelSide(t *testing.T) *kernelSide {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	for _, tool := range []string{"nft", "iptables-restore", "ip6tables-restore", "ipset"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	l, err := lab.New(t.Context(), lab.Topology{Pairs: []lab.Pair{{Inner: "inner", Outer: "outer"}},
		ReceiverCPU: -1, GeneratorCPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &kernelSide{t: t, inner: l.Host("inner"), outer: l.Host("outer"),
		in: [2]string{"inet observer in4", "inet observer in6"}}
}

// run runs a tool in the namespace of inner and returns what it prints.
func (k *kernelSide) run(stdin, name string, args ...string) string {
	k.t.Helper()
	cmd := k.inner.Command(k.t.Context(), name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		k.t.Fatalf("%s %s: %v: %s\n%s", name, strings.Join(args, " "), err, errs.String(), stdin)
	}
	return out.String()
}

// verdicts sends the frames and tells for each: true passed, false dropped; those that never came
// to INPUT are missing. A busy machine loses frames where its backlog is full: what did not come is
// sent once more, while some of it comes. Those of the next call have other numbers, as frames of
// this one may still be on their way then.
func (k *kernelSide) verdicts(frames [][]byte) map[int]bool {
	k.t.Helper()
	k.run("flush set inet observer in4; flush set inet observer in6; flush set inet observer "+
		"ok4; flush set inet observer ok6", "nft", "-f", "-")
	got := map[int]bool{}
	for {
		before := len(got)
		k.send(frames, got)
		if got = k.arrived(len(frames)); len(got) == len(frames) || len(got) == before {
			break
		}
	}
	k.passed(got)
	return got
}

// passed notes the frames that the rules let through, and begins another round.
func (k *kernelSide) passed(got map[int]bool) {
	k.t.Helper()
	for _, set := range []string{"inet observer ok4", "inet observer ok6"} {
		for _, id := range k.elements(set) {
			got[id] = true
		}
	}
	if k.round += packets; k.round+packets > 0xffff {
		k.round = 0
	}
}

// send sends the frames that have not come.
func (k *kernelSide) send(frames [][]byte, come map[int]bool) {
	k.t.Helper()
	k.sent = len(frames)
	dev := k.outer.Device("eth0")
	err := k.outer.Do(func() error {
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		for i, f := range frames {
			if _, ok := come[i]; ok {
				continue
			}
			for _, f := range [][]byte{f, k.second[i]} {
				var err unix.Errno
				await.Until(func() bool { // the queue is full on a busy machine
					if f != nil {
						err, _ = unix.Sendto(s, f, 0,
							&unix.SockaddrLinklayer{Ifindex: dev.Index}).(unix.Errno)
					}
					return err != unix.ENOBUFS
				})
				if err != 0 {
					return fmt.Errorf("frame %d: %w", i, err)
				}
			}
			if i%64 == 63 {
				await.Pass(time.Millisecond, "the queue of the receiver is short")
			}
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// arrived gives the frames that came to INPUT, once no more of so many come.
func (k *kernelSide) arrived(all int) map[int]bool {
	k.t.Helper()
	got := map[int]bool{}
	for range 50 { // what is on its way arrives within milliseconds
		n := len(got)
		got = map[int]bool{}
		for _, set := range k.in {
			for _, id := range k.elements(set) {
				got[id] = false
			}
		}
		if len(got) == all || n > 0 && n == len(got) {
			break
		}
		await.Pass(20*time.Millisecond, "what is on its way arrives")
	}
	return got
}

func (k *kernelSide) elements(set string) (ids []int) {
	k.t.Helper()
	var l struct {
		Nftables []struct {
			Set *struct{ Elem []json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(k.run("", "nft", "-j", "list set "+set)), &l); err != nil {
		k.t.Fatal(err)
	}
	for _, o := range l.Nftables {
		if o.Set == nil {
			continue
		}
		for _, e := range o.Set.Elem {
			var id int
			if err := json.Unmarshal(e, &id); err != nil {
				k.t.Fatalf("element %s: %v", e, err)
			}
			if id -= k.round + 1; id >= 0 && id < k.sent {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// compare sends packets near the rules and fails where the kernel and the policy differ. What the
// policy passes as essential is left out of the comparison: the import says that it does.
func (k *kernelSide) compare(rnd *rand.Rand, text []byte, source string) {
	k.t.Helper()
	p, diags := resolve.Parse("imported.levee", text, nil)
	if err := diags.Err(); err != nil {
		k.t.Fatal(err)
	}
	frames := make([][]byte, packets)
	for i := range frames {
		frames[i] = k.packet(rnd, i)
	}
	got := k.verdicts(frames)
	if len(got) < len(frames)*9/10 {
		k.t.Fatalf("%d of %d packets came to INPUT", len(got), len(frames))
	}
	e, slots := oracle.New(p), p.Slots()
	passed := 0
	for i, ok := range got {
		res := e.Eval(frames[i])
		if slots[res.Slot].Reason == policy.ByEssential {
			continue
		}
		if ok {
			passed++
		}
		if want := res.Action == action.Pass; want != ok {
			k.t.Fatalf("packet %d %x: kernel passes %v, the policy says %v by line %d (%s)\n%s\n%s",
				i, frames[i], ok, want, slots[res.Slot].Line, slots[res.Slot].Name, source, text)
		}
	}
	k.t.Logf("%d packets, %d passed, %d rules", len(got), passed, len(p.Rules))
}

var ports = []uint16{0, 21, 22, 53, 79, 80, 81, 443, 1023, 1024, 8080, 65535}

// packet is one of the packets that the random rules are about, the ith of its round.
func (k *kernelSide) packet(rnd *rand.Rand, i int) []byte {
	d := k.inner.Device("eth0")
	mac := [6]byte(d.MAC)
	s := packet.Spec{EtherTo: &mac, TTL: new([]uint8{1, 4, 5, 64, 255}[rnd.IntN(5)]),
		DSCP: []uint8{0, 8, 46}[rnd.IntN(3)]}
	six := rnd.IntN(3) == 0
	if six {
		s.Family, s.To = packet.IPv6, d.IPv6.Addr()
		s.From = netip.MustParseAddr([]string{"2001:db8:aaaa::1", "2001:db8:bbbb::7",
			"2001:db8:aaaa:1::1"}[rnd.IntN(3)])
	} else {
		s.Family, s.To = packet.IPv4, d.IPv4.Addr()
		s.From = netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(16))})
		if rnd.IntN(3) == 0 {
			s.From = netip.MustParseAddr([]string{"10.1.2.3", "10.200.0.1",
				"198.51.100.7"}[rnd.IntN(3)])
		}
	}
	switch rnd.IntN(6) {
	case 0, 1:
		s.Proto, s.Flags = new(uint8(6)), new(uint8(rnd.IntN(64)))
	case 2, 3:
		s.Proto = new(uint8(17))
	case 4:
		s.Proto, s.Type = new(uint8(1)), new([]uint8{0, 3, 8, 11, 13}[rnd.IntN(5)])
		if six {
			s.Proto, s.Type = new(uint8(58)), new([]uint8{1, 3, 128, 129}[rnd.IntN(4)])
		}
		s.Code = uint8(rnd.IntN(2))
	case 5:
		s.Proto = new([]uint8{47, 132, 253}[rnd.IntN(3)])
	}
	if packet.HasPorts(s.Protocol()) {
		s.FromPort, s.ToPort = new(ports[rnd.IntN(len(ports))]), new(ports[rnd.IntN(len(ports))])
	}
	k.near.into(rnd, &s)
	b, err := packet.Build(s)
	if err != nil {
		k.t.Fatal(err)
	}
	if rnd.IntN(3) == 0 {
		n := len(b) - 14 + rnd.IntN(60)
		s.Len = &n
		if b, err = packet.Build(s); err != nil {
			k.t.Fatal(err)
		}
	}
	number(b, six, uint16(k.round+i+1)) // the kernel's own packets have 0
	return b
}

// number writes a number into the identification of IPv4, with its header checksum, or the flow
// label.
func number(b []byte, six bool, n uint16) {
	ip := b[14:]
	if six {
		binary.BigEndian.PutUint16(ip[2:], n)
		return
	}
	binary.BigEndian.PutUint16(ip[4:], n)
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < int(ip[0]&15)*4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// rounds runs a test some times, each with random numbers of its own.
func (k *kernelSide) rounds(t *testing.T, name string, n int, seed, stream uint64,
	one func(*testing.T, *rand.Rand)) {
	for round := range n {
		t.Run(fmt.Sprintf("%s-%d", name, round), func(t *testing.T) {
			k.t = t
			one(t, rand.New(rand.NewPCG(seed, stream+uint64(round))))
		})
	}
}

// TestAPacketOfTheRoundBeforeIsNoneOfThisOne: on a busy machine packets came late, and counted as
// those of the same number in the next round, which the rules judged otherwise.
func TestAPacketOfTheRoundBeforeIsNoneOfThisOne(t *testing.T) {
	k := newKernelSide(t)
	k.run(observer, "nft", "-f", "-")
	rnd := rand.New(rand.NewPCG(1, 1))
	frames := [][]byte{k.packet(rnd, 0), k.packet(rnd, 1)}
	if got := k.verdicts(frames); len(got) != len(frames) {
		t.Fatalf("%d of %d packets came", len(got), len(frames))
	}
	k.run("flush ruleset\n"+observer, "nft", "-f", "-")
	k.send(frames, nil)
	if got := k.arrived(0); len(got) > 0 {
		t.Errorf("late packets count: %v", got)
	}
}

// setsOfRules are the sets of ipset that random rules name.
const setsOfRules = "create nets hash:net\nadd nets 10.0.0.0/8\nadd nets 10.200.0.0/16 nomatch\n" +
	"create svc hash:ip,port\nadd svc 192.0.2.1,tcp:80\nadd svc 192.0.2.2,udp:53\nadd svc " +
	"192.0.2.3,tcp:80\ncreate low bitmap:port range 0-1023\nadd low 22\nadd low 80-81\n" +
	"create pn hash:net,port comment\nadd pn 192.0.2.0/29,udp:53 comment nomatch\nadd pn " +
	"10.0.0.0/8,tcp:0-1023\nadd pn 192.0.2.8/29,icmp:8/0\nadd pn 10.0.0.0/9,gre:0\n" +
	"create said hash:ip counters comment\nadd said 192.0.2.5 comment \"timeout\"\ncreate " +
	"bits bitmap:ip range 192.0.2.0/28\nadd bits 192.0.2.2-192.0.2.6\ncreate six hash:net " +
	"family inet6\nadd six 2001:db8:bbbb::/64\n" +
	"create masked hash:ip netmask 30\nadd masked 192.0.2.9\ncreate three " +
	"hash:ip,port,net\nadd three 192.0.2.1,tcp:80,0.0.0.0/1\nadd three " +
	"10.1.2.3,udp:53,128.0.0.0/1\n" +
	"create both list:set\nadd both said\nadd both bits\nadd both nets\n"

// TestKernelAndPolicyAgree loads random rulesets into the kernel by the real tools, imports what
// the tools dump, and compares the verdicts for packets that are sent over a wire.
func TestKernelAndPolicyAgree(t *testing.T) {
	const seed = 20261121
	t.Logf("seed %d", seed)
	k := newKernelSide(t)
	k.run(observer, "nft", "-f", "-")
	k.rounds(t, "nft", 6, seed, 0, func(t *testing.T, rnd *rand.Rand) {
		rules := randomNFT(rnd, nil)
		k.run(rules, "nft", "-f", "-")
		dump := k.run("", "nft", "-j", "list", "table", "inet", "filter")
		// loaded again below, to leave nothing behind on a failure
		k.run("delete table inet filter", "nft", "-f", "-")
		var out bytes.Buffer
		if _, err := nft.Import(importer.Source{Name: "dump", R: strings.NewReader(dump)}, &out,
			importer.Rulesets{Device: "eth0"}); err != nil {
			t.Fatalf("%v\n%s", err, rules)
		}
		k.run(rules, "nft", "-f", "-")
		defer k.run("delete table inet filter", "nft", "-f", "-")
		k.compare(rnd, out.Bytes(), rules)
	})
	k.t = t
	k.run(setsOfRules, "ipset", "restore")
	sets := k.run("", "ipset", "save")
	k.rounds(t, "iptables", 6, seed, 100, func(t *testing.T, rnd *rand.Rand) {
		four, six := randomIPTables(rnd, false, nil), randomIPTables(rnd, true, nil)
		k.run(four, "iptables-restore")
		k.run(six, "ip6tables-restore")
		defer k.run("*filter\n:INPUT ACCEPT\nCOMMIT\n", "iptables-restore")
		defer k.run("*filter\n:INPUT ACCEPT\nCOMMIT\n", "ip6tables-restore")
		in := []importer.Source{{Name: "v4", R: strings.NewReader(k.run("", "iptables-save"))},
			{Name: "v6", R: strings.NewReader(k.run("", "ip6tables-save"))},
			{Name: "sets", R: strings.NewReader(sets)}}
		k.compareImport(t, rnd, in, four+six)
	})
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// randomNFT is a table with two chains under input and a verdict of each kind, about the packets
// above. others are further terms.
func randomNFT(rnd *rand.Rand, others []string) string {
	term := func() string {
		if len(others) > 0 && rnd.IntN(3) == 0 {
			return pick(rnd, others...)
		}
		return pick(rnd, "ip saddr 192.0.2.0/29", "ip saddr != 10.0.0.0/8",
			"ip saddr { 192.0.2.3, 192.0.2.8-192.0.2.12 }", "ip saddr @nets",
			"ip6 saddr 2001:db8:aaaa::/64",
			"ip6 saddr != 2001:db8:aaaa::/64", "tcp dport { 22, 80 }", "tcp dport != 22",
			"tcp sport > 1023", "udp dport 53", "udp dport < 1024",
			"th dport 80 meta l4proto { tcp, udp }",
			"tcp dport @ports", "icmp type { echo-request, echo-reply }",
			"icmp type != echo-request", "icmpv6 type echo-request",
			"icmp type destination-unreachable icmp code 1",
			"tcp flags syn", "tcp flags & (syn|ack) == syn", "tcp flags & (fin|syn) != (fin|syn)",
			"tcp flags != syn", "tcp flags { syn, ack, syn|ack }", "ip ttl < 5",
			"ip6 hoplimit != 255",
			"ip dscp { ef, cs1 }", "ip6 dscp != cs0", "meta l4proto tcp",
			"meta l4proto != { tcp, udp }", "meta nfproto ipv6", "ip protocol { icmp, gre }",
			"meta length > 60", "ip length 20-40",
			"ip6 length < 30", "ip saddr . tcp dport { 192.0.2.1 . 80, 192.0.2.2 . 80, "+
				"192.0.2.3 . 22 }", "iifname \"eth0\"", "iifname != \"eth0\"",
			"ip frag-off & 0x3fff == 0", "ether saddr 02:00:00:00:00:01", "sctp dport != 22",
			"add @seen4 { ip saddr }", "update @seen6 { ip6 saddr timeout 5s }",
			"add @seenp { tcp dport }", "meta mark set 0x5", "ip saddr . udp dport @pairs",
			"meta l4proto . th dport { tcp . 80, udp . 53, tcp . 1023-1030 }",
			"ip6 saddr . tcp dport { 2001:db8:aaaa::/64 . 22, 2001:db8:bbbb::7 . 80-443 }",
			"icmp type . icmp code { echo-request . 0, destination-unreachable . 1 }",
			"udp dport 53 @th,64,16 0x0", "udp sport > 1023 @th,80,8 & 0x78 != 0x8",
			"udp dport != 53 @th,72,8 < 25", "meta nfproto ipv4 @nh,64,8 { 1, 5-64 }",
			"meta l4proto udp @th,64,8 > 3", "udp dport { 53, 80 } @th,96,32 != 0x1000000",
			"ip ttl { 1, 5-64 }", "meta length { 40, 60-80 }",
			"tcp flags & (syn|rst) == 0", "tcp flags & ack != 0", "udp dport != { 53, 80 }",
			"udp dport { 0, 1024-65535 }", "ether type ip", "meta protocol ip6",
			"icmpv6 type . icmpv6 code { 1 . 0, 128 . 1 }", "iif \"eth0\"",
			"ip saddr != { 192.0.2.0/30, 10.1.0.0/16 }", "ip6 saddr @nets6",
			"ip dscp != { ef, 1-8 }", "ip protocol . ip ttl { tcp . 64, udp . 5 }",
			"tcp sport . tcp dport { 0-1024 . 22, 80 . 0-100 }", "notrack", "log prefix \"x\"",
			"dccp dport 22", "udplite sport 80")
	}
	rule := func(verdicts ...string) string {
		r := term()
		if more := term(); rnd.IntN(2) == 0 && layers(r, more) {
			r += " " + more
		}
		return r + " " + pick(rnd, verdicts...) + "\n"
	}
	var b strings.Builder
	b.WriteString("table inet filter {\nset nets { type ipv4_addr; flags interval; elements = { " +
		"10.0.0.0/9, 192.0.2.6/31 }; }\nset ports { type inet_service; flags interval; elements " +
		"= { 21-22, 53, 79-80, 443, 1024, 8080 }; }\n" +
		"map m { type inet_service : verdict; elements = { 21 : drop, 22 : accept, 53 : jump " +
		"one, 80 : goto two, 443 : return, 1024-8080 : continue }; flags interval; }\n" +
		"set seen4 { type ipv4_addr; flags dynamic; size 65535; }\nset seen6 { type ipv6_addr; " +
		"flags dynamic,timeout; size 65535; }\nset seenp { type inet_service; flags dynamic; " +
		"size 65535; }\n" +
		"set pairs { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/29 . " +
		"53, 10.0.0.0/8 . 0-1023 }; }\nset nets6 { type ipv6_addr; flags interval; auto-merge; " +
		"elements = { 2001:db8:aaaa::/65, 2001:db8:aaaa:0:8000::/65, " +
		"2001:db8:bbbb::1-2001:db8:bbbb::6 }; }\n")
	chain := func(name string, n int, verdicts ...string) {
		b.WriteString("chain " + name + " {\n")
		for range n {
			b.WriteString(rule(verdicts...))
		}
		b.WriteString("}\n")
	}
	chain("two", 3, "accept", "drop", "return")
	chain("one", 4, "accept", "drop", "return", "jump two", "goto two")
	fmt.Fprintf(&b, "chain early { type filter hook input priority -10; policy accept;\n%s%s}\n",
		rule("drop", "accept"), rule("drop", "accept"))
	fmt.Fprintf(&b, "chain input { type filter hook input priority 0; policy %s;\n",
		pick(rnd, "accept", "drop"))
	for i := range 12 {
		b.WriteString(rule("accept", "drop", "jump one", "goto two", "return", "counter",
			"jump two"))
		if i == 5 {
			b.WriteString(pick(rnd, "tcp dport vmap @m\n", "udp sport vmap @m\n",
				"ip saddr vmap { 192.0.2.1 : drop, 192.0.2.2 : jump one, 10.0.0.0/8 : accept }\n",
				"ip saddr . tcp dport vmap { 192.0.2.1 . 22 : drop, 192.0.2.0/28 . 80-443 : "+
					"accept, 10.0.0.0/8 . 53 : jump one }\n",
				"icmp type vmap { echo-request : jump two, echo-reply : continue, 3-7 : drop }\n",
				"meta protocol vmap { ip : jump one, ip6 : goto two }\n",
				"iifname vmap { lo : accept, eth0 : jump two }\n",
				"meta l4proto . th sport vmap { tcp . 21 : drop, udp . 0-80 : return }\n"))
		}
	}
	return b.String() + "}\n}\n"
}

// layers tells whether nft takes two terms in one rule: it refuses those of two protocols.
func layers(a, b string) bool {
	three := func(s string) string {
		if _, elem, ok := strings.Cut(s, "{ "); ok && strings.HasPrefix(s, "add @") ||
			strings.HasPrefix(s, "update @") {
			s = elem
		}
		switch w, _, _ := strings.Cut(s, " "); {
		case strings.Contains(s, "protocol ip6"):
			return "ip6"
		case strings.Contains(s, "ether type ip"), strings.Contains(s, "set ip saddr"),
			strings.Contains(s, ". ip saddr {"):
			return "ip"
		case strings.HasPrefix(w, "icmpv6"), w == "ip6", strings.Contains(s, "nfproto ipv6"):
			return "ip6"
		case w == "ip", w == "icmp":
			return "ip"
		}
		return ""
	}
	four := func(s string) (found string) {
		if strings.Contains(s, "l4proto") || strings.Contains(s, "ip protocol") ||
			strings.Contains(s, "th dport") {
			return "another"
		}
		for _, w := range strings.Fields(s) {
			switch w {
			case "tcp", "udp", "sctp", "dccp", "udplite", "icmp", "icmpv6":
				if found != "" && found != w {
					return "another"
				}
				found = w
			}
		}
		return found
	}
	x, y := three(a), three(b)
	if x != "" && y != "" && x != y {
		return false
	}
	x, y = four(a), four(b)
	return x == "" || y == "" || x == y && x != "another"
}

// randomIPTables is the same for iptables-restore.
func randomIPTables(rnd *rand.Rand, six bool, others []string) string {
	terms := []string{"-p tcp -m tcp --dport 22", "-p tcp -m tcp ! --dport 80",
		"-p udp -m udp --sport 1024:65535", "-p tcp -m multiport --dports 22,80,443",
		"-p udp -m multiport ! --ports 53,80",
		"-p udp -m multiport --ports 53,80", "-p tcp -m tcp --syn",
		"-p tcp -m tcp ! --tcp-flags SYN,ACK SYN", "-p tcp -m tcp --tcp-flags ALL NONE",
		"-m length --length 60:100", "-m length ! --length 0:60",
		"-m dscp --dscp 46", "-m dscp ! --dscp 0", "-p tcp", "! -p udp", "-p gre", "-i eth0",
		"! -i eth0", "-i lo", "-p sctp -m sctp --dport 22", "-m mac --mac-source 02:00:00:00:00:01",
		"-p tcp -m multiport --sports 0:80,1023,1024:65535",
		"-p udp -m multiport --dports 0,21:22,53",
		"-p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG FIN,PSH,URG",
		"-p tcp -m tcp ! --tcp-flags ALL ALL", "-m dscp --dscp-class CS1",
		"-m pkttype ! --pkt-type broadcast",
		"-p 253", "! -p sctp", "-p udp -m udp ! --sport 1:65535", "-m comment --comment ipv6-icmp"}
	if six {
		terms = append(terms, "-m set --match-set six src", "-m set ! --match-set six src",
			"-m addrtype --dst-type LOCAL", "-m set --match-set low dst", "-s 2001:db8:aaaa::/64",
			"! -s 2001:db8:aaaa::/64", "-m iprange --src-range 2001:db8:bbbb::1-2001:db8:bbbb::9",
			"-p ipv6-icmp -m icmp6 --icmpv6-type 128",
			"-p ipv6-icmp -m icmp6 ! --icmpv6-type 1/1", "-m hl --hl-lt 5", "-m hl ! --hl-eq 255")
	} else {
		terms = append(terms, "-s 192.0.2.0/29", "! -s 10.0.0.0/8", "-s 192.0.2.8/30",
			"-m iprange --src-range 192.0.2.3-192.0.2.9",
			"-m iprange ! --src-range 192.0.2.3-192.0.2.9", "-p icmp -m icmp --icmp-type 8",
			"-p icmp -m icmp ! --icmp-type 3/1", "-m ttl --ttl-lt 5", "-m ttl --ttl-gt 5",
			"-m set --match-set nets src", "-m set ! --match-set nets src",
			"-m set --match-set svc src,dst",
			"-p tcp -m set --match-set low dst", "-p udp -m set ! --match-set low dst", "-f",
			"-m set --match-set pn src,dst", "-m set --match-set said src",
			"-m set ! --match-set bits src", "-m set --match-set masked src",
			"-m set --match-set both src", "-m set ! --match-set said src --update-counters",
			"-m set --match-set three src,dst,dst", "-m addrtype --dst-type LOCAL",
			"-m addrtype ! --dst-type LOCAL", "-m addrtype --dst-type MULTICAST",
			"-m tos --tos 0x20/0xfc", "-m iprange --dst-range 0.0.0.1-255.255.255.254",
			"-m set ! --match-set low dst", "-p icmp -m icmp --icmp-type any",
			"! -f -p udp -m udp --dport 53")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:INPUT %s [0:0]\n:one - [0:0]\n:two - [0:0]\n",
		pick(rnd, "ACCEPT", "DROP"))
	add := func(chain string, n int, verdicts ...string) {
		for range n {
			t := pick(rnd, terms...)
			if len(others) > 0 && rnd.IntN(3) == 0 {
				t = pick(rnd, others...)
			}
			if extra := pick(rnd, terms[9:]...); rnd.IntN(2) == 0 &&
				!(strings.Contains(t, "-p ") && strings.Contains(extra, "-p ")) &&
				!clash(t, extra) {
				t += " " + extra
			}
			fmt.Fprintf(&b, "-A %s %s %s\n", chain, t, pick(rnd, verdicts...))
		}
	}
	add("INPUT", 14, "-j ACCEPT", "-j DROP", "-j one", "-g two", "-j two", "-j RETURN", "")
	add("one", 4, "-j ACCEPT", "-j DROP", "-j RETURN", "-j two", "-g two")
	add("two", 3, "-j ACCEPT", "-j DROP", "-j RETURN")
	return b.String() + "COMMIT\n"
}

// clash tells whether both ask for the same option, which iptables takes once.
func clash(a, b string) bool {
	seen := map[string]bool{}
	for _, w := range strings.Fields(a) {
		seen[w] = strings.HasPrefix(w, "-")
	}
	for _, w := range strings.Fields(b) {
		if seen[w] {
			return true
		}
	}
	return false
}

// compareImport compares what random rules of iptables are imported as with the kernel that has
// them.
func (k *kernelSide) compareImport(t *testing.T, rnd *rand.Rand, in []importer.Source,
	rules string) {
	t.Helper()
	var out bytes.Buffer
	_, err := iptables.Import(in, &out, importer.Rulesets{Device: "eth0"})
	if err != nil && strings.Contains(err.Error(), "chains copied into one another") {
		// random returns are worse than those of people; TestCopiesAreBounded is about this
		t.Log(err)
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, rules)
	}
	k.compare(rnd, out.Bytes(), rules)
}
