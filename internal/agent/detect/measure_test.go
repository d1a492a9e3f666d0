package detect

import (
	"net/netip"
	"testing"

	"levee/internal/packet"
)

// TestATestOfTheLineIsNoFlood: of more than 32 flows it was one, as it is of so many packets that
// nobody answers, and was cut to a tenth. What no socket takes is no test, and neither is what
// comes of many hosts, or from where there is no connection.
func TestATestOfTheLineIsNoFlood(t *testing.T) {
	from := v4(0x10010001)
	for _, c := range []struct {
		what     string
		rate     float64
		flows    int
		peer     bool
		hosts    int
		unwanted float64
		want     bool
	}{
		{"64 flows of a host with a connection", 60_000, 64, true, 1, 0, false},
		{"one flow of it, at 10 Gbit/s", 800_000, 1, true, 1, 0, false},
		{"the same of a host without one", 60_000, 64, false, 1, 0, true},
		{"64 flows that no socket takes", 60_000, 64, true, 1, 60_000, true},
		{"a flow each of 64 hosts with connections", 60_000, 64, true, 64, 0, true},
		{"20,000 flows of one host with a connection", 60_000, 20_000, true, 1, 0, true},
	} {
		asked := 0
		w := newWorld(Options{Ask: func() { asked++ }, Peer: func(a netip.Addr) bool {
			return c.peer && asked > 0 && a.Compare(from) >= 0 && a.Compare(v4(0x10010041)) < 0
		}})
		usual := w.web(2000, 20_000)
		w.d.Sent(5000)
		if _, ok := w.alarmed(200, usual...); ok {
			t.Fatalf("%s: an alarm of what is usual", c.what)
		}
		test := part{c.rate, 1400, func() packet.Packet {
			n := w.r.IntN(c.flows)
			return udp(v4(0x10010001+uint32(n%c.hosts)), server, uint16(5000+n), 5201)
		}}
		w.d.Unwanted(c.unwanted)
		at, ok := w.alarmed(50, append(usual, test)...)
		if ok != c.want || ok && at > 10 {
			t.Errorf("%s: an alarm %v, after %d tenths of a second", c.what, ok, at)
		}
		if asked > 2 {
			t.Errorf("%s: %d times was asked who it is", c.what, asked)
		}
	}
}

// TestPingsAreNoTestOfTheLine: nobody says that a program takes them. Those of a host with a
// connection were no flood at any rate.
func TestPingsAreNoTestOfTheLine(t *testing.T) {
	w := newWorld(Options{Peer: func(a netip.Addr) bool { return a.Compare(v4(0x10010003)) < 0 }})
	usual := w.web(2000, 20_000)
	w.d.Sent(5000)
	if _, ok := w.alarmed(200, usual...); ok {
		t.Fatal("an alarm of what is usual")
	}
	pings := part{60_000, 1400, func() packet.Packet {
		p := udp(v4(0x10010001), server, 7, 0)
		p.Proto, p.Transport = packet.ProtoICMP, packet.ICMPTransport
		return p
	}}
	if at, ok := w.alarmed(50, append(usual, pings)...); !ok || at > 10 {
		t.Errorf("an alarm %v, after %d tenths of a second", ok, at)
	}
}
