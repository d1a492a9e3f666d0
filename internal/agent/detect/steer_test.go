package detect

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// steering is a flood of UDP to one port.
func (w *world) steering(rate float64) part {
	return part{rate, 60, func() packet.Packet {
		return udp(v4(0x10000000+w.r.Uint32N(1<<28)), server, uint16(1024+w.r.IntN(60000)), 27015)
	}}
}

// alarmed runs tenths of a second until there is an alarm, and says after how many.
func (w *world) alarmed(tenths int, parts ...part) (int, bool) {
	for n := range tenths {
		if len(w.tenth(parts, 200)) > 0 {
			return n + 1, true
		}
	}
	return tenths, false
}

// TestASlowRiseIsAFlood: UDP that grew by less than four times in what was just learned, from 1,000
// to 60,000 packets a second in half a minute, made itself usual.
func TestASlowRiseIsAFlood(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	for k := range 15 {
		rate := 1000 * math.Pow(60, float64(k)/14)
		if _, ok := w.alarmed(20, append(w.web(2000, 20_000), w.steering(rate))...); ok {
			if rate > 15_000 {
				t.Errorf("an alarm at %.0f packets/s", rate)
			}
			return
		}
		if !w.d.Raised(w.now) && k > 0 {
			t.Errorf("%.0f packets/s are nothing that is unlike what was before", rate)
		}
	}
	t.Error("no alarm")
}

// TestWhatStaysBelowDoesNotMakeItselfUsual: eight minutes just below what is too much were learned,
// and more than six times as much was no flood then.
func TestWhatStaysBelowDoesNotMakeItselfUsual(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	if n, ok := w.alarmed(8*600, append(w.web(2000, 20_000), w.steering(9000))...); ok {
		t.Fatalf("an alarm below what is too much, after %d tenths of a second", n)
	}
	if !w.d.Raised(w.now) {
		t.Error("nothing is unlike what was before")
	}
	if _, ok := w.alarmed(5, append(w.web(2000, 20_000), w.steering(60_000))...); !ok {
		t.Error("no alarm within half a second")
	}
}

// TestFewFatFlowsAreAFlood: packets of flows that go on counted a tenth, however many flows there
// are, and flows that had begun slowly were none. One tunnel, or a test of the line with 16
// streams, is none.
func TestFewFatFlowsAreAFlood(t *testing.T) {
	source := func(w *world, n uint32) netip.Addr { return v4(0x10010001 + w.r.Uint32N(n)) }
	for _, c := range []struct {
		what string
		want bool
		make func(w *world) packet.Packet
	}{
		{"1,024 flows of 64 sources", true, func(w *world) packet.Packet {
			return udp(source(w, 64), server, uint16(2000+w.r.IntN(16)), 27015)
		}},
		{"fragments of 53 reflectors", true, func(w *world) packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: source(w, 53), Dst: server,
				Proto: packet.ProtoUDP, Fragment: true, LaterFragment: true}
		}},
		{"a tunnel", false, func(*world) packet.Packet {
			return udp(v4(9), server, 51820, 51820)
		}},
		{"a test of the line", false, func(w *world) packet.Packet {
			return udp(v4(9), server, uint16(5000+w.r.IntN(16)), 5201)
		}},
	} {
		w := newWorld(Options{})
		w.calm(t, 2000, 15)
		of := func() packet.Packet { return c.make(w) }
		w.alarmed(60, append(w.web(2000, 20_000), part{2000, 1400, of})...) // the flows are known
		_, ok := w.alarmed(50, append(w.web(2000, 20_000), part{60_000, 1400, of})...)
		if ok != c.want {
			t.Errorf("%s: an alarm %v, want %v", c.what, ok, c.want)
		}
	}
}

// TestTheFirstAlarmForgetsNoCalmMinutes: what had come before an alarm in an agent's first minutes
// was forgotten with the flood, and what is usual was a flood two minutes later.
func TestTheFirstAlarmForgetsNoCalmMinutes(t *testing.T) {
	w := newWorld(Options{})
	games := part{8000, 100, func() packet.Packet {
		return udp(w.client(20_000), server, uint16(1024+w.r.IntN(60000)), 7777)
	}}
	usual := append(w.web(2000, 20_000), games)
	if _, ok := w.alarmed(1200, usual...); ok {
		t.Fatal("an alarm of what has been there from the beginning")
	}
	syn := part{30_000, 60, func() packet.Packet {
		return tcp(v4(w.r.Uint32()), server, uint16(1024+w.r.IntN(60000)), 443, packet.SYN)
	}}
	if _, ok := w.alarmed(20, append(usual, syn)...); !ok {
		t.Fatal("no alarm of a flood")
	}
	for range 20 { // it ends
		w.tenth(usual, 200)
	}
	games.rate *= 1.5
	more := append(w.web(2000, 20_000), games)
	if n, ok := w.alarmed(1800, more...); ok {
		t.Errorf("half as much again as usual is a flood, %d s after one", n/10)
	}
}

// TestTrafficThatGrowsIsUsual: twice as much in ten minutes, as of a service that is new.
func TestTrafficThatGrowsIsUsual(t *testing.T) {
	w := newWorld(Options{})
	rate := 20_000.0
	for w.now.Sub(monday) < 20*time.Minute {
		if a := w.tenth(append(w.web(2000, 20_000), part{rate, 300, func() packet.Packet {
			return udp(w.client(20_000), server, uint16(1024+w.r.IntN(60000)), 443)
		}}), 200); len(a) > 0 {
			t.Fatalf("%v after %v", a, w.now.Sub(monday))
		}
		rate *= math.Pow(2, 1.0/6000)
	}
}

// risen has UDP from all over rise from 2,000 packets a second, by a fifth in ten minutes. It says
// at which rate there was an alarm, 0 for none. It looks at one second of each minute.
func risen(t *testing.T, answered float64) float64 {
	t.Helper()
	w := newWorld(Options{})
	begin := w.now
	for rate := 2000.0; rate < 80_000; rate *= math.Pow(1.2, 1.0/10) {
		w.d.Sent(5000 + answered*rate)
		for range 10 {
			parts := append(w.web(2000, 20_000), w.steering(rate))
			if a := w.tenth(parts, 200); len(a) > 0 {
				return rate
			}
		}
		if w.now.Sub(begin) > 15*time.Second {
			w.now = w.now.Add(59 * time.Second)
			w.d.Tick(w.now)
		}
	}
	return 0
}

// TestARiseOverHoursIsNotLearned: a flood that grew by less than twice in ten minutes made itself
// usual. What the machine answers does.
func TestARiseOverHoursIsNotLearned(t *testing.T) {
	if rate := risen(t, 0); rate == 0 || rate > 20_000 {
		t.Errorf("what nobody answers is a flood at %.0f packets/s", rate)
	}
	if rate := risen(t, 0.5); rate != 0 {
		t.Errorf("what is answered is a flood at %.0f packets/s", rate)
	}
}

// TestVeryFewFatFlowsAreJudgedByAnswers: fewer than 32 flows were no flood, however fat, and then
// one two seconds after they began. A tunnel is answered, and a test of the line comes from a host
// that has a connection with this one, which takes a moment to find.
func TestVeryFewFatFlowsAreJudgedByAnswers(t *testing.T) {
	from := v4(0x10010001)
	for _, c := range []struct {
		what  string
		sends float64 // packets a second
		peer  bool
		bytes int
		want  bool
	}{
		{"16 flows of one host that nobody answers", 5000, false, 1400, true},
		{"the same, answered by a tenth", 11_000, false, 1400, false},
		{"the same, of a host with a connection", 5000, true, 1400, false},
		{"as many small packets on a busy line", 5000, false, 60, false},
	} {
		var w *world
		var asked time.Time
		w = newWorld(Options{Ask: func() { asked = w.now }, Peer: func(a netip.Addr) bool {
			return c.peer && a == from && !asked.IsZero() && w.now.Sub(asked) > 200*time.Millisecond
		}})
		usual := w.web(2000, 20_000)
		busy := tcp(v4(0x0a000005), backups, 40000, 873, packet.ACK)
		if c.bytes < 100 {
			usual = append(usual, part{20_000, 1500, func() packet.Packet { return busy }})
		}
		w.d.Sent(5000)
		if _, ok := w.alarmed(200, usual...); ok {
			t.Fatalf("%s: an alarm of what is usual", c.what)
		}
		fat := part{60_000, c.bytes, func() packet.Packet {
			return udp(from, server, uint16(5000+w.r.IntN(16)), 5201)
		}}
		w.d.Sent(c.sends)
		n, ok := w.alarmed(50, append(usual, fat)...)
		if ok != c.want || ok && n > 12 {
			t.Errorf("%s: an alarm %v, after %d tenths of a second", c.what, ok, n)
		}
	}
}

// TestAFloodLittleAboveWhatIsTooMuchIsSeenWithinAHalf: it took a whole second of it. A burst of
// less than half a second is none.
func TestAFloodLittleAboveWhatIsTooMuchIsSeenWithinAHalf(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	if _, ok := w.alarmed(4, append(w.web(2000, 20_000), w.steering(15_000))...); ok {
		t.Error("an alarm of a burst")
	}
	w.calm(t, 2000, 2)
	n, ok := w.alarmed(10, append(w.web(2000, 20_000), w.steering(13_000))...)
	if !ok || n > 6 {
		t.Errorf("an alarm %v after %d tenths of a second", ok, n)
	}
}

// TestOnePacketIsNoFloodWhateverItStandsFor: behind a pause of the sampler one answer of a resolver
// stood for all packets of the pause, and was a reflection flood beside the flood that came then.
func TestOnePacketIsNoFloodWhateverItStandsFor(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	answer := udp(v4(0x08080808), server, 53, 4000)
	w.d.Add(w.now, &answer, 40_000, 100)
	seen := false
	for range 5 {
		for _, a := range w.tenth(append(w.web(2000, 20_000), w.steering(60_000)), 200) {
			seen = seen || a.Kind == kind.UDP
			if a.Kind == kind.Reflection {
				t.Fatalf("a reflection flood of %.0f packets/s to %v", a.Rate, a.To)
			}
		}
	}
	if !seen {
		t.Error("the flood is none")
	}
}

// TestAPauseOfTheSamplerMakesNoPeak: the first sample behind a pause stands for all that came in
// it. On a busy machine a flood of 60,000 packets a second was told at twice that.
func TestAPauseOfTheSamplerMakesNoPeak(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	flood, most := append(w.web(2000, 20_000), w.steering(60_000)), 0.0
	for n := range 20 {
		if n == 10 {
			behind := udp(v4(w.r.Uint32()), server, 4000, 27015)
			w.d.Add(w.now, &behind, 70_000, 100)
		}
		for _, a := range w.tenth(flood, 200) {
			most = max(most, a.Packets)
		}
	}
	if most < 55_000 || most > 70_000 {
		t.Errorf("at most %.0f packets a second of 62,000", most)
	}
}

// TestFewHeavySamplesAreNoFlood: of a sampler that was held up several times, three answers of a
// resolver stood for a reflection flood.
func TestFewHeavySamplesAreNoFlood(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	answer := udp(v4(0x08080808), server, 53, 4000)
	for range 4 {
		w.d.Add(w.now, &answer, 1200, 100)
		for _, a := range w.tenth(append(w.web(2000, 20_000), w.steering(60_000)), 200) {
			if a.Kind == kind.Reflection {
				t.Fatalf("a reflection flood of %.0f packets/s to %v", a.Rate, a.To)
			}
		}
	}
}

// TestACrowdThatWasThereIsNoFloodBesideOne: while rules hold a flood, the bound is a quarter, and a
// crowd of clients that had come before was dropped with it. The machine has answered it; what
// nobody has answered may be the rest of the flood.
func TestACrowdThatWasThereIsNoFloodBesideOne(t *testing.T) {
	for _, answered := range []bool{true, false} {
		w := newWorld(Options{})
		w.d.Sent(2000)
		w.calm(t, 2000, 15)
		crowd := append(w.web(2000, 20_000), part{6000, 100, func() packet.Packet {
			return udp(w.client(20_000), server, uint16(1024+w.r.IntN(60000)), 4433)
		}})
		if answered {
			w.d.Sent(8000)
		}
		if _, ok := w.alarmed(200, crowd...); ok {
			t.Fatal("a crowd is a flood")
		}
		seen := Alarm{}
		for range 5 {
			for _, a := range w.tenth(append(crowd, w.steering(20_000)), 200) {
				seen = a
			}
		}
		if seen.Kind != kind.UDP || answered && seen.Share > 0.8 {
			t.Fatalf("%+v", seen)
		}
		w.d.Reset(w.now) // a rule drops what came with the alarm
		w.d.Strict(w.now.Add(time.Minute))
		if _, ok := w.alarmed(100, crowd...); ok == answered {
			t.Errorf("what was there before the flood is one: %t, and it was answered: %t", ok,
				answered)
		}
		if answered { // another flood beside it is found still
			if _, ok := w.alarmed(20, append(crowd, w.steering(4000))...); !ok {
				t.Error("no alarm of what the rules miss")
			}
		}
	}
}

// TestLessIsTooMuchOfWhatNobodyAnswers: a rise to just below what is too much, and eight minutes of
// it, passed. Half of that is too much where the machine sends less than a quarter as much, as two
// readings say. The first may be of the time before a crowd came; and what is answered, and where
// nobody says what is sent, is judged as before.
func TestLessIsTooMuchOfWhatNobodyAnswers(t *testing.T) {
	for _, c := range []struct {
		what       string
		rate, sent float64
		told, want bool
	}{
		{"nobody answers", 9000, 900, true, true},
		{"nobody answers less", 4500, 900, true, false},
		{"a third is answered", 9000, 3000, true, false},
		{"nobody says", 9000, 900, false, false},
	} {
		w := newWorld(Options{})
		says := func(sent float64) {
			if c.told {
				w.d.Sent(sent)
			}
		}
		says(900)
		w.calm(t, 2000, 15)
		parts := append(w.web(2000, 20_000), w.steering(c.rate))
		_, first := w.alarmed(1, parts...)
		says(c.sent)
		n, ok := w.alarmed(30, parts...)
		if first || ok != c.want || ok && n > 7 {
			t.Errorf("%s: an alarm %t after %d tenths of a second", c.what, ok, n)
		}
	}
}

// TestForgedSYNsHideNoSegments: 20 segments or more were excused by each SYN, and SYNs by
// segments, as in a crowd of clients: 4,900 and 90,000 a second of forged ones together were no
// flood.
func TestForgedSYNsHideNoSegments(t *testing.T) {
	w := newWorld(Options{})
	w.d.Sent(900)
	w.calm(t, 2000, 15)
	forged := func(rate float64, flags uint8) part {
		return part{rate, 60, func() packet.Packet {
			return tcp(v4(w.r.Uint32()), server, uint16(1024+w.r.IntN(60000)), 443, flags)
		}}
	}
	parts := append(w.web(2000, 20_000), forged(4900, packet.SYN), forged(90_000, packet.ACK))
	for range 10 {
		for _, a := range w.tenth(parts, 1000) {
			if a.Kind == kind.TCP {
				return
			}
		}
	}
	t.Error("no alarm of segments")
}

// TestForgedHandshakesExcuseNoDatagrams: so many SYNs and segments as of 17 times the clients, each
// below what is too much, excused 170,000 datagrams a second, as those of a crowd of clients. A
// crowd is answered.
func TestForgedHandshakesExcuseNoDatagrams(t *testing.T) {
	w := newWorld(Options{})
	w.d.Sent(900)
	w.calm(t, 2000, 15)
	w.d.Sent(900)
	forged := func(rate float64, flags uint8) part {
		return part{rate, 60, func() packet.Packet {
			return tcp(v4(w.r.Uint32()), server, uint16(1024+w.r.IntN(60000)), 443, flags)
		}}
	}
	parts := append(w.web(2000, 20_000), forged(4900, packet.SYN), forged(9000, packet.ACK),
		part{60_000, 100, func() packet.Packet {
			return udp(v4(w.r.Uint32()), server, uint16(1024+w.r.IntN(60000)), 443)
		}})
	for range 10 {
		for _, a := range w.tenth(parts, 1000) {
			if a.Kind == kind.UDP && !a.To.IsValid() && !a.From.IsValid() {
				return
			}
		}
	}
	t.Error("no alarm of datagrams")
}

// TestKindsThatAreTooMuchTogether: of several kinds at once each passed up to what is too much of
// it by itself. Two of them are as much as may be of both.
func TestKindsThatAreTooMuchTogether(t *testing.T) {
	for want, rates := range map[bool][3]float64{true: {2700, 2700, 9000},
		false: {2700, 2700, 10}} {
		w := newWorld(Options{})
		w.calm(t, 2000, 15)
		parts := append(w.web(2000, 20_000),
			part{rates[0], 60, func() packet.Packet {
				return packet.Packet{Family: packet.IPv4, Src: v4(w.r.Uint32()), Dst: server,
					Proto: packet.ProtoICMP, Transport: packet.ICMPTransport, Type: 8}
			}},
			part{rates[1], 60, func() packet.Packet {
				return udp(v4(w.r.Uint32()), server, 123, uint16(1024+w.r.IntN(60000)))
			}},
			part{rates[2], 60, func() packet.Packet {
				return packet.Packet{Family: packet.IPv4, Src: v4(w.r.Uint32()), Dst: server,
					Proto: 47}
			}})
		if n, is := w.alarmed(20, parts...); is != want {
			t.Errorf("%v: an alarm %t after %d tenths of a second", rates, is, n)
		}
	}
}
