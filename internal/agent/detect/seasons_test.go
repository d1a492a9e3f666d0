package detect

import (
	"flag"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"levee/internal/packet"
)

// season makes normal traffic of machines other than a web server, by a generator of its own: a
// poisson number of packets of each source of traffic in each tenth of a second.
type season struct {
	d   *Detector
	r   *rand.Rand
	now time.Time
	pkt packet.Packet // the last one
}

// stream is a source of traffic: packets a second at a time, and how one is made.
type stream struct {
	rate  func(t time.Time) float64
	bytes int
	next  func(r *rand.Rand) packet.Packet
	// flows, if above 0, is how many flows it has that go on, of which next draws
	flows int
}

// remember has the detector see the flows of seconds that no test looks at: flows that go on have
// been seen of late.
func (s *season) remember(streams []stream) {
	s.d.Tick(s.now)
	ago := s.now.Add(-time.Minute)
	for _, x := range streams {
		if x.rate(ago) > 0 {
			for range 8 * x.flows { // some are not drawn
				p := x.next(s.r)
				s.d.fresh(ago, &p)
			}
		}
	}
}

func hours(t time.Time) float64 {
	return float64(t.Hour()) + float64(t.Minute())/60 + float64(t.Second())/3600
}

// swing is a day between a low and a high, lowest at four.
func swing(low, high float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		return low + (high-low)*(1-math.Cos(2*math.Pi*(hours(t)-4)/24))/2
	}
}

func poisson(r *rand.Rand, mean float64) int {
	if mean > 50 {
		return max(0, int(mean+math.Sqrt(mean)*r.NormFloat64()+0.5))
	}
	n, p := 0, r.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= r.Float64()
	}
	return n
}

// tick is a tenth of a second of streams, of which so many packets are sampled.
func (s *season) tick(streams []stream, sampled float64) []Alarm {
	total := 0.0
	rates := make([]float64, len(streams))
	for i, x := range streams {
		rates[i] = x.rate(s.now) / 10
		total += rates[i]
	}
	weight := max(1, total/sampled)
	sent := 0.0
	for i, x := range streams {
		for range poisson(s.r, rates[i]/weight) {
			s.pkt = x.next(s.r)
			if !isTest(&s.pkt) {
				sent += 0.7 * weight
			}
			s.d.Add(s.now, &s.pkt, weight, x.bytes)
		}
	}
	s.now = s.now.Add(time.Second / 10)
	s.d.Sent(10 * sent)
	alarms := s.d.Tick(s.now)
	if s.d.Doubts(s.now) {
		s.d.SentNow(s.now, 10*sent)
	}
	return alarms
}

// isTest says whether a packet is of a test of the line by UDP, which nobody answers.
func isTest(p *packet.Packet) bool { return p.Proto == packet.ProtoUDP && p.DstPort == 5201 }

// isTester tells whether a source makes such tests, over a connection that controls them.
func isTester(a netip.Addr) bool { return a == v4(0x0a030007) || a == v4(0x0a000007) }

func anyone(r *rand.Rand) netip.Addr { return v4(0x20000000 + r.Uint32N(0x40000000)) }
func anyPort(r *rand.Rand) uint16    { return uint16(1024 + r.IntN(60000)) }

func steady(rate float64) func(time.Time) float64 {
	return func(time.Time) float64 { return rate }
}

// during has a rate for some minutes of a day, of every so many days, from an hour on.
func during(rate float64, every, day int, hour, minutes float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if at := hours(t) - hour; t.YearDay()%every == day && at >= 0 && at < minutes/60 {
			return rate
		}
		return 0
	}
}

// busy multiplies a rate at such times.
func busy(of func(time.Time) float64, times float64, when func(time.Time) float64) func(
	time.Time) float64 {
	return func(t time.Time) float64 {
		if when(t) > 0 {
			return times * of(t)
		}
		return of(t)
	}
}

var machine = v4(0xc0000235)

const players = 300

// player is one of a number of hosts that each have a flow that goes on.
func player(r *rand.Rand, of uint32, port uint16) packet.Packet {
	n := r.Uint32N(of)
	return udp(v4(0x30000000+n*77), machine, uint16(2000+n), port)
}

func ping(r *rand.Rand) packet.Packet {
	return packet.Packet{Family: packet.IPv4, Src: v4(0x0a000000 + r.Uint32N(20)), Dst: machine,
		Proto: packet.ProtoICMP, Transport: packet.ICMPTransport, Type: 8}
}

// machines are those whose normal traffic looks like a flood to who knows web servers only.
var machines = []struct {
	name    string
	streams []stream
}{
	{"an authoritative name server", []stream{
		{swing(3000, 30_000), 80, func(r *rand.Rand) packet.Packet {
			return udp(anyone(r), machine, anyPort(r), 53)
		}, 0},
		{swing(30, 300), 60, func(r *rand.Rand) packet.Packet {
			return tcp(anyone(r), machine, anyPort(r), 53, packet.SYN)
		}, 0},
		{swing(100, 1500), 100, func(r *rand.Rand) packet.Packet {
			return tcp(anyone(r), machine, anyPort(r), 53, packet.ACK)
		}, 0},
		{steady(200), 84, ping, 20},
	}},
	{"a resolver, which is started anew at times", []stream{
		{busy(swing(1500, 8000), 2.5, during(1, 6, 2, 10, 15)), 220,
			func(r *rand.Rand) packet.Packet {
				return udp(anyone(r), machine, 53, anyPort(r))
			}, 0},
		{swing(2000, 12_000), 80, func(r *rand.Rand) packet.Packet {
			return udp(v4(0x0a010000+r.Uint32N(5000)), machine, anyPort(r), 53)
		}, 0},
		{steady(50), 84, ping, 20},
	}},
	{"a game server with an evening, and a day on which a game comes out", []stream{
		{busy(swing(2000, 60_000), 2, during(1, 11, 4, 17, 240)), 110,
			func(r *rand.Rand) packet.Packet { return player(r, players, 27016) }, players},
		{busy(swing(10, 120), 3, during(1, 11, 4, 17, 240)), 60, func(r *rand.Rand) packet.Packet {
			return udp(anyone(r), machine, anyPort(r), 27016)
		}, 0},
		{steady(20), 84, ping, 20},
	}},
	{"a network with an office, monitoring, backups and tests", []stream{
		{busy(swing(50, 400), 5, during(1, 1, 0, 9, 10)), 60, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a020000+r.Uint32N(800)), machine, anyPort(r), 443, packet.SYN)
		}, 0},
		{busy(swing(500, 6000), 5, during(1, 1, 0, 9, 10)), 300, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a020000+r.Uint32N(800)), machine, uint16(20000+r.IntN(50)), 443,
				packet.ACK)
		}, 0},
		{steady(2500), 84, ping, 20}, // a round of monitoring is looked at each time
		// a backup with many streams, a test of the line with 32, one by UDP with 16
		{during(20, 1, 0, 1, 90), 60, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a030005), machine, anyPort(r), 873, packet.SYN)
		}, 0},
		{during(85_000, 1, 0, 1, 90), 1500, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a030005), machine, uint16(30000+r.IntN(32)), 873, packet.ACK)
		}, 32},
		{during(85_000, 3, 1, 14, 6), 1500, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a030007), machine, uint16(40000+r.IntN(32)), 5201, packet.ACK)
		}, 32},
		{during(80_000, 3, 2, 15, 6), 1470, func(r *rand.Rand) packet.Packet {
			return udp(v4(0x0a030007), machine, uint16(40000+r.IntN(16)), 5201)
		}, 16},
		// nmap -T5, by the operator, of the whole network
		{during(4000, 4, 3, 11, 12), 44, func(r *rand.Rand) packet.Packet {
			return tcp(v4(0x0a030009), v4(0xc0000200+r.Uint32N(256)), 61000,
				uint16(r.IntN(65536)), packet.SYN)
		}, 0},
		// a tunnel of one flow, and fragments of another
		{swing(2000, 60_000), 1400, func(*rand.Rand) packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: v4(0x0b000001), Dst: machine, Proto: 47}
		}, 1},
		{swing(200, 15_000), 1400, func(r *rand.Rand) packet.Packet {
			return packet.Packet{Family: packet.IPv4, Src: v4(0x0b000002), Dst: machine,
				Proto: packet.ProtoUDP, Fragment: true, LaterFragment: r.IntN(2) == 0}
		}, 1},
	}},
}

var seasonDays = flag.Int("season-days", 8, "TestSeasonsOfOtherMachines: how many days")

// TestSeasonsOfOtherMachines: from the first second on, in which a machine may have much to do
// already. Of every five minutes a second is looked at.
func TestSeasonsOfOtherMachines(t *testing.T) {
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := &season{d: New(Options{Peer: isTester}), r: rand.New(rand.NewPCG(3, 4)),
				now: monday.Add(20 * time.Hour)}
			alarms := 0
			look := func(ticks int) {
				for range ticks {
					for _, a := range s.tick(m.streams, 200) {
						if alarms++; alarms < 5 {
							t.Errorf("%s: %+v", s.now.Format("Mon 02.01. 15:04:05"), a)
						}
					}
				}
			}
			look(600)
			const every = 5 * time.Minute
			for end := s.now.AddDate(0, 0, *seasonDays); s.now.Before(end); {
				s.now = s.now.Truncate(every).Add(every)
				s.remember(m.streams)
				look(10)
			}
			if alarms > 0 {
				t.Errorf("%d alarms", alarms)
			}
		})
	}
}
