package defend

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/agent/peers"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/oracle"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// lab is the lab of `levee bench detect` by a virtual clock: clients of a host, floods, a sampler
// that takes a share of both, and a count of what became of each packet.
type lab struct {
	*rand.Rand
	streams  []*stream
	scale    int // packets that one of a flood stands for
	begun    time.Time
	now      time.Time
	each     int // samples a second
	sent     float64
	untold   bool // nobody says how much that is
	refused  float64
	unwanted float64 // datagrams that no socket takes
	others   float64 // packets that other interfaces have received, and sent
	loop     float64 // packets of the loopback
	proven   map[netip.Addr]bool
	pending  []tap.Sampled
}

// stream is traffic of one form.
type stream struct {
	rate     float64 // packets a second
	answers  float64 // packets that the host sends for each
	refused  float64 // of these, RSTs
	unwanted bool    // no socket takes it
	flood    bool
	away     bool          // it comes by another interface
	loop     bool          // it is of the loopback, in connections that go on
	stops    bool          // when a flood begins
	after    time.Duration // it begins so long after the lab
	pulse    time.Duration // it comes for so long at a time, zero for always
	every    time.Duration // from one pulse to the next
	make     func(r *rand.Rand) packet.Spec

	owed float64
	tally
}

// tally counts packets.
type tally struct{ came, dropped float64 }

// service is the address of the host.
var service = netip.MustParseAddr("198.19.0.1")

// labHosts is the number of clients.
const labHosts = 16

func labClient(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(2 + n)}) }

// labPort draws the source port of a client.
func labPort(r *rand.Rand) *uint16 { return new(uint16(32768 + r.IntN(28232))) }

func some(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// labSYN are the options of a client's SYN.
var labSYN = []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7}

// labClients returns the streams of the lab's clients: some 800 packets a second.
func labClients() []*stream {
	// A connection has a client and a port. What comes is of one of the last ones.
	conn, ports := 0, map[int]int{}
	tcp := func(rate, answers float64, port uint16, flags uint8, options []byte,
		payload func(r *rand.Rand) int) *stream {
		return &stream{rate: rate, answers: answers,
			make: func(r *rand.Rand) packet.Spec {
				n := 0
				if port == 80 {
					if flags == packet.SYN {
						conn++
						ports[conn] = int(*labPort(r))
						delete(ports, conn-8)
					}
					if n = conn; flags != packet.SYN {
						n -= r.IntN(min(8, conn+1))
					}
				}
				from := 40_000
				if p := ports[n]; p > 0 && port == 80 {
					from = p
				}
				window := 64_240
				if flags != packet.SYN {
					window = 500 + r.IntN(4000)
				}
				return packet.Spec{From: labClient(n % labHosts),
					FromPort: new(uint16(from)), ToPort: &port, Flags: &flags,
					TCPOptions: options, Payload: some(r, payload(r)),
					Fields: []packet.FieldValue{{Word: "window", Value: uint64(window)}}}
			}}
	}
	none := func(*rand.Rand) int { return 0 }
	stamps := []byte{1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8}
	return []*stream{
		tcp(50, 1, 80, packet.SYN, labSYN, none),
		tcp(200, 0.3, 80, packet.ACK, stamps, none),
		tcp(50, 2, 80, packet.ACK|packet.PSH, stamps,
			func(r *rand.Rand) int { return 90 }),
		tcp(50, 1, 80, packet.ACK|packet.FIN, stamps, none),
		tcp(150, 3, 8080, packet.ACK, stamps, none),
		tcp(150, 0.5, 8080, packet.ACK|packet.PSH, stamps,
			func(r *rand.Rand) int { return 1000 + r.IntN(448) }),
		{rate: 50, answers: 1, make: func(r *rand.Rand) packet.Spec {
			s := likeClients(r)
			s.From = labClient(r.IntN(labHosts))
			return s
		}},
		{rate: 50, answers: 1, make: func(r *rand.Rand) packet.Spec {
			return packet.Spec{From: labClient(r.IntN(labHosts)), FromPort: new(uint16(53)),
				ToPort: labPort(r), Payload: some(r, 90+r.IntN(200+r.IntN(900)))}
		}},
		{rate: 10, answers: 1, make: func(r *rand.Rand) packet.Spec {
			s := packet.Spec{From: labClient(r.IntN(labHosts)), Type: new(uint8(8)),
				Proto: new(uint8(packet.ProtoICMP))}
			if r.IntN(20) > 0 {
				s.Payload = some(r, 56)
			}
			return s
		}},
	}
}

// likeClients is a datagram as the lab's clients send.
func likeClients(r *rand.Rand) packet.Spec {
	size := 40 + r.IntN(200)
	if r.IntN(3) == 0 {
		size = 1200 + r.IntN(150)
	}
	return packet.Spec{FromPort: labPort(r), ToPort: new(uint16(443)), Payload: some(r, size)}
}

// visiting is so many visits a second that last some time, each of another host, with four packets
// a second.
func visiting(rate float64, lasts time.Duration) *stream {
	packets, at := 4*lasts.Seconds(), 0.0
	open := int(rate * lasts.Seconds())
	return &stream{rate: rate * packets, answers: 1, make: func(r *rand.Rand) packet.Spec {
		at += 1 / packets
		s := likeClients(r)
		n := int(at) + r.IntN(open)
		s.From = netip.AddrFrom4([4]byte{16, byte(n >> 16), byte(n >> 8), byte(n)})
		return s
	}}
}

// forgedSource is an address that a host of the Internet may have.
func forgedSource(r *rand.Rand) netip.Addr {
	for {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], r.Uint32())
		a := netip.AddrFrom4(b)
		if b[0] != 0 && b[0] < 224 && b[0] != 10 && b[0] != 127 && b[0] != 198 {
			return a
		}
	}
}

// bot is one of so many hosts of the Internet, each with a hop count and numbers of its own.
func bot(r *rand.Rand, of int) (a netip.Addr, ttl *uint8, own *rand.Rand) {
	own = rand.New(rand.NewPCG(uint64(r.IntN(of)), 7))
	return forgedSource(own), new(uint8(40 + own.IntN(80))), own
}

// scaled is a live rule whose limits are those of packets that stand for several.
func (l *lab) scaled(rule string) string {
	if l == nil || l.scale <= 1 {
		return rule
	}
	return rateWords.ReplaceAllStringFunc(rule, func(s string) string {
		words := strings.Fields(s)
		n, _ := strconv.Atoi(strings.TrimSuffix(words[1], "/s"))
		return fmt.Sprintf(" %s %d/s", words[0], max(1, n/l.scale))
	})
}

var rateWords = regexp.MustCompile(` (rate|above) [0-9]+/s`)

func (l *lab) setRate(k *fakeKernel, each int) error {
	if l != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		l.each = each
	}
	return nil
}

func (l *lab) prove(k *fakeKernel, all []netip.Addr) {
	if l == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range all {
		l.proven[a] = true
	}
}

func (l *lab) taken() []tap.Sampled {
	out := l.pending
	l.pending = nil
	return out
}

// advance has packets come until a time, judged by what is in force.
func (l *lab) advance(k *fakeKernel, now time.Time) {
	if l == nil || !now.After(l.now) {
		return
	}
	from, long := l.now, now.Sub(l.now)
	l.now = now
	var order []*stream
	for _, s := range l.streams {
		if since := now.Sub(l.begun) - s.after; since < 0 ||
			s.pulse > 0 && since%s.every >= s.pulse {
			continue
		}
		each := 1.0
		if s.flood {
			each = float64(l.scale)
		}
		if s.loop {
			l.loop += s.rate * long.Seconds()
			continue
		}
		if s.away {
			l.others += s.rate * long.Seconds()
			l.refused += s.refused * s.rate * long.Seconds()
			continue
		}
		s.owed += s.rate * long.Seconds() / each
		for ; s.owed >= 1; s.owed-- {
			order = append(order, s)
		}
	}
	l.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var clock time.Time
	k.judge.SetClock(func() time.Time { return clock })
	var passes, drops []tap.Sampled
	for i, s := range order {
		clock = from.Add(long * time.Duration(i+1) / time.Duration(len(order)+1))
		one := l.come(k, s, clock)
		if one.Passed {
			passes = append(passes, one)
		} else {
			drops = append(drops, one)
		}
	}
	for _, all := range [][]tap.Sampled{passes, drops} {
		l.pending = append(l.pending, l.draw(all, float64(l.each)*long.Seconds())...)
	}
	slices.SortStableFunc(l.pending, func(a, b tap.Sampled) int { return a.At.Compare(b.At) })
}

// come has a packet of a stream come.
func (l *lab) come(k *fakeKernel, s *stream, now time.Time) tap.Sampled {
	spec := s.make(l.Rand)
	if spec.Family == packet.AnyFamily && !spec.To.IsValid() {
		spec.To = service
	}
	if l.IntN(2) == 0 && spec.Family != packet.ARP && spec.Family != packet.OtherFamily &&
		spec.To.Is4() {
		spec.Fields = append(spec.Fields, packet.FieldValue{Word: "id",
			Value: uint64(l.Uint32() & 0xffff)})
	}
	b, err := packet.Build(spec)
	if err != nil {
		panic(err)
	}
	weight := 1
	if s.flood {
		weight = l.scale
	}
	r := k.judge.Eval(b)
	passed := r.Action == action.Pass || r.Answered && l.proven[spec.From]
	if passed {
		l.sent += float64(weight) * s.answers
		l.refused += float64(weight) * s.refused
		if s.unwanted {
			l.unwanted += float64(weight)
		}
	}
	l.count(k, &r, weight, passed)
	s.came += float64(weight)
	if !passed {
		s.dropped += float64(weight)
	}
	return tap.Sampled{At: now, Weight: uint64(weight), Slot: r.Slot,
		By: k.slots[r.Slot].ID, Passed: passed,
		Bytes: len(b), Packet: b[:min(len(b), snap)]}
}

func (l *lab) count(k *fakeKernel, r *oracle.Result, weight int, passed bool) {
	if at := r.Slot - k.with.RuleSlot(0); !passed && at >= 0 && at < len(k.with.Rules) {
		c := k.counts[k.with.Rules[at].Label]
		c.Packets += uint64(weight)
		k.counts[k.with.Rules[at].Label] = c
	}
}

// draw takes so many samples of packets, each of which stands for those before it.
func (l *lab) draw(all []tap.Sampled, most float64) (out []tap.Sampled) {
	sum := uint64(0)
	for i := range all {
		sum += all[i].Weight
	}
	step := float64(sum) / max(1, most)
	since := uint64(0)
	for i := range all {
		since += all[i].Weight
		if l.Float64()*step <= float64(all[i].Weight) {
			all[i].Weight, since = since, 0
			out = append(out, all[i])
		}
	}
	return out
}

// attack is the outcome of a flood in the lab.
type attack struct {
	drop    float64 // seconds until half of it was dropped, 0 for never
	dropped float64 // share from two seconds on
	lost    float64 // share of the clients' packets
	all     []incident.Incident
}

// attacked returns the outcome of a flood that lasts some seconds, beside clients and others that
// come before it.
func attacked(t *testing.T, before, lasts time.Duration, flood *stream,
	others ...*stream) (out attack) {
	t.Helper()
	return attackedBehind(t, judgeText, before, lasts, flood, others...)
}

// attackedBehind is attacked for a policy.
func attackedBehind(t *testing.T, text string, before, lasts time.Duration, flood *stream,
	others ...*stream) (out attack) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const each = 50 * time.Millisecond
		s := newLab(t, text, max(1, int(flood.rate/4000)), others)
		l := s.k.lab
		clients := l.streams[:len(l.streams)-len(others)]
		s.passes(before)
		s.k.mu.Lock()
		l.advance(s.k, time.Now())
		for _, c := range clients {
			c.tally = tally{}
		}
		flood.flood, l.untold = true, flood.unwanted
		l.streams = append(slices.DeleteFunc(slices.Clone(l.streams), func(o *stream) bool {
			return o.stops
		}), flood)
		s.k.mu.Unlock()
		var last, late tally
		for at := each; at <= lasts; at += each {
			time.Sleep(each)
			synctest.Wait()
			s.k.mu.Lock()
			l.advance(s.k, time.Now())
			now := flood.tally
			s.k.mu.Unlock()
			if out.drop == 0 && 2*(now.dropped-last.dropped) >= now.came-last.came {
				out.drop = at.Seconds()
			}
			if last = now; at == 2*time.Second {
				late = now
			}
		}
		out.dropped = (last.dropped - late.dropped) / (last.came - late.came)
		var all tally
		for _, c := range clients {
			all = tally{all.came + c.tally.came, all.dropped + c.tally.dropped}
		}
		out.lost = all.dropped / all.came
		out.all = s.store.List()
		s.end()
	})
	return out
}

// newLab is an agent in the lab, with its clients and others.
func newLab(t *testing.T, text string, scale int, others []*stream) *shell {
	k := newFakeKernel(t, 1)
	k.text = text
	k.replace(t)
	k.state.Dev = "lo" // there is one on every machine
	k.lab = &lab{Rand: rand.New(rand.NewPCG(1, 39)), streams: append(labClients(), others...),
		scale: scale, begun: time.Now(), now: time.Now(), each: calmRate,
		proven: map[netip.Addr]bool{}}
	s := &shell{T: t, k: k, path: memoryDir(t) + "/incidents.json", dev: "lo"}
	s.peers = peers.New(func() (out []netip.Addr, _ error) {
		for n := range labHosts {
			out = append(out, labClient(n))
		}
		return out, nil
	})
	_ = s.peers.Look()
	s.begin()
	return s
}
