package defend

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/packet"
)

// TestFloodsOfOtherForms than those of `levee bench detect`, by what is published of them. Each was
// missed, or not dropped.
func TestFloodsOfOtherForms(t *testing.T) {
	const flags = packet.ACK | packet.PSH
	segment := func(r *rand.Rand, from netip.Addr, ttl *uint8, port, to uint16, flags uint8,
		data int) packet.Spec {
		return packet.Spec{From: from, TTL: ttl, FromPort: &port, ToPort: &to, Flags: &flags,
			Payload: some(r, data),
			Fields:  []packet.FieldValue{{Word: "window", Value: uint64(r.IntN(1 << 16))}}}
	}
	for _, c := range []struct {
		what  string
		flood *stream
		kind  string
		none  string // what the incident says of why nothing is done
	}{
		{what: "segments of 300 bots from a port each, in connections that have ended",
			kind: "tcp", flood: &stream{answers: 1, refused: 1,
				make: func(r *rand.Rand) packet.Spec {
					a, ttl, own := bot(r, 300)
					return segment(r, a, ttl, uint16(1024+own.IntN(60000)), 80, flags, 768)
				}}},
		{what: "segments in the name of a client, in his open connection", kind: "tcp",
			flood: &stream{refused: 1, make: func(r *rand.Rand) packet.Spec {
				return segment(r, labClient(0), new(uint8(40+r.IntN(80))), 40_000, 8080,
					packet.ACK, 0)
			}}},
		{what: "SYN-ACKs and RSTs of 300 middleboxes to one port", kind: "tcp",
			flood: &stream{answers: 0.5, make: func(r *rand.Rand) packet.Spec {
				a, ttl, own := bot(r, 300)
				return segment(r, a, ttl, 80, 80, []uint8{packet.SYN | packet.ACK,
					packet.RST | packet.ACK}[own.IntN(2)], 0)
			}}},
		{what: "all numbers of protocols that nobody uses", kind: "other",
			flood: &stream{make: func(r *rand.Rand) packet.Spec {
				return packet.Spec{From: forgedSource(r), Proto: new(uint8(138 + r.IntN(115))),
					TTL: new(uint8(40 + r.IntN(80))), Payload: some(r, 8+r.IntN(500))}
			}}},
		{what: "errors of ICMPv6, a quarter of them of the path MTU", kind: "icmp",
			flood: &stream{make: func(r *rand.Rand) packet.Spec {
				from := [16]byte{0x24}
				copy(from[1:], some(r, 15))
				return packet.Spec{From: netip.AddrFrom16(from), TTL: new(uint8(30 + r.IntN(226))),
					To: netip.MustParseAddr("2001:db8:19::1"), Type: new(uint8(1 + r.IntN(4))),
					Proto: new(uint8(packet.ProtoICMP6)), Payload: some(r, 48+r.IntN(500))}
			}}},
		{what: "LLDP of a neighbour", kind: "link", none: "`ether lldp`",
			flood: &stream{make: func(r *rand.Rand) packet.Spec {
				return packet.Spec{Family: packet.OtherFamily, EtherType: 0x88cc,
					Payload: some(r, 60)}
			}}},
	} {
		c.flood.rate = 60_000
		a := attacked(t, 8*time.Second, 4*time.Second, c.flood)
		if len(a.all) != 1 || a.all[0].Seen.Kind != c.kind {
			t.Errorf("%s: %+v", c.what, a.all)
			continue
		}
		if c.none != "" {
			if a.drop > 0 || !strings.Contains(strings.Join(a.all[0].Notes, " "), c.none) {
				t.Errorf("%s: %+v", c.what, a)
			}
			continue
		}
		if a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.001 {
			t.Errorf("%s: half was dropped after %.2f s, %.2f %% from two seconds on, and %.3f %% "+
				"of clients' packets", c.what, a.drop, 100*a.dropped, 100*a.lost)
		}
	}
}

// TestRegularsThatTurnStopNoRule: 64 hosts that had sent a quarter of the good traffic stopped, and
// sent a twentieth of a flood. The rule against it was taken back after two seconds.
func TestRegularsThatTurnStopNoRule(t *testing.T) {
	guests := &stream{rate: 260, answers: 1, stops: true, make: func(r *rand.Rand) packet.Spec {
		s := likeClients(r)
		s.From, _, _ = bot(r, 64)
		return s
	}}
	flood := &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
		s := packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
			ToPort: new(uint16(27015)), Payload: some(r, 60)}
		if r.IntN(20) == 0 {
			s.From, _, _ = bot(r, 64)
		}
		return s
	}}
	a := attacked(t, 20*time.Second, 6*time.Second, flood, guests)
	if a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.001 {
		t.Errorf("half was dropped after %.2f s, %.2f %% from two seconds on, and %.3f %% of "+
			"clients' packets: %q", a.drop, 100*a.dropped, 100*a.lost, a.all[0].Notes)
	}
}

// TestWhatBeginsBesideAFloodIsNotCut: a tunnel that began while rules dropped a flood had more than
// a hundredth of what they drop, and nothing like it had come before. The machine answers it.
func TestWhatBeginsBesideAFloodIsNotCut(t *testing.T) {
	tunnel := &stream{rate: 1000, answers: 0.5, after: 21500 * time.Millisecond,
		make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: netip.MustParseAddr("16.5.5.5"), TTL: new(uint8(57)),
				FromPort: new(uint16(51820)), ToPort: new(uint16(51820)), Payload: some(r, 1300)}
		}}
	flood := &stream{rate: 60_000, make: func(r *rand.Rand) packet.Spec {
		return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
			ToPort: new(uint16(27015)), Payload: some(r, 60)}
	}}
	a := attacked(t, 20*time.Second, 5*time.Second, flood, tunnel)
	if a.dropped < 0.99 || tunnel.came < 3000 || tunnel.tally.dropped > 0 {
		t.Errorf("%.0f of the %.0f packets of a tunnel were dropped, and %.2f %% of the flood: %+v",
			tunnel.tally.dropped, tunnel.came, 100*a.dropped, a.all)
	}
}

// TestWhatNoSocketTakesIsAFloodWithoutACounter: what no socket takes was not told where nobody says
// how much an interface sends. Any flows of a host with a connection were a test of the line there.
func TestWhatNoSocketTakesIsAFloodWithoutACounter(t *testing.T) {
	flows := &stream{rate: 60_000, unwanted: true, make: func(r *rand.Rand) packet.Spec {
		return packet.Spec{From: labClient(4), FromPort: new(uint16(5201 + r.IntN(64))),
			ToPort: new(uint16(5201)), Payload: make([]byte, 1400)}
	}}
	if a := attacked(t, 8*time.Second, 4*time.Second, flows); a.dropped < 0.99 || a.lost > 0.001 {
		t.Errorf("%.0f %% were dropped, and %.3f %% of clients' packets: %+v", 100*a.dropped,
			100*a.lost, a.all)
	}
}

// TestWhatOtherInterfacesRefuseCutsNoClients: refusals are counted by network namespace. Segments
// to closed ports of another interface were taken for those of clients' uploads here, which were
// dropped; and answers to datagrams here were taken for refusals of these.
func TestWhatOtherInterfacesRefuseCutsNoClients(t *testing.T) {
	elsewhere := &stream{rate: 12_000, refused: 1, away: true}
	for what, clients := range map[string]*stream{
		"uploads": {rate: 12_000, answers: 0.5, make: func(r *rand.Rand) packet.Spec {
			a, ttl, own := bot(r, 300)
			return packet.Spec{From: a, TTL: ttl, FromPort: new(uint16(1024 + own.IntN(60000))),
				ToPort: new(uint16(443)), Flags: new(uint8(packet.ACK)), Payload: some(r, 1400)}
		}},
		"datagrams": {rate: 8000, answers: 1, make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From, s.TTL, _ = bot(r, 3000)
			return s
		}},
	} {
		a := attacked(t, 12*time.Second, 8*time.Second, clients, elsewhere)
		if a.dropped > 0 || len(a.all) > 0 {
			t.Errorf("%s: %.0f %% were dropped: %+v", what, 100*a.dropped, a.all)
		}
	}
}

// TestABusyLoopbackHidesNoFlood: each packet of the loopback was taken for one that was refused
// there. Beside a database of this machine segments of bots were no flood at any rate below its.
func TestABusyLoopbackHidesNoFlood(t *testing.T) {
	database := &stream{rate: 60_000, loop: true}
	flood := &stream{rate: 60_000, answers: 1, refused: 1, make: func(r *rand.Rand) packet.Spec {
		a, ttl, own := bot(r, 300)
		return packet.Spec{From: a, TTL: ttl, FromPort: new(uint16(1024 + own.IntN(60000))),
			ToPort: new(uint16(80)), Flags: new(uint8(packet.ACK | packet.PSH)),
			Payload: some(r, 768)}
	}}
	a := attacked(t, 8*time.Second, 4*time.Second, flood, database)
	if a.drop == 0 || a.drop > 1 || a.dropped < 0.99 || a.lost > 0.001 {
		t.Errorf("half was dropped after %.2f s, %.2f %% from two seconds on, and %.3f %% of "+
			"clients' packets: %+v", a.drop, 100*a.dropped, 100*a.lost, a.all)
	}
}

// TestPulsesFurtherApartThanQuietFindTheirRule: each second of a flood that came when the rule
// against the one before had gone passed until a search had found it anew.
func TestPulsesFurtherApartThanQuietFindTheirRule(t *testing.T) {
	flood := &stream{rate: 60_000, pulse: time.Second, every: 10 * time.Second,
		make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
				ToPort: new(uint16(27015)), Payload: some(r, 60)}
		}}
	a := attacked(t, 8*time.Second, 80*time.Second, flood)
	if all := flood.dropped / flood.came; all < 0.87 || a.lost > 0.001 {
		t.Errorf("%.1f %% of all pulses were dropped, and %.3f %% of clients' packets: "+
			"%d incidents", 100*all, 100*a.lost, len(a.all))
	}
}

// TestAFloodThatChangesIsHeld: one that took another form each 150 ms was dropped to a tenth, by
// sixteen rules for the forms of a moment.
func TestAFloodThatChangesIsHeld(t *testing.T) {
	n := 0
	a := attacked(t, 20*time.Second, 5*time.Second, &stream{rate: 60_000,
		make: func(r *rand.Rand) packet.Spec {
			n++
			own := rand.New(rand.NewPCG(uint64(n/600), 99))
			return packet.Spec{From: forgedSource(r), TTL: new(uint8(30 + own.IntN(200))),
				FromPort: new(uint16(1024 + own.IntN(60000))),
				ToPort:   new(uint16(1 + own.IntN(60000))), Payload: some(r, own.IntN(1400))}
		}})
	if a.dropped < 0.99 || a.lost > 0.001 {
		t.Errorf("%.2f %% were dropped from two seconds on, and %.3f %% of clients' packets: %+v",
			100*a.dropped, 100*a.lost, a.all)
	}
}

// TestAFloodAtTheBeginningCutsNoClients: half a second after an agent began, a flood began that
// looks like what clients send. By the few good packets of these seconds a rule dropped 94 % of the
// clients' SYNs, and 62 % of their segments.
func TestAFloodAtTheBeginningCutsNoClients(t *testing.T) {
	for what, flood := range map[string]*stream{
		"SYNs": {answers: 1, make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: forgedSource(r), FromPort: labPort(r), ToPort: new(uint16(80)),
				Flags: new(uint8(packet.SYN)), TCPOptions: labSYN,
				Fields: []packet.FieldValue{{Word: "window", Value: 64_240}}}
		}},
		"segments": {answers: 1, refused: 1, make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: forgedSource(r), TTL: new(uint8(40 + r.IntN(80))),
				FromPort: labPort(r), ToPort: new(uint16(80)), Flags: new(uint8(packet.ACK)),
				Payload: some(r, r.IntN(600)),
				Fields:  []packet.FieldValue{{Word: "window", Value: uint64(r.IntN(1 << 16))}}}
		}},
		"datagrams": {make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From = forgedSource(r)
			return s
		}},
	} {
		flood.rate = 60_000
		a := attacked(t, 500*time.Millisecond, 7*time.Second, flood)
		if a.drop == 0 || a.lost > 0.001 {
			t.Errorf("%s: half was dropped after %.2f s, and %.3f %% of clients' packets: %+v",
				what, a.drop, 100*a.lost, a.all)
		}
	}
}

// TestWhatRulesLeaveShortlyAfterTheBeginningIsDropped: in the agent's first ten seconds what rules
// left of a flood was taken for usual, up to a quarter of what is too much. 3.4 % of datagrams to
// all lengths passed for as long as they came.
func TestWhatRulesLeaveShortlyAfterTheBeginningIsDropped(t *testing.T) {
	for _, before := range []time.Duration{8 * time.Second, 11 * time.Second} {
		a := attacked(t, before, 5*time.Second, &stream{rate: 60_000,
			make: func(r *rand.Rand) packet.Spec {
				return packet.Spec{From: forgedSource(r), TTL: new(uint8(40 + r.IntN(80))),
					FromPort: labPort(r), ToPort: new(uint16(5000)),
					To: netip.MustParseAddr("255.255.255.255"), Payload: some(r, 20+r.IntN(381))}
			}})
		if a.dropped < 0.99 || a.lost > 0.001 {
			t.Errorf("after %s: %.2f %% were dropped from two seconds on, and %.3f %% of clients' "+
				"packets: %+v", before, 100*a.dropped, 100*a.lost, a.all)
		}
	}
}

// TestStrangersShareWhatIsUsualOfThem: 400 packets a second of clients that are known were usual,
// and twice as many of a flood were left to strangers, who had sent a few.
func TestStrangersShareWhatIsUsualOfThem(t *testing.T) {
	before := sessions(200, 77, 0)
	flood := sentTwice()
	flood.rate = 40_000
	a := attacked(t, 20*time.Second, 5*time.Second, flood, before)
	if a.dropped < 0.99 || a.lost > 0.001 || before.dropped > 0.02*before.came {
		t.Errorf("%.2f %% were dropped from two seconds on, %.3f %% of clients' packets, and "+
			"%.2f %% of sessions: %+v", 100*a.dropped, 100*a.lost,
			100*before.dropped/before.came, a.all)
	}
}

// TestAFloodInClientsNamesAtTheBeginningCutsNone: half of the clients' datagrams were dropped as
// long as a flood went on in their names, by the few good packets of the agent's first seconds.
func TestAFloodInClientsNamesAtTheBeginningCutsNone(t *testing.T) {
	for what, flood := range map[string]*stream{
		"SYNs": {answers: 1, make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: labClient(r.IntN(labHosts)), FromPort: labPort(r),
				ToPort: new(uint16(80)), Flags: new(uint8(packet.SYN)), TCPOptions: labSYN,
				Fields: []packet.FieldValue{{Word: "window", Value: 64_240}}}
		}},
		"datagrams": {make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From = labClient(r.IntN(labHosts))
			return s
		}},
	} {
		flood.rate = 60_000
		a := attacked(t, 500*time.Millisecond, 15*time.Second, flood)
		if len(a.all) == 0 || a.lost > 0.001 {
			t.Errorf("%s: %.3f %% of clients' packets were dropped: %+v", what, 100*a.lost, a.all)
		}
	}
}

// TestTheFirstSearchFindsAllForms: it ended with rules that took 80 % of a flood, and had packets
// of those kinds alone that a window of a second had much of. A flood of two forms, and one of six
// kinds, waited for further searches, of which each takes a tenth of a second of a processor.
func TestTheFirstSearchFindsAllForms(t *testing.T) {
	to := func(port, size int) func(r *rand.Rand) packet.Spec {
		return func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
				ToPort: new(uint16(port)), Payload: some(r, size)}
		}
	}
	of := func(proto uint8, size int) func(r *rand.Rand) packet.Spec {
		return func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), Proto: &proto,
				Payload: some(r, size)}
		}
	}
	next := 0
	for what, c := range map[string]struct {
		forms []func(r *rand.Rand) packet.Spec
		in    []int // of packets in turn, the form of each
	}{
		"two forms": {[]func(r *rand.Rand) packet.Spec{to(27015, 60),
			func(r *rand.Rand) packet.Spec {
				return packet.Spec{From: forgedSource(r), TTL: new(uint8(70 + r.IntN(60))),
					FromPort: new(uint16(3478)), ToPort: labPort(r), Payload: some(r, r.IntN(900))}
			}}, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
		"kinds": {[]func(r *rand.Rand) packet.Spec{to(27015, 60), of(47, 70), of(50, 300),
			of(packet.ProtoICMP, 1024), func(r *rand.Rand) packet.Spec {
				return packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r),
					ToPort: new(uint16(80)), Flags: new(uint8(packet.SYN))}
			}, func(r *rand.Rand) packet.Spec {
				s := to(123, 440)(r)
				s.FromPort, s.ToPort = s.ToPort, s.FromPort
				return s
			}}, []int{0, 1, 2, 3, 4, 5}},
	} {
		a := attacked(t, 8*time.Second, 3*time.Second, &stream{rate: 60_000,
			make: func(r *rand.Rand) packet.Spec {
				next++
				return c.forms[c.in[next%len(c.in)]](r)
			}})
		searches := 0
		for _, i := range a.all {
			searches += i.Searches
		}
		if searches > 1 || a.dropped < 0.99 || a.lost > 0.001 {
			t.Errorf("%s: %d searches, %.2f %% dropped, %.3f %% of clients' packets: %+v", what,
				searches, 100*a.dropped, 100*a.lost, a.all)
		}
	}
}

// TestSegmentsBesideSYNsAreOfTheFirstSearch: SYNs of a flood excused its segments, as those of a
// crowd do, until rules dropped them. The segments were a flood of their own then, and were
// searched for anew.
func TestSegmentsBesideSYNsAreOfTheFirstSearch(t *testing.T) {
	next := 0
	a := attacked(t, 8*time.Second, 3*time.Second, &stream{rate: 60_000,
		make: func(r *rand.Rand) packet.Spec {
			next++
			s := packet.Spec{From: forgedSource(r), TTL: new(uint8(50)), FromPort: labPort(r)}
			switch next % 4 {
			case 0:
				s.Flags, s.ToPort = new(uint8(packet.SYN)), new(uint16(80))
			case 1:
				s.Flags, s.ToPort = new(uint8(packet.ACK)), new(uint16(80))
			case 2:
				s.ToPort, s.Payload = new(uint16(27015)), some(r, 60)
			default:
				s.FromPort, s.Proto, s.Payload = nil, new(uint8(47)), some(r, 70)
			}
			return s
		}})
	for _, i := range a.all {
		if i.Seen.Kind == "tcp" || a.dropped < 0.99 || a.lost > 0.001 {
			t.Errorf("%.2f %% dropped, %.3f %% of clients' packets: %+v", 100*a.dropped,
				100*a.lost, i)
		}
	}
}
