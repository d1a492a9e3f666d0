package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// Rules know a source from the packet on that follows its proof, in whatever it sends, for ten
// minutes. The RST that proves it comes to no rule as that of a source that is proven.
func TestRulesKnowWhoIsProven(t *testing.T) {
	for name, target := range map[string]codegen.Target{"xdp": {}, "several buffers": {Frags: true},
		"tcx": {Hook: codegen.TCX}, "records": {Bytecode: true}} {
		for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
			t.Run(name+"/"+from, func(t *testing.T) {
				target.Trace, target.Clock, target.HZ = true, true, testHZ
				r, p := runnerOf(t, "count tcp flags rst proven\ncookie tcp port 443\n"+
					"pass proven\npass not proven to port 7\ndefault drop\n", target)
				a := &answering{r, t, p.RuleSlot(1), 1 << 33}
				a.pass(0)
				judged := func(what string, s packet.Spec, want int) {
					t.Helper()
					if slot, verdict, _ := a.judge(s); slot != want {
						t.Errorf("%s: %v by slot %d, want %d", what, verdict, slot, want)
					}
				}
				syn := segment(from, packet.SYN)
				all := func(when string, proven bool) {
					t.Helper()
					tcp, udp, later, gre := syn, syn, syn, syn
					tcp.Flags = new(uint8(packet.ACK))
					udp.Flags, udp.Proto = nil, new(uint8(packet.ProtoUDP))
					later.Flags, later.FromPort, later.ToPort = nil, nil, nil
					later.Proto, later.Frag = new(uint8(packet.ProtoUDP)), new(uint16(9))
					gre.Flags, gre.FromPort, gre.ToPort = nil, nil, nil
					gre.Proto = new(uint8(packet.ProtoGRE))
					for what, s := range map[string]packet.Spec{"tcp": tcp, "udp": udp,
						"a later fragment": later, "gre": gre} {
						want := p.DefaultSlot()
						if proven {
							want = p.RuleSlot(2)
						}
						judged(when+", "+what, s, want)
					}
				}
				all("before", false)
				_, _, answer := a.judge(syn)
				if answer == nil {
					t.Fatal("a SYN is not answered")
				}
				rst := reset(syn, answer) // before the next packet is judged
				all("answered", false)
				judged("the RST", rst, a.slot)
				if n := a.Counters()[p.RuleSlot(0)].Packets; n != 0 {
					t.Errorf("%d RSTs came from a source that was proven", n)
				}
				all("proven", true)
				other := syn
				other.Flags, other.Proto = nil, new(uint8(packet.ProtoUDP))
				other.From, other.ToPort = syn.From.Next(), new(uint16(7))
				judged("of another", other, p.RuleSlot(3))
				a.pass(599 * testHZ)
				all("after ten minutes less a second", true)
				a.pass(2 * testHZ)
				all("after ten minutes", false)
			})
		}
	}
}

// A handshake proves its source where rules ask for connections, without any cookie, and its ACK is
// that of a source that is proven.
func TestHandshakesProveWithoutACookie(t *testing.T) {
	r, p := runnerOf(t, "count not established\npass tcp proven\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	a := &answering{r, t, 0, 1 << 33}
	a.pass(0)
	for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
		client := segment(from, packet.ACK)
		server := segment(from, packet.SYN|packet.ACK)
		server.From, server.To, server.FromPort, server.ToPort = client.To, client.From,
			client.ToPort, client.FromPort
		server.Fields = []packet.FieldValue{{Word: "seq", Value: 1000}}
		frame, err := packet.Build(server)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Leave(frame); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			ack  uint64
			want action.Action
		}{{1002, action.Drop}, {1001, action.Pass}, {1002, action.Pass}} {
			client.Fields = []packet.FieldValue{{Word: "ack-number", Value: c.ack}}
			if slot, verdict, _ := a.judge(client); verdict != c.want {
				t.Errorf("%s, number %d: %v by slot %d of %d", from, c.ack, verdict, slot,
					p.DefaultSlot())
			}
		}
	}
}

// Whoever is routed a /64 could prove half a million addresses of it, and so push all others out:
// the newest has a place in any case. Its addresses share a few lines.
func TestOneNetworkPushesNobodyOut(t *testing.T) {
	r, p := runnerOf(t, "cookie tcp port 443\npass proven\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	a := &answering{r, t, p.RuleSlot(0), 1 << 33}
	a.pass(0)
	prove := func(from string) {
		t.Helper()
		syn := segment(from, packet.SYN)
		_, _, answer := a.judge(syn)
		if answer == nil {
			t.Fatalf("the SYN of %s is not answered", from)
		}
		a.judge(reset(syn, answer))
	}
	prove("2001:db8:1::1")
	for i := range 400 {
		prove(fmt.Sprintf("2001:db8:bad::%x:%x", i*7919&0xffff, i))
	}
	memory, err := store.CopyOfMap(a.Loaded.Holding(state.HoldsCookies))
	if err != nil {
		t.Fatal(err)
	}
	s := cookie.Read(memory, a.now)
	if s.Sources > 129 || s.Sources < 100 || s.Evicted < 270 {
		t.Errorf("%d sources, %d evicted: those of one /64 have 128 places", s.Sources, s.Evicted)
	}
	syn := segment("2001:db8:1::1", packet.SYN)
	if slot, _, _ := a.judge(syn); slot != p.RuleSlot(1) {
		t.Errorf("another client is not proven any more")
	}
}

// An address whose neighbour is proven is not, wherever in its lower half they differ.
func TestNeighboursAreNotProven(t *testing.T) {
	r, p := runnerOf(t, "cookie tcp port 443\npass proven\ndefault drop\n",
		codegen.Target{Trace: true, Clock: true, HZ: testHZ})
	a := &answering{r, t, p.RuleSlot(0), 1 << 33}
	a.pass(0)
	from := netip.MustParseAddr("2001:db8:1::1")
	syn := segment(from.String(), packet.SYN)
	_, _, answer := a.judge(syn)
	a.judge(reset(syn, answer))
	if slot, _, _ := a.judge(syn); slot != p.RuleSlot(1) {
		t.Fatal("who has proven itself is not")
	}
	for bit := range 64 {
		neighbour := from.As16()
		neighbour[8+bit/8] ^= 0x80 >> (bit % 8)
		syn.From = netip.AddrFrom16(neighbour)
		if slot, _, _ := a.judge(syn); slot != p.RuleSlot(0) {
			t.Errorf("%v is proven by %v", syn.From, from)
		}
	}
}

// Who is proven stays so over a replace by a policy that has no cookie and asks. A shadow finds
// those whom the policy in force knows.
func TestProvenClientsGoOnOverAReplaceAndBesideAShadow(t *testing.T) {
	newTestNet(t)
	s := &stateTest{T: t}
	const beside = "count udp proven as \"beside\"\npass established\ndefault pass\n"
	upText(t, "lv0", store.XDPNative, "cookie tcp port 443\ndefault pass\n")
	shadowUp(t, beside, "lv0")
	asked := func(want string) {
		t.Helper()
		s.judge(udpTo(9))
		a := status(t)
		got := fmt.Sprintf("in force %s, %s; beside", counter(&a, "known"), counter(&a, "beside"))
		if a.Shadow != nil {
			got += " " + countOf(a.Shadow.Rules, "beside")
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	asked("in force , ; beside 0 packets")
	s.prove()
	asked("in force , ; beside 1 packets")
	upText(t, "lv0", store.XDPNative, "count udp proven as \"known\"\ndefault pass\n")
	asked("in force 1 packets, ; beside 2 packets")
	upText(t, "lv0", store.XDPNative, beside)
	asked("in force , 3 packets; beside")
	if c := status(t).Cookies; c == nil || c.Sources != 1 {
		t.Errorf("status tells of proven clients: %+v", c)
	}
	upText(t, "lv0", store.XDPNative, "default pass\n")
	upText(t, "lv0", store.XDPNative, beside)
	asked("in force , 0 packets; beside")
}

// BenchmarkProven measures the time of a packet above an empty program whose source is looked for
// among the proven ones: one that is proven, many in turn, and none; and by a policy that does not
// ask.
func BenchmarkProven(b *testing.B) {
	const many = 100_000
	asks := benchRunner(b, "cookie tcp port 443\npass udp proven\ndefault drop\n")
	memory, err := store.MapMemory(asks.Loaded.Holding(state.HoldsCookies), cookie.Size)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(memory)
	now, _, err := kernel.Jiffies()
	if err != nil {
		b.Fatal(err)
	}
	for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
		datagrams := func(first, n uint32) (frames [][]byte) {
			s := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), FromPort: new(uint16(40000)),
				ToPort: new(uint16(27015)), From: netip.MustParseAddr("10.0.0.0"),
				To: netip.MustParseAddr("198.51.100.1")}
			source := 26 // the lower 32 bits of the address, in the frame
			if family == packet.IPv6 {
				s.From, s.To = netip.MustParseAddr("2a00::"), netip.MustParseAddr("2001:db8::1")
				source = 34
			}
			f, err := packet.Build(s)
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				f := append([]byte(nil), f...)
				binary.BigEndian.PutUint32(f[source:], 10<<24|first+uint32(uint64(i)*7919%many))
				frames = append(frames, f)
			}
			return frames
		}
		var known []netip.Addr
		for _, f := range datagrams(0, many) {
			var p packet.Packet
			packet.Decode(f, &p)
			known = append(known, p.Src)
		}
		cookie.Prove(memory, known, now)
		for _, c := range []struct {
			name     string
			first, n uint32
		}{{"proven", 0, 1}, {"proven, 100,000 in turn", 0, many}, {"not proven", 1 << 20, 1},
			{"not proven, 100,000 in turn", 1 << 20, many}} {
			b.Run(fmt.Sprint(family, "/", c.name), func(b *testing.B) {
				benchFrames(b, asks, datagrams(c.first, c.n))
			})
		}
		b.Run(fmt.Sprint(family, "/not asked"), func(b *testing.B) {
			r := benchRunner(b, "cookie tcp port 443\npass udp port 1\ndefault drop\n")
			benchFrames(b, r, datagrams(0, 1))
		})
	}
}
