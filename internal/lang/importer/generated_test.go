package importer_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/lang/importer"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/packet"
)

// watcher notes each packet that arrives, before any rule, and each that the rules let through, to
// the machine or on. What the machine answers by itself does not leave: no connection is known but
// those of beginnings.
const watcher = `table netdev watcher {
	set in4 { typeof ip id; flags dynamic; size 65535; }
	set in6 { typeof ip6 flowlabel; flags dynamic; size 65535; }
	chain first { type filter hook ingress device "eth0" priority -500; add @in4 { ip id }; add @in6 { ip6 flowlabel }; }
}
table inet observer {
	set ok4 { typeof ip id; flags dynamic; size 65535; }
	set ok6 { typeof ip6 flowlabel; flags dynamic; size 65535; }
	chain last { type filter hook input priority 500; add @ok4 { ip id }; add @ok6 { ip6 flowlabel }; }
	chain on { type filter hook forward priority 500; add @ok4 { ip id }; drop; }
	chain mute { type filter hook output priority -500; tcp flags & rst == rst drop; icmp type != echo-request drop; icmpv6 type { 1-4, 129, 137 } drop; }
}
`

// own are addresses of the machine beside those of its interface.
var own = []netip.Addr{netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("2001:db8:5::10")}

// answerable are packets that inner has sent, which make connections known.
type answerable struct{ sent, answer []byte }

// begin has the machine begin exchanges with a few of the addresses that rules name.
func (k *kernelSide) begin(rnd *rand.Rand) (out []answerable) {
	d := k.inner.Device("eth0")
	for i := range 24 {
		self, peer := d.IPv4.Addr(), netip.MustParseAddr("192.0.2.3")
		from := k.near.from4
		if i%3 == 0 {
			self, peer, from = d.IPv6.Addr(), netip.MustParseAddr("2001:db8:aaaa::1"), k.near.from6
		}
		if len(from) > 0 && rnd.IntN(2) == 0 {
			peer = from[rnd.IntN(len(from))]
		}
		port := ports[1+rnd.IntN(len(ports)-1)]
		if len(k.near.numbers) > 0 && rnd.IntN(2) == 0 {
			port = max(1, k.near.numbers[rnd.IntN(len(k.near.numbers))])
		}
		local := uint16(40000 + i)
		sent := packet.Spec{From: self, To: peer, FromPort: &local, ToPort: &port,
			EtherFrom: new([6]byte(d.MAC))}
		answer := packet.Spec{From: peer, To: self, FromPort: &port, ToPort: &local,
			EtherTo: new([6]byte(d.MAC))}
		switch i % 4 {
		case 0, 1:
			sent.Proto, answer.Proto = new(uint8(17)), new(uint8(17))
		case 2:
			sent.Flags, answer.Flags = new(uint8(packet.SYN)), new(uint8(packet.SYN|packet.ACK))
			answer.Set("ack-number", 1)
		case 3:
			sent.FromPort, sent.ToPort, answer.FromPort, answer.ToPort = nil, nil, nil, nil
			sent.Type, answer.Type = new(uint8(8)), new(uint8(0))
			if self.Is6() {
				sent.Type, answer.Type = new(uint8(128)), new(uint8(129))
			}
			sent.Set("icmp-id", uint64(local))
			answer.Set("icmp-id", uint64(local))
		}
		a := answerable{build(k.t, sent), build(k.t, answer)}
		if i%5 == 4 { // what the way says of it
			fault := packet.Spec{From: peer, To: self, EtherTo: new([6]byte(d.MAC)),
				Type: new(pick(rnd, uint8(3), 11)), Code: 1, Payload: a.sent[14:]}
			if self.Is6() {
				fault.Type = new(pick(rnd, uint8(1), 3))
			}
			a.answer = build(k.t, fault)
		}
		out = append(out, a)
		if i%4 == 2 && i%5 != 4 { // data of the connection
			answer.Flags = new(uint8(0x18))
			answer.Set("seq", 1)
			out = append(out, answerable{answer: build(k.t, answer)})
		}
	}
	return out
}

// halves are the fragments of a datagram of UDP, or nothing where it is too short.
func halves(frame []byte) (first, second []byte) {
	eth, ip := frame[:14], frame[14:]
	head := 20
	if ip[0]>>4 == 6 {
		head = 40
	}
	const part = 16
	if ip[0] != 0x45 && ip[0]>>4 == 4 || len(ip) <= head+part || ip[0]>>4 == 4 && ip[9] != 17 ||
		ip[0]>>4 == 6 && ip[6] != 17 {
		return nil, nil
	}
	cut := func(from, to, offset int, more bool) []byte {
		out := slices.Concat(eth, ip[:head])
		if head == 20 {
			binary.BigEndian.PutUint16(out[16:], uint16(head+to-from))
			flag := map[bool]uint16{true: 0x2000}[more]
			binary.BigEndian.PutUint16(out[20:], uint16(offset/8)|flag)
			number(out, false, binary.BigEndian.Uint16(ip[4:]))
		} else {
			binary.BigEndian.PutUint16(out[18:], uint16(8+to-from))
			out[20] = 44
			out = append(out, 17, 0, byte(offset>>8), byte(offset&0xf8), 0, 0, ip[2], ip[3])
			if more {
				out[len(out)-5] |= 1
			}
		}
		return append(out, ip[head+from:head+to]...)
	}
	body := len(ip) - head
	return cut(0, part, 0, true), cut(part, body, part, false)
}

func build(t *testing.T, s packet.Spec) []byte {
	t.Helper()
	b, err := packet.Build(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return b
}

// aimed is a packet near what the rules ask for: their addresses and numbers, and those beside
// them.
func (k *kernelSide) aimed(rnd *rand.Rand, i int) []byte {
	b := k.packet(rnd, i)
	ip := b[14:]
	six := ip[0]>>4 == 6
	d := k.inner.Device("eth0")
	to := pick(rnd, d.IPv4.Addr(), d.IPv4.Addr(), own[0])
	at, n := 16, 4
	if six {
		to, at, n = pick(rnd, d.IPv6.Addr(), d.IPv6.Addr(), own[1]), 24, 16
	}
	mac := [6]byte(d.MAC)
	if rnd.IntN(16) == 0 {
		switch c := rnd.IntN(3); {
		case six:
			to, mac = netip.MustParseAddr("ff02::1"), [6]byte{0x33, 0x33, 0, 0, 0, 1}
		case c == 0:
			to, mac = netip.MustParseAddr("224.0.0.1"), [6]byte{1, 0, 0x5e, 0, 0, 1}
		case c == 1:
			to, mac = netip.MustParseAddr("255.255.255.255"), [6]byte{255, 255, 255, 255, 255, 255}
		default:
			to, mac = netip.MustParseAddr("198.18.0.255"), [6]byte{255, 255, 255, 255, 255, 255}
		}
	}
	if at := at - n; slices.Equal(ip[at:at+n], own[0].AsSlice()) ||
		slices.Equal(ip[at:at+n], own[1].AsSlice()) { // a forger's
		ip[at+n-1]++
		checksum(ip, []byte{0, ip[at+n-1] - 1}, []byte{0, ip[at+n-1]})
	}
	copy(b, mac[:])
	old := slices.Clone(ip[at : at+n])
	copy(ip[at:], to.AsSlice())
	checksum(ip, old, to.AsSlice())
	if !six {
		number(b, six, uint16(k.round+i+1))
	}
	return b
}

// checksum brings the checksum of what is above IP up to date, where one address has changed (RFC
// 1624).
func checksum(ip, old, is []byte) {
	proto, at := ip[9], int(ip[0]&15)*4
	if ip[0]>>4 == 6 {
		proto, at = ip[6], 40
	}
	switch proto {
	case 6:
		at += 16
	case 17:
		at += 6
	case 58:
		at += 2
	default:
		return
	}
	sum := uint32(^binary.BigEndian.Uint16(ip[at:]))
	for i := 0; i < len(old); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(old[i:])) + uint32(binary.BigEndian.Uint16(is[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[at:], ^uint16(sum))
}

// judged is verdicts of frames that may be dropped before they come to INPUT.
func (k *kernelSide) judged(frames [][]byte) map[int]bool {
	k.t.Helper()
	got := map[int]bool{}
	for range 5 {
		k.send(frames, got)
		if got = k.arrived(len(frames)); len(got) == len(frames) {
			break
		}
	}
	k.passed(got)
	return got
}

// local is a condition that takes the broadcasts of networks for the machine's addresses, which an
// import says.
var local = regexp.MustCompile(`dst-type LOCAL|fib daddr type`)

// toNetwork tells of a frame to all in a network.
func toNetwork(frame []byte) bool {
	return frame[14]>>4 == 4 && [4]byte(frame[30:34]) == [4]byte{198, 18, 0, 255}
}

// sameFlow tells of two segments whether they have the same ends.
func sameFlow(a, b []byte) bool {
	x, y := a[14:], b[14:]
	if x[0] != y[0] {
		return false
	}
	from, to := 12, int(x[0]&15)*4
	if x[0]>>4 == 6 {
		from, to = 8, 40
	}
	return bytes.Equal(x[from:to], y[from:to]) && bytes.Equal(x[to:to+4], y[to:to+4])
}

// stateful tells of rules that ask for the states of connections.
var stateful = regexp.MustCompile(`--(ct)?state |\bct `)

// translates tells of rules that send packets elsewhere.
var translates = regexp.MustCompile(`203\.0\.113\.99|REDIRECT | redirect `)

// ttlOf returns the time to live of a frame of IPv4, and 0 of others.
func ttlOf(frame []byte) byte {
	if frame[14]>>4 != 4 {
		return 0
	}
	return frame[22]
}

// sctp tells of packets of SCTP and DCCP, some of which are INVALID for conntrack.
func sctp(frame []byte) bool {
	ip := frame[14:]
	proto := ip[9]
	if ip[0]>>4 == 6 {
		proto = ip[6]
	}
	return proto == 132 || proto == 33
}

// generated is a rule set of one tool, as it is loaded and as it is imported.
type generated struct {
	source string
	rep    importer.Imported
	policy string
}

// fillSelf puts what the interface delivers into the set self, where a policy has it.
func (k *kernelSide) fillSelf(of ...*oracle.Evaluator) {
	d := k.inner.Device("eth0")
	for _, a := range append(own, d.IPv4.Addr(), d.IPv6.Addr(),
		netip.MustParseAddr("198.18.0.255")) {
		for _, e := range of {
			// one of them may not ask
			_ = e.AddEntry("self", policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen())},
				time.Time{})
		}
	}
}

// agree fails where the kernel and the policy differ, unless the import says so.
func (k *kernelSide) agree(rnd *rand.Rand, g *generated) {
	k.t.Helper()
	k.near = namedIn(g.source)
	mine := func(a netip.Addr) bool { // which the kernel takes for a forger's
		return slices.Contains(own, a) || netip.MustParsePrefix("198.18.0.0/24").Contains(a) ||
			netip.MustParsePrefix("2001:db8::/64").Contains(a)
	}
	k.near.from4 = slices.DeleteFunc(k.near.from4, mine)
	k.near.from6 = slices.DeleteFunc(k.near.from6, mine)
	text := filledIn(g.policy)
	p, diags := resolve.Parse("imported.levee", []byte(text), setfile.None)
	if err := diags.Err(); err != nil {
		k.t.Fatalf("%v\n%s", err, text)
	}
	judge, excuse := oracle.New(p), oracle.New(excused(k.t, text, g.rep))
	for _, s := range p.Sets {
		if s.Self {
			k.fillSelf(judge, excuse)
		}
	}
	outs := k.begin(rnd)
	sent := make([][]byte, len(outs))
	for i, o := range outs {
		sent[i] = o.sent
	}
	k.sendOut(slices.DeleteFunc(sent, func(f []byte) bool { return f == nil }))
	frames := make([][]byte, 600)
	k.second = map[int][]byte{}
	defer func() { k.second = nil }()
	for i := range frames {
		frames[i] = k.aimed(rnd, i)
		if first, second := halves(frames[i]); i%8 == 2 && first != nil &&
			!strings.Contains(g.source, "length") {
			frames[i], k.second[i] = first, second
		}
		if i < 3*len(outs) && i%3 == 0 {
			f := slices.Clone(outs[i/3].answer)
			number(f, f[14]>>4 == 6, uint16(k.round+i+1))
			frames[i] = f
			delete(k.second, i)
		}
	}
	for _, o := range outs {
		if o.sent != nil {
			judge.Leave(o.sent)
			excuse.Leave(o.sent)
		}
	}
	got := k.judged(frames)
	if len(got) < len(frames)*9/10 {
		k.t.Fatalf("%d of %d packets came", len(got), len(frames))
	}
	slots := p.Slots()
	same, wide, narrow := 0, 0, 0
	for i := range frames {
		ok, came := got[i]
		if !came {
			continue
		}
		res := judge.Eval(frames[i])
		pass := res.Action == action.Pass
		second, f := k.second[i] != nil, frames[i]
		if second && pass {
			res = judge.Eval(k.second[i])
			pass = res.Action == action.Pass
		}
		switch {
		case slots[res.Slot].Reason == policy.ByEssential:
		case ok == pass:
			same++
		case ok && second && (!strings.Contains(text, "fragments track") ||
			strings.Contains(text, "drop fragments")): // as a remark says
			narrow++
		case !ok && (ttlOf(f) == 1 || f[0]&1 != 0) &&
			strings.Contains(g.source, "203.0.113.99"):
			// who forwards gives back what has no time left, and drops frames to groups
		case !ok && i < 3*len(outs) && i%3 == 0 && translates.MatchString(g.source):
			// nat leaves answers to what the machine began alone
		case sctp(f) && stateful.MatchString(g.source):
		case !ok && toNetwork(f) && local.MatchString(g.source):
		case !ok && trackedOtherwise(f) && slices.ContainsFunc(frames, func(o []byte) bool {
			return &o[0] != &frames[i][0] && sameFlow(o, f)
		}): // out of the window of the other one's connection
		case ok && (trackedOtherwise(f) || g.rep.Fates.LeftOut > 0 ||
			excuse.Eval(frames[i]).Action == action.Pass):
			narrow++
		case !ok && excuse.Eval(frames[i]).Action == action.Pass:
			wide++
		default:
			k.t.Fatalf("packet %d %x: the kernel passes it: %v, the policy: %v, by line %d (%s)\n"+
				"%s\n%s\n%s\n%s", i, frames[i], ok, pass, slots[res.Slot].Line,
				slots[res.Slot].Name, g.source, strings.Join(g.rep.Passes, "\n"), text, g.rep.Fates)
		}
	}
	k.t.Logf("%d alike, %d wide, %d narrow; %s", same, wide, narrow, g.rep.Fates)
}

// generatedSets returns how many sets are to be written, and from which seed on.
func generatedSets(t *testing.T, few uint64) (n, seed uint64) {
	n, seed = few, 20261130
	for name, v := range map[string]*uint64{"LEVEE_GENERATED": &n, "LEVEE_SEED": &seed} {
		if s := os.Getenv(name); s != "" {
			var err error
			if *v, err = strconv.ParseUint(s, 10, 64); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	return n, seed
}

// TestGeneratedSetsAgreeWithTheKernel writes random sets of rules that look as those of people do,
// of all words that the importers know, loads them, imports what the tools list, and compares the
// verdicts of packets at the edges of the rules. Answers of connections are among the packets.
// LEVEE_GENERATED says how many sets, LEVEE_SEED from where on.
func TestGeneratedSetsAgreeWithTheKernel(t *testing.T) {
	n, seed := generatedSets(t, 2)
	k := newKernelSide(t)
	k.in = [2]string{"netdev watcher in4", "netdev watcher in6"}
	for _, a := range own {
		k.run("", "ip", "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "eth0")
	}
	k.routed()
	k.run("", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	k.run(setsToAsk, "ipset", "restore")
	for i := range n {
		for _, tool := range []string{"iptables", "nft"} {
			t.Run(fmt.Sprintf("%s-%d", tool, seed+i), func(t *testing.T) {
				k.t = t
				rnd := rand.New(rand.NewPCG(seed+i, 0))
				k.run("flush ruleset\n"+watcher, "nft", "-f", "-")
				var g *generated
				if tool == "nft" {
					g = k.generatedNFT(rnd)
				} else {
					g = k.generatedIPTables(rnd)
				}
				if g != nil {
					k.agree(rnd, g)
				}
				if t.Failed() {
					t.Logf("%s\n%s", g.source, g.policy)
				}
				if err := k.inner.Forget(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
