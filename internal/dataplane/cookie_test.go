package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/cookie"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// answering is a policy with a cookie for port 443, in the kernel, with a clock of its own.
type answering struct {
	*loader.Runner
	t    testing.TB
	slot int
	now  uint64 // jiffies
}

func newAnswering(t testing.TB, above string, target codegen.Target) *answering {
	t.Helper()
	target.Trace, target.Clock, target.HZ = true, true, testHZ
	r, p := runnerOf(t, "cookie tcp port 443"+above+"\ncookie tcp port 444\npass tcp\n"+
		"default drop\n", target)
	a := &answering{r, t, p.RuleSlot(0), 1 << 33}
	a.pass(0)
	return a
}

// within is a for a part of its test.
func (a *answering) within(t *testing.T) *answering {
	return &answering{a.Runner, t, a.slot, a.now}
}

func (a *answering) pass(jiffies uint64) {
	a.now += jiffies
	a.SetClock(a.now)
}

// judge judges a packet and returns the answer, nil if there is none.
func (a *answering) judge(s packet.Spec) (slot int, verdict action.Action, answer []byte) {
	a.t.Helper()
	frame, err := packet.Build(s)
	if err != nil {
		a.t.Fatal(err)
	}
	if len(frame) < 60 {
		frame = append(frame, make([]byte, 60-len(frame))...)
	}
	slot, verdict, err = a.Eval(frame)
	if err != nil {
		a.t.Fatal(err)
	}
	return slot, verdict, a.Answer()
}

func segment(from string, flags uint8) packet.Spec {
	proto, s := uint8(packet.ProtoTCP), packet.Spec{From: netip.MustParseAddr(from), Flags: &flags,
		FromPort: new(uint16(40000)), ToPort: new(uint16(443))}
	s.Proto, s.To = &proto, netip.MustParseAddr("198.51.100.7")
	if s.From.Is6() {
		s.To = netip.MustParseAddr("2001:db8:7::1")
	}
	return s
}

// reset is the RST of a client that has been given an answer.
func reset(s packet.Spec, answer []byte) packet.Spec {
	var p packet.Packet
	packet.Decode(answer, &p)
	s.Flags = new(uint8(packet.RST))
	s.TCPOptions, s.Payload = nil, nil
	s.Fields = []packet.FieldValue{{Word: "seq",
		Value: uint64(binary.BigEndian.Uint32(answer[p.TransportOffset+8:]))}}
	return s
}

// What goes back is the segment of a host that has another connection of these ports (RFC 9293,
// figure 9), to the octet, whatever the SYN looked like.
func TestCookieAnswersLikeAHost(t *testing.T) {
	linux := []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7}
	shapes := map[string]func(*packet.Spec){
		"bare":     func(*packet.Spec) {},
		"options":  func(s *packet.Spec) { s.TCPOptions = linux },
		"data":     func(s *packet.Spec) { s.Payload = bytes.Repeat([]byte("levee"), 200) },
		"ecn":      func(s *packet.Spec) { s.Flags = new(uint8(packet.SYN | 0xc0)) },
		"tag":      func(s *packet.Spec) { s.VLAN = new(uint16(7)) },
		"priority": func(s *packet.Spec) { s.VLAN = new(uint16(0)) },
		"two tags": func(s *packet.Spec) { s.VLAN, s.InnerVLAN = new(uint16(7)), new(uint16(8)) },
		"ip options": func(s *packet.Spec) {
			if s.From.Is6() {
				s.Extensions = []packet.Extension{{Proto: packet.ProtoHopByHop},
					{Proto: packet.ProtoDestOpts, Body: make([]byte, 30)}}
			} else {
				s.IPOptions = make([]byte, 12)
			}
		},
	}
	for name, target := range map[string]codegen.Target{"xdp": {}, "several buffers": {Frags: true},
		"tcx": {Hook: codegen.TCX}} {
		a := newAnswering(t, "", target) // an answer depends on no SYN before
		for shape, change := range shapes {
			for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, shape, from), func(t *testing.T) {
					a := a.within(t)
					s := segment(from, packet.SYN)
					change(&s)
					slot, verdict, answer := a.judge(s)
					if slot != a.slot || verdict != action.Drop || answer == nil {
						t.Fatalf("slot %d %v, answer %x", slot, verdict, answer)
					}
					var p packet.Packet
					packet.Decode(answer, &p)
					at := p.TransportOffset
					want := segment(from, packet.ACK)
					want.From, want.To, want.FromPort, want.ToPort = s.To, s.From, s.ToPort,
						s.FromPort
					want.VLAN, want.InnerVLAN = s.VLAN, s.InnerVLAN
					want.EtherFrom, want.EtherTo = macOf(answer[6:]), macOf(answer)
					want.Fields = []packet.FieldValue{{Word: "window", Value: 65535},
						{Word: "seq", Value: uint64(binary.BigEndian.Uint32(answer[at+4:]))},
						{Word: "ack-number", Value: uint64(binary.BigEndian.Uint32(answer[at+8:]))}}
					if p.Family == packet.IPv4 {
						want.Fields = append(want.Fields, packet.FieldValue{Word: "df", Value: 1})
					}
					frame, err := packet.Build(want)
					if err != nil {
						t.Fatal(err)
					}
					asked, _ := packet.Build(s)
					size := len(frame)
					if target.Hook == codegen.XDP { // it may have to pad what the card does not
						var syn packet.Packet
						packet.Decode(asked, &syn)
						less := syn.TransportOffset - at
						size = max(size, min(60, max(60, len(asked))-less))
					}
					if len(answer) != size || !bytes.Equal(answer[:len(frame)], frame) {
						t.Errorf("answered\n%x, want %d bytes,\n%x", answer, size, frame)
					}
					if !bytes.Equal(answer[:6], asked[6:12]) ||
						!bytes.Equal(answer[6:12], asked[:6]) {
						t.Errorf("the answer goes to %x from %x", answer[:6], answer[6:12])
					}
				})
			}
		}
	}
}

func macOf(b []byte) *[6]byte { m := [6]byte(b); return &m }

// A client proves itself once; forged numbers prove nothing.
func TestCookieProvesClients(t *testing.T) {
	for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
		a := newAnswering(t, "", codegen.Target{})
		s := segment(from, packet.SYN)
		_, _, answer := a.judge(s)
		rst := reset(s, answer)
		for _, wrong := range []int{-1, 1, 1 << 16} {
			w := rst
			w.Fields = []packet.FieldValue{{Word: "seq",
				Value: uint64(uint32(int(rst.Fields[0].Value) + wrong))}}
			if slot, verdict, _ := a.judge(w); slot == a.slot || verdict != action.Pass {
				t.Errorf("an RST with another number: slot %d, %v", slot, verdict)
			}
		}
		other := rst
		other.FromPort = new(uint16(40001))
		a.judge(other)
		if _, _, answer := a.judge(s); answer == nil {
			t.Fatal("forged numbers have proven the client")
		}
		a.pass(64 * testHZ)
		if slot, verdict, _ := a.judge(rst); slot != a.slot || verdict != action.Drop {
			t.Errorf("the RST of the client: slot %d, %v", slot, verdict)
		}
		if slot, verdict, answer := a.judge(s); verdict != action.Pass || answer != nil {
			t.Errorf("the SYN of a client that is proven: slot %d, %v", slot, verdict)
		}
		a.pass(^uint64(0)) // another CPU, whose clock is a tick behind
		if _, verdict, answer := a.judge(s); verdict != action.Pass || answer != nil {
			t.Errorf("a tick before the proof: %v", verdict)
		}
		a.pass(1)
		a.pass(601 * testHZ)
		if _, _, answer := a.judge(s); answer == nil {
			t.Error("a proof has not ended after ten minutes")
		}
		a.pass(129 * testHZ)
		if slot, _, _ := a.judge(rst); slot == a.slot {
			t.Error("a number proves a client after more than 128 seconds")
		}
	}
}

// The number that a client is given proves no other source, and none at another destination: who
// has one machine could prove any forged source else.
func TestCookieProvesItsOwnSourceAlone(t *testing.T) {
	for _, to := range []struct{ from, other, elsewhere string }{
		{"192.0.2.9", "192.0.2.10", "198.51.100.8"},
		{"192.0.2.9", "193.0.2.9", "198.51.100.8"},
		{"2001:db8::9", "2001:db8::a", "2001:db8:7::2"},
		{"2001:db8::9", "2001:db9::9", "2001:db8:7::2"},
	} {
		a := newAnswering(t, "", codegen.Target{})
		s := segment(to.from, packet.SYN)
		_, _, answer := a.judge(s)
		forged := reset(s, answer)
		forged.From = netip.MustParseAddr(to.other)
		if slot, verdict, _ := a.judge(forged); slot == a.slot || verdict != action.Pass {
			t.Errorf("an RST of %s with the number of %s: slot %d, %v", to.other, to.from, slot,
				verdict)
		}
		if _, _, answer := a.judge(segment(to.other, packet.SYN)); answer == nil {
			t.Errorf("the number of %s has proven %s", to.from, to.other)
		}
		elsewhere := reset(s, answer)
		elsewhere.To = netip.MustParseAddr(to.elsewhere)
		if slot, _, _ := a.judge(elsewhere); slot == a.slot {
			t.Errorf("an RST to %s with the number for %v proves %s", to.elsewhere, s.To, to.from)
		}
	}
}

// Sources that are known to be there need no proof, and lose it after ten minutes like others.
func TestCookieOfSourcesProvenByHand(t *testing.T) {
	a := newAnswering(t, "", codegen.Target{})
	memory, err := store.MapMemory(a.Loaded.Holding(state.HoldsCookies), cookie.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	var known []netip.Addr
	for i := range 2000 {
		known = append(known, netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)}),
			netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 6: byte(i >> 8), 7: byte(i), 15: 1}))
	}
	cookie.Prove(memory, known, a.now)
	if n := cookie.Read(memory, a.now).Sources; n != len(known) {
		t.Errorf("%d sources are proven of %d", n, len(known))
	}
	answered := func(from netip.Addr) bool {
		_, _, answer := a.judge(segment(from.String(), packet.SYN))
		return answer != nil
	}
	for _, from := range known {
		if answered(from) {
			t.Fatalf("the SYN of %v was answered", from)
		}
	}
	if !answered(netip.MustParseAddr("198.18.0.1")) || !answered(netip.MustParseAddr("2001::1")) {
		t.Error("a source that is not known was not answered")
	}
	a.pass(601 * testHZ)
	if !answered(known[0]) || !answered(known[1]) {
		t.Error("a proof has not ended after ten minutes")
	}
}

// A SYN to or from more than one host, or none, is answered by nobody (RFC 9293 section 3.9.2.3,
// RFC 1122 section 4.2.3.10): one frame to all of a network would have every machine with a cookie
// answer the source that it forges.
func TestCookieAnswersOneHostAlone(t *testing.T) {
	addresses := []string{"224.0.0.1", "239.1.2.3", "255.255.255.255", "0.0.0.0", "0.1.2.3",
		"127.0.0.1", "ff02::1", "::", "::1"}
	var specs []packet.Spec
	for _, a := range addresses {
		of, from := netip.MustParseAddr(a), "192.0.2.9"
		if of.Is6() {
			from = "2001:db8::9"
		}
		s := segment(from, packet.SYN)
		s.To = of
		specs = append(specs, s)
		s = segment(from, packet.SYN)
		s.From = of
		specs = append(specs, s)
	}
	for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
		for _, mac := range [][6]byte{{255, 255, 255, 255, 255, 255}, {0x33, 0x33, 0, 0, 0, 1}} {
			s := segment(from, packet.SYN)
			s.EtherTo = &mac
			specs = append(specs, s)
			s = segment(from, packet.SYN)
			s.EtherFrom = &mac
			specs = append(specs, s)
		}
	}
	for _, target := range []codegen.Target{{}, {Hook: codegen.TCX}} {
		a := newAnswering(t, "", target)
		for _, s := range specs {
			if slot, verdict, answer := a.judge(s); slot != a.slot || verdict != action.Drop ||
				answer != nil {
				t.Errorf("from %v to %v, Ethernet %v to %v: slot %d, %v, answer %x", s.From, s.To,
					s.EtherFrom, s.EtherTo, slot, verdict, answer)
			}
		}
		for _, from := range []string{"240.0.0.1", "126.0.0.1", "223.1.1.1", "fe80::1", "::2"} {
			if _, _, answer := a.judge(segment(from, packet.SYN)); answer == nil {
				t.Errorf("a SYN from %s is not answered", from)
			}
		}
	}
}

// A SYN with FIN or RST begins a connection with stacks that look at the SYN first. It passed a
// cookie, which looked for the SYN alone.
func TestNoSYNPassesACookieForAnotherFlag(t *testing.T) {
	for _, target := range []codegen.Target{{}, {Hook: codegen.TCX}} {
		a := newAnswering(t, "", target)
		for _, from := range []string{"192.0.2.9", "2001:db8::9"} {
			for _, more := range []uint8{packet.FIN, packet.RST, packet.FIN | packet.RST,
				packet.FIN | packet.PSH | packet.URG} {
				slot, verdict, answer := a.judge(segment(from, packet.SYN|more))
				if slot != a.slot || verdict != action.Drop || answer != nil {
					t.Errorf("a SYN with flags %#x: slot %d, %v, answer %x", more, slot, verdict,
						answer)
				}
			}
			for _, flags := range []uint8{packet.ACK, packet.SYN | packet.ACK, packet.FIN,
				packet.RST | packet.ACK, 0} {
				if slot, _, _ := a.judge(segment(from, flags)); slot == a.slot {
					t.Errorf("a cookie decides a segment with flags %#x", flags)
				}
			}
		}
	}
}

// Answers begin above the rate, and end two seconds after it.
func TestCookieAboveARate(t *testing.T) {
	a := newAnswering(t, " above 100/s", codegen.Target{})
	answers := func(n int) (answers int) {
		for i := range n {
			s := segment("192.0.2.9", packet.SYN)
			s.FromPort = new(uint16(1000 + i))
			if _, _, answer := a.judge(s); answer != nil {
				answers++
			}
		}
		return answers
	}
	if n := answers(100); n != 0 {
		t.Errorf("%d answers to 100 SYNs at 100/s", n)
	}
	a.pass(testHZ)
	if n := answers(150); n != 50 {
		t.Errorf("%d answers to 150 SYNs in a second at 100/s", n)
	}
	a.pass(testHZ + 10)
	if n := answers(10); n != 10 {
		t.Errorf("%d of 10 SYNs answered a second after a flood", n)
	}
	a.pass(2 * testHZ)
	if n := answers(10); n != 0 {
		t.Errorf("%d of 10 SYNs answered three seconds after a flood", n)
	}
}

// Of RSTs with numbers in no order none proves a client: one in 2^31 would.
func TestCookieRefusesForgedResets(t *testing.T) {
	a := newAnswering(t, "", codegen.Target{})
	s := segment("192.0.2.9", packet.SYN)
	a.judge(s)
	rst := segment("192.0.2.9", packet.RST)
	frame, err := packet.Build(rst)
	if err != nil {
		t.Fatal(err)
	}
	frame = append(frame, make([]byte, 6)...)
	r := rand.New(rand.NewPCG(1, 2))
	n := 1 << 20
	if testing.Short() {
		n = 1 << 14
	}
	for range n {
		binary.BigEndian.PutUint32(frame[14+20+4:], r.Uint32())
		if slot, _, err := a.Eval(frame); err != nil || slot == a.slot {
			t.Fatalf("slot %d, %v", slot, err)
		}
	}
	if _, _, answer := a.judge(s); answer == nil {
		t.Error("forged RSTs have proven a client")
	}
}

// Right after a boot, and every 50 days, the lower half of jiffies is about to begin anew: places
// that nobody has had are none that are proven, and proofs hold across it.
func TestCookieWhereTheClockBeginsAnew(t *testing.T) {
	a := newAnswering(t, "", codegen.Target{})
	a.pass(1<<32 - 100*testHZ)
	stats := func() cookie.Stats {
		memory, err := store.CopyOfMap(a.Loaded.Holding(state.HoldsCookies))
		if err != nil {
			t.Fatal(err)
		}
		return cookie.Read(memory, a.now)
	}
	if s := stats(); s.Sources != 0 {
		t.Fatalf("%d sources are proven before any", s.Sources)
	}
	s := segment("192.0.2.9", packet.SYN)
	_, _, answer := a.judge(s)
	a.judge(reset(s, answer))
	for range 2 {
		if got := stats(); got.Sources != 1 || got.Evicted != 0 {
			t.Errorf("%+v", got)
		}
		if _, verdict, answer := a.judge(s); verdict != action.Pass || answer != nil {
			t.Error("a client that is proven is answered")
		}
		a.pass(200 * testHZ) // 100 s beyond
	}
}
