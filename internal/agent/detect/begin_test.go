package detect

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// served is so many clients of a service over UDP, that send so many packets a second.
func (w *world) served(rate float64, clients int) []part {
	return append(w.web(20_000, 20_000), part{rate, 300, func() packet.Packet {
		return udp(w.client(clients), server, uint16(1024+w.r.IntN(60000)), 443)
	}})
}

// bots is a flood of UDP of hosts that exist.
func (w *world) bots(rate float64) part {
	return part{rate, 60, func() packet.Packet {
		return udp(w.client(5000), server, uint16(1024+w.r.IntN(60000)), 27015)
	}}
}

// sends has the machine send so much while parts come, for tenths of a second until an alarm.
func (w *world) sends(sent float64, tenths int, parts ...part) (Alarm, int) {
	for n := range tenths {
		w.d.Sent(sent)
		if a := w.tenth(parts, 400); len(a) > 0 {
			return a[0], n + 1
		}
	}
	return Alarm{}, 0
}

// TestAnAgentThatBeginsInAFloodCallsItOne: what came in the first ten seconds was usual, whatever
// it was. The machine serves clients meanwhile; of two kinds nobody needs to say what it sends.
func TestAnAgentThatBeginsInAFloodCallsItOne(t *testing.T) {
	anybody := func(w *world) netip.Addr { return v4(w.r.Uint32()) }
	port := func(w *world) uint16 { return uint16(w.r.IntN(65536)) }
	for _, c := range []struct {
		what string
		sent float64 // packets a second, of all; 0: nobody says
		kind kind.Kind
		make func(w *world) packet.Packet
	}{
		{"SYNs", 0, kind.SYN, func(w *world) packet.Packet {
			return tcp(w.client(5000), server, port(w), 443, packet.SYN)
		}},
		{"pings", 0, kind.ICMP, func(w *world) packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: anybody(w), Dst: server,
				Proto: packet.ProtoICMP, Transport: packet.ICMPTransport, Type: 8}
		}},
		{"UDP of forged sources, beside clients who get more", 100_000, kind.UDP,
			func(w *world) packet.Packet {
				return udp(anybody(w), server, port(w), 27015)
			}},
		{"UDP of hosts that exist, which nobody answers", 14_000, kind.UDP,
			func(w *world) packet.Packet { return w.bots(1).make() }},
		{"reflected answers, which nobody asked for", 14_000, kind.Reflection,
			func(w *world) packet.Packet { return udp(w.client(2000), server, 53, 4000) }},
		{"fragments that nobody answers", 14_000, kind.Fragments,
			func(w *world) packet.Packet {
				return packet.Packet{Family: packet.IPv4, Src: w.client(500_000), Dst: server,
					Proto: packet.ProtoUDP, Fragment: true, LaterFragment: true}
			}},
		{"UDP of 2,000 hosts in flows that go on, which nobody answers", 1000, kind.UDP,
			func(w *world) packet.Packet {
				n := w.r.Uint32N(2000)
				return udp(v4(0x10000000+n*997), server, uint16(2000+n), 27015)
			}},
		{"segments of forged sources", 100_000, kind.TCP, func(w *world) packet.Packet {
			return tcp(anybody(w), server, port(w), 443, packet.ACK)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(Options{})
			flood := part{100_000, 100, func() packet.Packet { return c.make(w) }}
			var a Alarm
			tenths := 0
			if parts := append(w.web(20_000, 20_000), flood); c.sent > 0 {
				a, tenths = w.sends(c.sent, 150, parts...)
			} else if _, ok := w.alarmed(1, parts...); !ok {
				for tenths = 1; tenths < 150 && a.Rate == 0; tenths++ {
					if all := w.tenth(parts, 400); len(all) > 0 {
						a = all[0]
					}
				}
			}
			if a.Rate == 0 || tenths > 75 {
				t.Fatalf("no alarm within %d tenths of a second", tenths)
			}
			if a.Kind != c.kind || !a.Unknown || a.Usual != 0 {
				t.Errorf("%+v, want one of %v before anything was learned", a, c.kind)
			}
			if !w.d.Raised(w.now) {
				t.Error("what comes is an example of good traffic")
			}
			if packets, _ := w.d.Usual(w.now); packets > 40_000 {
				t.Errorf("%.0f packets/s of everything are usual", packets)
			}
		})
	}
}

// TestAnAgentThatBeginsOnABusyMachineCallsItsClientsNone, whoever the clients are.
func TestAnAgentThatBeginsOnABusyMachineCallsItsClientsNone(t *testing.T) {
	for _, c := range []struct {
		what  string
		sent  float64
		parts func(w *world) []part
	}{
		{"players, half of whose packets are answered", 40_000, func(w *world) []part {
			return w.served(60_000, 20_000)
		}},
		{"the same where nobody says what is sent", 0, func(w *world) []part {
			return w.served(60_000, 20_000)
		}},
		{"a resolver of a network", 60_000, func(w *world) []part {
			return []part{{60_000, 200, func() packet.Packet {
				return udp(w.client(5000), server, 53, uint16(1024+w.r.IntN(60000)))
			}}}
		}},
		{"streams to groups, which nobody answers", 50, func(w *world) []part {
			return []part{{180_000, 1358, func() packet.Packet {
				return udp(v4(9), v4(0xef010100+w.r.Uint32N(64)), 5000, 5000)
			}}}
		}},
		{"records of 2,000 routers, which nobody answers", 50, func(w *world) []part {
			return []part{{20_000, 1400, func() packet.Packet {
				n := w.r.Uint32N(2000)
				return udp(v4(0x0a000000+n), server, uint16(40_000+n), 2055)
			}}}
		}},
		{"downloads of half a million connections", 300_000, func(w *world) []part {
			return []part{{400_000, 80, func() packet.Packet {
				n := w.r.Uint32N(500_000)
				return tcp(v4(0x50000000+(n/40)<<12+n%40), server, uint16(n), 443, packet.ACK)
			}}, {5000, 74, func() packet.Packet {
				return tcp(w.client(500_000), server, uint16(w.r.IntN(65536)), 443, packet.SYN)
			}}}
		}},
		{"a tunnel of another protocol", 100, func(*world) []part {
			return []part{{80_000, 1400, func() packet.Packet {
				return packet.Packet{Family: packet.IPv4, Src: v4(9), Dst: server, Proto: 50}
			}}}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(Options{})
			parts := c.parts(w)
			for n := range 400 {
				if c.sent > 0 && n > 10 {
					w.d.Sent(c.sent)
				}
				if a := w.tenth(parts, 400); len(a) > 0 {
					t.Fatalf("after %d tenths of a second: %+v", n+1, a[0])
				}
			}
		})
	}
}

// TestWhatIsLeftOfAFloodAtTheBeginningIsLearned: an agent that has begun in a flood knows nothing
// of clients. Once rules hold the flood, or it has ended, these are no flood.
func TestWhatIsLeftOfAFloodAtTheBeginningIsLearned(t *testing.T) {
	forged := func(w *world) part {
		return part{200_000, 60, func() packet.Packet {
			return udp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 27015)
		}}
	}
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprint("held by rules ", held), func(t *testing.T) {
			w := newWorld(Options{})
			clients := w.served(40_000, 20_000)
			if _, n := w.sends(60_000, 100, append(clients, forged(w))...); n == 0 {
				t.Fatal("no alarm of the flood")
			}
			if held {
				w.d.Reset(w.now)
			} else {
				for range 40 { // an alarm of the clients is one of the flood until it is over
					w.d.Sent(60_000)
					w.tenth(clients, 400)
				}
			}
			for n := range 1200 {
				w.d.Sent(60_000)
				if a := w.tenth(clients, 400); len(a) > 0 {
					t.Fatalf("%d tenths of a second behind the flood: %+v", n, a[0])
				}
			}
			if a, n := w.sends(60_000, 20, append(clients, forged(w))...); n == 0 || n > 7 ||
				a.Unknown {
				t.Errorf("the flood comes again: %+v after %d tenths of a second", a, n)
			}
		})
	}
}

// TestWhatIsLeftOfAFloodMayBeOneStill: rules that stop a part of it make the rest no client.
func TestWhatIsLeftOfAFloodMayBeOneStill(t *testing.T) {
	w := newWorld(Options{})
	forged := part{200_000, 60, func() packet.Packet {
		return udp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 27015)
	}}
	for range 3 {
		if _, n := w.sends(20_000, 100, append(w.web(20_000, 20_000), forged)...); n == 0 {
			t.Fatalf("no alarm at %.0f packets/s", forged.rate)
		}
		w.d.Reset(w.now)
		forged.rate /= 2
	}
}

// begunAgain is a detector that goes on with what one before it has left on the disk.
func (w *world) begunAgain(t *testing.T) bool {
	t.Helper()
	text, err := json.Marshal(w.d.Baseline(w.now))
	if err != nil {
		t.Fatal(err)
	}
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	w.d = New(Options{})
	return w.d.Restore(&b, w.now)
}

// TestAMinuteIsLearnedForTheNextAgent: of less than five minutes it knew nothing, and called the
// clients of a busy machine a flood.
func TestAMinuteIsLearnedForTheNextAgent(t *testing.T) {
	for _, long := range []time.Duration{2 * time.Second, 20 * time.Second, time.Minute,
		4 * time.Minute} {
		t.Run(long.String(), func(t *testing.T) {
			w := newWorld(Options{})
			clients := w.served(40_000, 20_000)
			if a, n := w.sends(60_000, int(10*long.Seconds()), clients...); n > 0 {
				t.Fatalf("%+v", a)
			}
			if !w.begunAgain(t) {
				t.Fatal("nothing is gone on with")
			}
			if a, n := w.sends(60_000, 300, clients...); n > 0 {
				t.Fatalf("after %d tenths of a second: %+v", n, a)
			}
			if !w.begunAgain(t) {
				t.Fatal("nothing is gone on with")
			}
			flood := w.bots(300_000) // of hosts that exist
			a, n := w.sends(60_000, 100, append(clients, flood)...)
			if n == 0 || n > 7 {
				t.Errorf("a flood at the beginning is one after %d tenths of a second: %+v", n, a)
			}
		})
	}
}

// TestAnOpenIncidentIsNoOpening: an agent that begins beneath a flood which the one before has told
// of knows that it is one, whatever the machine sends, and learns what else comes.
func TestAnOpenIncidentIsNoOpening(t *testing.T) {
	w := newWorld(Options{})
	to := netip.PrefixFrom(server, 32)
	w.d.Expect(kind.UDP, to, netip.Prefix{}, 5000)
	w.d.Expect(kind.UDP, netip.Prefix{}, netip.Prefix{}, 5000)
	other := append(w.web(20_000, 20_000), part{80_000, 200, func() packet.Packet {
		return udp(w.client(5000), backups, 53, uint16(1024+w.r.IntN(60000)))
	}})
	if a, n := w.sends(200_000, 30, other...); n > 0 {
		t.Fatalf("before the flood comes, after %d tenths of a second: %+v", n, a)
	}
	a, n := w.sends(200_000, 10, append(other, w.bots(50_000))...)
	if n == 0 || n > 7 || a.Kind != kind.UDP {
		t.Errorf("the flood is one after %d tenths of a second: %+v", n, a)
	}
	w = newWorld(Options{})
	w.d.Expect(kind.UDP, to, netip.Prefix{}, 5000)
	if a, n := w.sends(200_000, 300, append(other, w.bots(15_000))...); n > 0 {
		t.Errorf("less than was too much is one after %d tenths of a second: %+v", n, a)
	}
}

// TestNothingKnownWasTakenForNothingUsual: an agent that had begun in a flood left an incident of
// which nothing was known, and to the next one all clients were a flood, for good. What goes on as
// a flood is told at once.
func TestNothingKnownWasTakenForNothingUsual(t *testing.T) {
	w := newWorld(Options{})
	clients := w.served(40_000, 20_000)
	w.d.Suspect(kind.UDP, w.now)
	if a, n := w.sends(60_000, 1200, clients...); n > 0 {
		t.Errorf("the flood is over, after %d tenths of a second: %+v", n, a)
	}
	forged := part{200_000, 60, func() packet.Packet {
		return udp(v4(w.r.Uint32()), server, uint16(w.r.IntN(65536)), 27015)
	}}
	if a, n := w.sends(60_000, 20, append(clients, forged)...); n == 0 || n > 7 || a.Unknown {
		t.Errorf("the flood comes again: %+v after %d tenths of a second", a, n)
	}

	w = newWorld(Options{})
	w.d.Suspect(kind.UDP, w.now)
	clients = w.served(40_000, 20_000)
	if a, n := w.sends(60_000, 20, append(clients, forged)...); n == 0 || !a.Unknown {
		t.Errorf("the flood goes on: %+v after %d tenths of a second", a, n)
	}
	for n := range 50 {
		w.d.Sent(60_000)
		if len(w.tenth(append(clients, forged), 400)) == 0 {
			t.Fatalf("it is none any more %d tenths of a second later", n+1)
		}
	}
	for range 40 {
		w.d.Sent(60_000)
		w.tenth(clients, 400)
	}
	if a, n := w.sends(60_000, 1200, clients...); n > 0 {
		t.Errorf("what is left is one after %d tenths of a second: %+v", n, a)
	}
}
