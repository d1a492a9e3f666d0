package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// world makes the traffic of a service and of a network behind it.
type world struct {
	d   *Detector
	r   *rand.Rand
	now time.Time
	pkt packet.Packet // the last one
}

var (
	server  = netip.MustParseAddr("192.0.2.10")
	backups = netip.MustParseAddr("192.0.2.20")
	monday  = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func newWorld(o Options) *world {
	return &world{d: New(o), r: rand.New(rand.NewPCG(1, 2)), now: monday}
}

func v4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// client is one of a number of those of a service, in networks of their own.
func (w *world) client(of int) netip.Addr {
	n := w.r.IntN(of)
	return v4(0x50000000 + uint32(n/40)<<12 + uint32(n%40))
}

func tcp(src, dst netip.Addr, from, to uint16, flags uint8) packet.Packet {
	return packet.Packet{Family: packet.IPv4, EtherType: packet.EtherIPv4, Src: src, Dst: dst,
		Proto: packet.ProtoTCP, Transport: packet.TCPTransport, SrcPort: from, DstPort: to,
		Flags: flags}
}

func udp(src, dst netip.Addr, from, to uint16) packet.Packet {
	return packet.Packet{Family: packet.IPv4, EtherType: packet.EtherIPv4, Src: src, Dst: dst,
		Proto: packet.ProtoUDP, Transport: packet.PortTransport, SrcPort: from, DstPort: to}
}

// part is some of the traffic: so many packets a second, each made by a function.
type part struct {
	rate  float64
	bytes int
	make  func() packet.Packet
}

// web returns the packets of so many clients of a web server: of ten packets one begins a
// connection and two are QUIC.
func (w *world) web(rate float64, clients int) []part {
	port := func() uint16 { return uint16(1024 + w.r.IntN(60000)) }
	return []part{
		{0.07 * rate, 74, func() packet.Packet {
			return tcp(w.client(clients), server, port(), 443, packet.SYN)
		}},
		{0.73 * rate, 120, func() packet.Packet {
			return tcp(w.client(clients), server, port(), 443, packet.ACK)
		}},
		{0.17 * rate, 300, func() packet.Packet {
			return udp(w.client(clients), server, port(), 443)
		}},
		{0.01 * rate, 100, func() packet.Packet {
			return udp(v4(0x08080808), server, 53, port())
		}},
		{0.005 * rate, 98, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: w.client(clients), Dst: server,
				Proto: packet.ProtoICMP, Transport: packet.ICMPTransport, Type: 8}
		}},
	}
}

// tenth runs a tenth of a second, and reads what the machine sends where that matters.
func (w *world) tenth(parts []part, samples int) []Alarm {
	var all float64
	for _, p := range parts {
		all += p.rate
	}
	weight := max(1, all/10/float64(samples))
	for _, p := range parts {
		n := p.rate / 10 / weight
		for range int(n) + map[bool]int{true: 1}[w.r.Float64() < n-math.Floor(n)] {
			w.pkt = p.make()
			w.d.Add(w.now, &w.pkt, weight, p.bytes)
		}
	}
	w.now = w.now.Add(time.Second / 10)
	alarms := w.d.Tick(w.now)
	if w.d.ways.told && w.d.Doubts(w.now) {
		w.d.SentNow(w.now, w.d.ways.sent)
	}
	return alarms
}

// TestTenWeeksOfNormalTraffic: a day's swing, a quiet night, a weekend, a flash crowd of ten times
// the clients, a backup every night at the speed of the line, tests of the line over TCP and UDP,
// and port scans of the operator's. Nothing of that is a flood. Of every three minutes a second is
// looked at.
func TestTenWeeksOfNormalTraffic(t *testing.T) {
	w := newWorld(Options{Peer: isTester})
	alarms := 0
	for minute := 0; minute < 10*7*24*60; minute += 3 {
		w.now = monday.Add(time.Duration(minute) * time.Minute)
		w.d.Tick(w.now)
		day, hour := minute/1440, float64(minute%1440)/60
		rate := 20_000 * (0.2 + 0.8*math.Pow(math.Sin(math.Pi*math.Mod(hour+20, 24)/24), 2))
		if day%7 >= 5 {
			rate *= 0.6
		}
		rate *= 0.9 + 0.2*w.r.Float64()
		clients := 20_000
		if day%17 == 9 && hour >= 18 && hour < 20 { // within two minutes
			rate *= 1 + 9*min(1, (hour-18)*30)
			clients *= 10
		}
		parts := w.web(rate, clients)
		if hour >= 2 && hour < 3.5 {
			backup := tcp(v4(0x0a000005), backups, 40000, 873, packet.ACK)
			parts = append(parts, part{85_000, 1500, func() packet.Packet { return backup }})
		}
		if day%3 == 1 && hour >= 14 && hour < 14.05 {
			port := uint16(50000 + day)
			parts = append(parts, part{85_000, 1500, func() packet.Packet {
				return tcp(v4(0x0a000007), server, port, 5201, packet.ACK)
			}})
		}
		if day%5 == 2 && hour >= 15 && hour < 15.05 {
			port := uint16(50000 + day)
			parts = append(parts, part{60_000, 1470, func() packet.Packet {
				return udp(v4(0x0a000007), server, port, 5201)
			}})
		}
		if day%4 == 3 && hour >= 11 && hour < 11.2 {
			parts = append(parts, part{3000, 60, func() packet.Packet {
				return tcp(v4(0x0a000009), v4(0xc0000200+uint32(w.r.IntN(256))), 61000,
					uint16(w.r.IntN(65536)), packet.SYN)
			}})
		}
		w.d.Sent(0.7 * rate)
		for range 10 {
			for _, a := range w.tenth(parts, 40) {
				if alarms++; alarms < 10 {
					t.Errorf("%s: %+v", w.now.Format("Mon 02.01. 15:04"), a)
				}
			}
		}
	}
	if alarms > 0 {
		t.Errorf("%d alarms", alarms)
	}
	// What was learned does not make it blind.
	syn := func() packet.Packet {
		return tcp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 443, packet.SYN)
	}
	w.floods(t, "after ten weeks", 20_000, 50_000, kind.SYN, syn, 300*time.Millisecond)
}

// floods has a flood begin on top of normal traffic and says whether it is seen in time.
func (w *world) floods(t *testing.T, name string, normal, rate float64, of kind.Kind,
	make func() packet.Packet, within time.Duration) {
	t.Helper()
	began := w.now
	for w.now.Sub(began) < within {
		parts := append(w.web(normal, 20_000), part{rate, 100, make})
		for _, a := range w.tenth(parts, 200) {
			if a.Kind == of && (a.Since.Before(began.Add(-time.Second/5)) ||
				a.Since.After(began.Add(time.Second/5))) {
				t.Errorf("%s began at %v, not %v", name, a.Since.Sub(began), 0)
			}
			if a.Kind == of {
				return
			}
		}
	}
	t.Errorf("%s: no alarm for %v within %v", name, of, within)
}

// calm runs normal traffic for seconds, without an alarm.
func (w *world) calm(t *testing.T, rate float64, seconds int) {
	t.Helper()
	for range 10 * seconds {
		if a := w.tenth(w.web(rate, 20_000), 200); len(a) > 0 {
			t.Fatalf("%v after %v of normal traffic", a, w.now.Sub(monday))
		}
	}
}

// TestFloodsAreSeen of each kind, soon after the agent has begun.
func TestFloodsAreSeen(t *testing.T) {
	w := newWorld(Options{})
	any := func() netip.Addr { return v4(w.r.Uint32()) }
	port := func() uint16 { return uint16(w.r.IntN(65536)) }
	for _, tt := range []struct {
		kind kind.Kind
		rate float64
		make func() packet.Packet
	}{
		{kind.SYN, 200_000, func() packet.Packet {
			return tcp(any(), server, port(), 443, packet.SYN)
		}},
		{kind.TCP, 200_000, func() packet.Packet {
			return tcp(any(), server, port(), 443, packet.ACK)
		}},
		{kind.UDP, 200_000, func() packet.Packet {
			return udp(any(), server, port(), port()|1<<14)
		}},
		{kind.UDP, 500_000, func() packet.Packet { return udp(v4(9), server, 40000, 40000) }},
		{kind.Reflection, 200_000, func() packet.Packet {
			return udp(w.client(2000), server, 53, 4000)
		}},
		{kind.ICMP, 200_000, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: any(), Dst: server,
				Proto: packet.ProtoICMP, Transport: packet.ICMPTransport, Type: 8}
		}},
		{kind.Fragments, 200_000, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: any(), Dst: server,
				Proto: packet.ProtoUDP, Fragment: true, LaterFragment: true}
		}},
		{kind.Other, 200_000, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: any(), Dst: server, Proto: 47}
		}},
	} {
		t.Run(fmt.Sprint(tt.kind), func(t *testing.T) {
			*w.d = *New(Options{})
			w.calm(t, 10_000, 10)
			w.floods(t, tt.kind.String(), 10_000, tt.rate, tt.kind, tt.make, 300*time.Millisecond)
		})
	}
}

// TestOneForgedFlowHidesNoSYNs: segments of connections excuse SYNs, as far as a crowd has them.
func TestOneForgedFlowHidesNoSYNs(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 10_000, 20)
	for range 10 {
		parts := append(w.web(10_000, 20_000),
			part{100_000, 60, func() packet.Packet {
				return tcp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 443, packet.SYN)
			}},
			part{900_000, 60, func() packet.Packet {
				return tcp(v4(9), server, 40000, 443, packet.ACK)
			}})
		for _, a := range w.tenth(parts, 500) {
			if a.Kind == kind.SYN {
				return
			}
		}
	}
	t.Error("no alarm for SYNs beside a forged flow")
}

// TestASlowRampIsSeen while it is small, and does not make itself usual, in a minute or in hours.
func TestASlowRampIsSeen(t *testing.T) {
	for _, lasts := range []time.Duration{time.Minute, 10 * time.Minute, 3 * time.Hour} {
		w := newWorld(Options{})
		w.calm(t, 5000, 30)
		began, seen := w.now, 0.0
		for seen == 0 && w.now.Sub(began) < lasts {
			rate := 1e6 * float64(w.now.Sub(began)) / float64(lasts)
			parts := append(w.web(5000, 20_000), part{rate, 100, func() packet.Packet {
				return tcp(v4(w.r.Uint32()), server, 1000, 443, packet.SYN)
			}})
			if len(w.tenth(parts, 50)) > 0 {
				seen = rate
			}
		}
		if seen == 0 || seen > 100_000 { // a tenth of the line
			t.Errorf("over %v it is seen at %.0f packets a second", lasts, seen)
		}
	}
}

// TestFixedThresholds count every packet to a host, and nothing is learned.
func TestFixedThresholds(t *testing.T) {
	w := newWorld(Options{Packets: 50_000, Bits: 1e9})
	w.calm(t, 20_000, 5)
	backup := tcp(v4(0x0a000005), backups, 40000, 873, packet.ACK)
	fast := func() packet.Packet { return backup }
	for range 10 {
		w.tenth(append(w.web(20_000, 20_000), part{49_000, 500, fast}), 200)
	}
	a := w.tenth(append(w.web(20_000, 20_000), part{60_000, 500, fast}), 200)
	for range 9 {
		a = w.tenth(append(w.web(20_000, 20_000), part{60_000, 500, fast}), 200)
	}
	if len(a) != 1 || a[0].Kind != kind.Packets || a[0].To != netip.PrefixFrom(backups, 32) ||
		a[0].Learned {
		t.Errorf("alarms %+v", a)
	}
	w = newWorld(Options{Bits: 1e9})
	w.calm(t, 20_000, 5)
	for range 10 {
		a = w.tenth([]part{{100_000, 1500, fast}}, 200)
	}
	if len(a) != 1 || a[0].Kind != kind.Bits {
		t.Errorf("alarms %+v", a)
	}
}

// TestOnlyWhatIsWatched is counted.
func TestOnlyWhatIsWatched(t *testing.T) {
	w := newWorld(Options{Watched: func(a netip.Addr) bool { return a == backups }})
	for range 50 {
		if a := w.tenth([]part{{1e6, 100, func() packet.Packet {
			return udp(v4(w.r.Uint32()), server, 1, 2)
		}}}, 100); len(a) > 0 {
			t.Fatal(a)
		}
	}
}

// TestAFloodOfPlacesIsBounded: sources and destinations at random take no more memory.
func TestAFloodOfPlacesIsBounded(t *testing.T) {
	w := newWorld(Options{})
	for range 200 {
		w.tenth([]part{{1e7, 100, func() packet.Packet {
			return udp(v4(w.r.Uint32()), v4(w.r.Uint32()), 1, 2)
		}}}, 5000)
	}
	if len(w.d.nodes) > maxNodes || len(w.d.parts) > 0 || len(w.d.free) > maxFresh+maxNodes {
		t.Errorf("%d nodes, %d parts", len(w.d.nodes), len(w.d.free))
	}
}

// TestWhileStrictRepeatedPacketsCount: a flood of few sources repeats. Of before, a tenth does.
func TestWhileStrictRepeatedPacketsCount(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 10_000, 15)
	scan := func() packet.Packet { return udp(v4(9), server, 40000, 9) }
	alarms := func() (n int) {
		for range 20 {
			n += len(w.tenth(append(w.web(10_000, 20_000), part{8000, 130, scan}), 400))
		}
		return n
	}
	if n := alarms(); n > 0 {
		t.Errorf("%d alarms of one flow in peace", n)
	}
	w.d.Strict(w.now.Add(time.Minute))
	w.d.Reset(w.now)
	if alarms() == 0 {
		t.Error("no alarm while something is done")
	}
}

// TestAnAlarmNamesWhatComesWithIt: less than is too much by itself, and not what is usual.
func TestAnAlarmNamesWhatComesWithIt(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 10_000, 15)
	parts := append(w.web(10_000, 20_000),
		part{200_000, 1500, func() packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: v4(w.r.Uint32()), Dst: server,
				Proto: packet.ProtoUDP, Fragment: true, LaterFragment: true}
		}},
		part{2000, 500, func() packet.Packet { return udp(v4(w.r.Uint32()), server, 53, 22) }})
	var last Alarm
	for range 10 {
		if all := w.tenth(parts, 2000); len(all) > 0 {
			last = all[0]
		}
	}
	want := Kinds(1<<kind.Fragments | 1<<kind.Reflection)
	if last.Kind != kind.Fragments || last.Kinds != want || last.All < 150_000 ||
		last.All > 250_000 {
		t.Errorf("%+v, want the kinds %b", last, want)
	}
}
