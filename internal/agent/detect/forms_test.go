package detect

import (
	"net/netip"
	"testing"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// flows is TCP of so many flows that go on, with some flags.
func (w *world) flows(rate float64, n int, flags uint8) part {
	return part{rate, 60, func() packet.Packet {
		i := w.r.IntN(n)
		return tcp(v4(0x10000000+uint32(i)*997), server, uint16(1024+i), 443, flags)
	}}
}

// TestSegmentsOfNoConnectionAreAFloodInAnyFlow: of 1,000 flows that come again and again none was
// new, so that 60,000 segments a second of no connection were those of clients. The machine refuses
// them. Clients' are not refused, and SYNs to closed ports are no segments.
func TestSegmentsOfNoConnectionAreAFloodInAnyFlow(t *testing.T) {
	for _, c := range []struct {
		what    string
		flags   uint8
		refused float64 // of each
		told    bool
		want    bool
	}{
		{"ACKs that are refused", packet.ACK, 1, true, true},
		{"the same, and nobody says so", packet.ACK, 1, false, false},
		{"uploads of clients", packet.ACK, 0, true, false},
		{"clients, some of whom are gone", packet.ACK, 0.1, true, false},
		{"SYN-ACKs, of which a connection has one", packet.SYN | packet.ACK, 0, false, true},
		{"RSTs, of which a connection has one", packet.RST, 0, false, true},
		{"SYNs to a closed port", packet.SYN, 1, true, false},
	} {
		w := newWorld(Options{})
		w.calm(t, 2000, 15)
		flood := w.flows(60_000, 1000, c.flags)
		first := 0
		for n := range 30 {
			for _, a := range w.tenth(append(w.web(2000, 20_000), flood), 1000) {
				if a.Kind == kind.TCP && first == 0 {
					first = n + 1
				}
			}
			if n%2 == 1 && c.told && w.d.DoubtsSegments(w.now) {
				w.d.Refused(flood.rate / 5 * c.refused)
			}
		}
		if (first > 0) != c.want || first > 7 {
			t.Errorf("%s: an alarm after %d tenths of a second, 0 is none", c.what, first)
		}
	}
}

// TestOddFlagsMakeNoSegmentsAFlood: a machine refuses segments to closed ports with FIN or no flags
// alone, as scans have, and so many of its clients' segments were of no connection.
func TestOddFlagsMakeNoSegmentsAFlood(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	// Flows that begin are segments of no connection, too: few do.
	uploads, odd := w.flows(30_000, 300, packet.ACK), w.flows(30_000, 300, packet.FIN)
	for n := range 30 {
		for _, a := range w.tenth(append(w.web(2000, 20_000), uploads, odd), 1000) {
			if a.Kinds.Has(kind.TCP) {
				t.Fatalf("after %d tenths of a second: %+v", n+1, a)
			}
		}
		if n%2 == 1 && w.d.DoubtsSegments(w.now) {
			w.d.Refused(odd.rate / 5)
		}
	}
}

// TestFramesThatAreNotIPAreAFlood: floods of ARP, LLDP and their like were of no kind.
func TestFramesThatAreNotIPAreAFlood(t *testing.T) {
	for _, of := range []struct {
		rate float64
		want bool
	}{{20_000, true}, {1000, false}} {
		w := newWorld(Options{})
		w.calm(t, 2000, 15)
		arp := part{of.rate, 60, func() packet.Packet {
			return packet.Packet{EtherType: packet.EtherARP, SrcMAC: w.r.Uint64() >> 16}
		}}
		seen := false
		for range 10 {
			for _, a := range w.tenth(append(w.web(2000, 20_000), arp), 400) {
				seen = true
				if a.Kind != kind.Link || a.To.IsValid() || a.From.IsValid() {
					t.Errorf("%+v", a)
				}
			}
		}
		if seen != of.want {
			t.Errorf("%.0f frames a second: an alarm %t", of.rate, seen)
		}
	}
	w := newWorld(Options{Watched: func(a netip.Addr) bool { return a == server }})
	w.calm(t, 2000, 15)
	if _, ok := w.alarmed(10, part{20_000, 60, func() packet.Packet {
		return packet.Packet{EtherType: packet.EtherARP}
	}}); ok {
		t.Error("a detector of one host calls frames to nobody a flood")
	}
}

// TestAHundredthOfWhatRulesDropIsTooMuch: what rules left of a large flood was none, up to a
// quarter of what is too much otherwise. Once they drop no more it is as before.
func TestAHundredthOfWhatRulesDropIsTooMuch(t *testing.T) {
	for _, c := range []struct {
		drops, answers float64
		want           bool
	}{{0, 0, false}, {100_000, 0, true}, {100_000, 500, false}, {1e6, 0, false}} {
		drops, want := c.drops, c.want
		w := newWorld(Options{})
		w.calm(t, 2000, 15)
		rest := append(w.web(2000, 20_000), w.steering(1500))
		for range 2 {
			w.d.Sent(1000)
		}
		w.d.Strict(w.now.Add(time.Minute))
		if _, ok := w.alarmed(10, rest...); ok {
			t.Errorf("an alarm before anybody knows whether it is answered")
		}
		w.d.Drops(drops, w.now.Add(time.Second))
		w.d.Sent(1000 + c.answers)
		if _, ok := w.alarmed(9, rest...); ok != want {
			t.Errorf("rules drop %.0f packets a second, %.0f are sent: an alarm %t", drops,
				c.answers, ok)
		}
		for range 10 {
			w.tenth(rest, 200)
		}
		if _, ok := w.alarmed(10, rest...); ok {
			t.Errorf("%.0f packets a second were dropped, and none are now: an alarm", drops)
		}
	}
}

// TestLessIsTooMuchAsLongAsRulesDrop: so long after the last new rule as its detector is quiet, a
// flood could have a part of any other form, up to what is too much at other times.
func TestLessIsTooMuchAsLongAsRulesDrop(t *testing.T) {
	w := newWorld(Options{})
	w.calm(t, 2000, 15)
	for range 2 {
		w.d.Sent(1000)
	}
	w.d.Strict(w.now.Add(time.Second))
	for range 20 {
		w.d.Drops(100_000, w.now.Add(2*time.Second))
		w.tenth(w.web(2000, 20_000), 200)
	}
	var rest []part
	for rate := 300.0; rate <= 1500; rate += 300 { // it is compared with what came before the flood
		rest = append(w.web(2000, 20_000), w.steering(rate))
		for range 10 {
			w.tenth(rest, 200)
		}
		w.d.Sent(1000)
		w.d.Drops(100_000, w.now.Add(2*time.Second))
	}
	if _, ok := w.alarmed(9, rest...); !ok {
		t.Error("no alarm of what rules leave, though they drop the flood still")
	}
}
