package detect

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/packet"
)

// Options say what is watched and what is too much.
type Options struct {
	// Watched says of a destination whether it is watched; nil is everything.
	Watched func(netip.Addr) bool
	// Packets and Bits are fixed thresholds, for each host, a second; both 0: they are learned.
	Packets, Bits float64
	// Peer says whether there are connections with an address, and Ask has that found out anew: it
	// returns at once. nil: nobody knows.
	Peer func(netip.Addr) bool
	Ask  func()
}

// Alarm says that a place gets too much of a kind of packets, at a moment.
type Alarm struct {
	Kind kind.Kind
	// To is its destination, From the network of its sources; neither is valid for everything
	// that is watched.
	To, From        netip.Prefix
	Rate, Threshold float64 // of the kind, a second
	Usual           float64 // what the kind had before
	// Kinds are those that come with it: of which there is more than usual, by a quarter of what is
	// too much. Kind is the one that is furthest above. Share is how much of the packets of that
	// kind is more than usual, proven ones among them.
	Kinds Kinds
	Share float64
	// All are the packets of Kinds, a second, and UsualAll those of Kind that are usual, repeated
	// ones among them. Own are those of All that no other alarm of the place has.
	All, UsualAll, Own float64
	Packets, Bits      float64 // of all kinds, a second, without what may be chance
	Since              time.Time
	Learned            bool
	Unknown            bool // nothing was learned that could be usual
	// Answered: of UsualAll more came before the alarm than is usual, and was answered.
	Answered bool `json:",omitempty"`
}

// factor is the multiple of the usual that is too much. While something is done about a flood, a
// part of that is.
const (
	factor = 4
	strict = 0.25
)

// mostCrowd is the greatest crowd as a multiple of the usual clients.
const mostCrowd = 20

// Kinds is a set of kinds.
type Kinds uint16

// Has says whether a kind is among them.
func (s Kinds) Has(k kind.Kind) bool { return s>>k&1 == 1 }

// Is says whether a packet is of one of the kinds.
func (s Kinds) Is(p *packet.Packet) bool {
	for k := range kind.Num {
		if s.Has(k) && k.Is(p) {
			return true
		}
	}
	return false
}

// Sizes.
const (
	bins     = 10 // of the window, which is a second long
	maxNodes = 2048
	maxFresh = 8192    // prefixes that are counted within a bin
	flows    = 1 << 17 // that are remembered
	flowTime = 2 * time.Minute
)

// Detector detects floods in the traffic of one interface.
type Detector struct {
	Options
	seed  maphash.Seed
	flows []flow
	last  [256]uint64 // flow of the last packet of each protocol
	host  netip.Addr  // that sent the last packet of other protocols than TCP

	bin        raw             // of everything
	parts      map[where]*raw  // of the bin
	latest     [3]place        // of parts, those of the last packet: often of the next one, too
	free       []*raw          // that parts may take
	nodes      map[where]*node // that are followed from bin to bin
	root       *node
	usual      ratios
	began      time.Time // of all
	known      bool      // there was a baseline at the start, so usual rates are known
	from       time.Time // of the bin
	second     time.Time
	calm       time.Time // nothing is learned before
	strict     time.Time // until then less is too much
	drops      float64   // packets a second that rules drop, until a time
	dropsUntil time.Time
	alarm      bool
	ways       ways // what the machine sends
	begin      begin
	tests      tests
}

type place struct {
	where
	raw *raw // nil: of none
}

type flow struct {
	mark uint32
	at   uint32 // seconds, 0 is never
}

// node is a place with its window.
type node struct {
	ring  [bins]raw
	times [bins]time.Time // ends of bins
	long  [bins]time.Duration
	at    int
	sum   raw
	seen  time.Time
	prof  profile
	since [kind.Num]time.Time // that too much has come
	begun time.Time           // the window holds nothing before
}

// New is a detector that has learned nothing.
func New(o Options) *Detector {
	d := &Detector{Options: o, seed: maphash.MakeSeed(), flows: make([]flow, flows),
		parts: map[where]*raw{}, nodes: map[where]*node{}, usual: ratios{Syn: 0.5, Fresh: 20}}
	d.root = &node{prof: profile{weekly: true}}
	d.begin.looks = !d.fixed()
	return d
}

// Add counts a packet that has passed, and that stands for weight packets.
func (d *Detector) Add(now time.Time, p *packet.Packet, weight float64, bytes int) {
	if d.Watched != nil && !(p.IsIP() && d.Watched(p.Dst)) {
		return
	}
	of, w := kind.OfPacket(p), d.weigh(now, p, weight)
	d.bin.tally(of, w, bytes)
	if !p.IsIP() {
		return
	}
	if w.fresh {
		d.begin.source(of, p.Src)
	}
	host, net := p.Dst.BitLen(), 24
	if host == 128 {
		net = 48
	}
	if p.Transport == packet.TCPTransport && of != kind.TCP && of != kind.SYN {
		d.bin[kind.CountOdd] += weight
	}
	d.part(0, placeOf(p.Dst, host, false), of, w, bytes)
	if d.fixed() {
		return
	}
	d.part(1, placeOf(p.Dst, net, false), of, w, bytes)
	d.part(2, placeOf(p.Src, net, true), of, w, bytes)
}

func (d *Detector) fixed() bool { return d.Packets > 0 || d.Bits > 0 }

// part counts a packet in a place, the one of that number in latest.
func (d *Detector) part(number int, at where, of kind.Kind, w weighed, bytes int) {
	last := &d.latest[number]
	if last.raw != nil && last.where == at {
		last.raw.tally(of, w, bytes)
		return
	}
	r := d.parts[at]
	if r == nil {
		if len(d.parts) >= maxFresh && d.nodes[at] == nil {
			return
		}
		if n := len(d.free); n > 0 {
			r, d.free = d.free[n-1], d.free[:n-1]
		} else {
			r = new(raw)
		}
		d.parts[at] = r
	}
	*last = place{at, r}
	r.tally(of, w, bytes)
}

// weighed is the number of packets that a sample stands for, and what they are besides their kind.
type weighed struct {
	weight float64
	fresh  bool // of a flow that was not seen of late
	same   bool // of the flow that the one before, of its protocol, was of
	peer   bool // not of TCP, of a flow that goes on, and of a peer or to a group
	other  bool // not of TCP
	host   bool // from where the one before came that was not of TCP, too
}

// weigh looks at a packet that stands for some.
func (d *Detector) weigh(now time.Time, p *packet.Packet, weight float64) weighed {
	w := weighed{weight: weight, other: p.IsIP() && p.Transport != packet.TCPTransport}
	w.fresh, w.same = d.fresh(now, p)
	if w.other {
		w.host, d.host = d.host == p.Src, p.Src
		w.peer = !w.fresh && (p.Dst.IsMulticast() || d.Peer != nil && d.Peer(p.Src))
	}
	return w
}

// fresh says whether the flow of a packet was not seen of late, and whether the packet before of
// its protocol was of that flow, too, and remembers it.
func (d *Detector) fresh(now time.Time, p *packet.Packet) (fresh, same bool) {
	from, to := p.Src.As16(), p.Dst.As16()
	var b [37]byte
	copy(b[:16], from[:])
	copy(b[16:32], to[:])
	b[32] = p.Proto
	binary.BigEndian.PutUint16(b[33:], p.SrcPort)
	binary.BigEndian.PutUint16(b[35:], p.DstPort)
	sum := maphash.Bytes(d.seed, b[:])
	f := &d.flows[sum%flows]
	mark, at := uint32(sum>>32), uint32(now.Unix())
	known := f.mark == mark && f.at != 0 && at-f.at <= uint32(flowTime/time.Second)
	f.mark, f.at = mark, at
	if p.Transport == packet.TCPTransport && p.Flags&(packet.SYN|packet.RST) != 0 {
		known = false // a connection has one of each: more of them are of as many connections
	}
	last := &d.last[p.Proto]
	same = *last == sum
	*last = sum
	return !known, same
}

// Tick ends a bin, which lasted since the tick before, and says what is too much now. A bin is a
// tenth of a second, or longer.
func (d *Detector) Tick(now time.Time) []Alarm {
	if d.from.IsZero() {
		d.began, d.from, d.second = now, now, now
		d.clear()
		return nil
	}
	long := now.Sub(d.from)
	if long <= 0 {
		return nil
	}
	d.from = now
	d.root.push(now, long, &d.bin)
	for w, r := range d.parts {
		n := d.nodes[w]
		if n == nil && d.worth(r, long) {
			n = d.follow(w, now)
		}
		if n != nil {
			n.push(now, long, r)
			n.seen = now
		}
	}
	var none raw
	for w, n := range d.nodes {
		if d.parts[w] == nil && n.sum[kind.CountSamples] > 0 {
			n.push(now, long, &none)
		}
	}
	d.clear()
	out := d.judge(now)
	d.learn(now, out)
	return out
}

// clear begins a bin.
func (d *Detector) clear() {
	d.bin = raw{}
	for _, r := range d.parts {
		*r = raw{}
		d.free = append(d.free, r)
	}
	clear(d.parts)
	d.latest = [len(d.latest)]place{}
}

// worth says whether a place that was new in a bin is followed: for several samples that stand for
// a quarter of the least flood.
func (d *Detector) worth(r *raw, long time.Duration) bool {
	if r[kind.CountSamples] < 3 {
		return false
	}
	each := max(1, float64(time.Second)/float64(long))
	if d.fixed() {
		return r[kind.CountPackets]*each > d.Packets/10 && d.Packets > 0 ||
			r[kind.CountBits]*each > d.Bits/10 && d.Bits > 0
	}
	for k, v := range r.kinds(d.usual) {
		if f := kind.Rows[k].Floor; f > 0 && v*each > f/4 {
			return true
		}
	}
	return false
}

// follow makes a node, in the place of one that was not seen for the longest time.
func (d *Detector) follow(w where, now time.Time) *node {
	if len(d.nodes) >= maxNodes {
		var oldest where
		var at time.Time
		for o, n := range d.nodes {
			if at.IsZero() || n.seen.Before(at) {
				oldest, at = o, n.seen
			}
		}
		if now.Sub(at) < time.Second {
			return nil // a flood of places: that of everything says so
		}
		delete(d.nodes, oldest)
	}
	n := &node{}
	d.nodes[w] = n
	return n
}

// push ends a bin of a node.
func (n *node) push(now time.Time, long time.Duration, r *raw) {
	n.ring[n.at], n.times[n.at], n.long[n.at] = *r, now, long
	n.at = (n.at + 1) % bins
	n.sum = raw{}
	for i := range n.ring {
		if now.Sub(n.times[i])+n.long[i] <= time.Second+time.Second/20 || n.times[i].Equal(now) {
			n.sum.add(&n.ring[i], 1/max(1, n.long[i].Seconds()))
		}
	}
}

// lately returns the rates of the last bins, a quarter of a second or so. times is by how much they
// are more than what has come.
func (n *node) lately() (out raw, times float64) {
	long := 0.0
	for i := 1; i <= bins && long < readEvery.Seconds(); i++ {
		at := (n.at + bins - i) % bins
		if n.times[(n.at+bins-1)%bins].Sub(n.times[at]) > time.Second {
			break // it got nothing for a while
		}
		out.add(&n.ring[at], 1)
		long += n.long[at].Seconds()
	}
	times = 1 / max(0.1, long)
	for i := range out {
		out[i] *= times
	}
	return out, times
}

// began returns the time at which a kind rose, within the window: the beginning of the first bin
// with more than a quarter of a rate.
func (n *node) began(now time.Time, k kind.Kind, rate float64, whole bool) time.Time {
	out := now
	for i := range n.ring {
		if now.Sub(n.times[i]) > time.Second || n.long[i] == 0 {
			continue
		}
		each := float64(time.Second) / float64(n.long[i])
		at := n.times[i].Add(-n.long[i])
		if n.ring[i].of(k, whole)*each > rate/4 && at.Before(out) {
			out = at
		}
	}
	return out
}

// learn learns from a second without an alarm.
func (d *Detector) learn(now time.Time, alarms []Alarm) {
	if d.alarm = len(alarms) > 0; d.alarm {
		d.calm = now.Add(cool)
		d.root.prof.forget()
		for _, n := range d.nodes {
			n.prof.forget()
		}
		d.found(alarms, now)
	}
	if now.Sub(d.second) < time.Second-time.Second/20 {
		return
	}
	d.second = now
	d.doubt(now)
	if now.Before(d.calm) {
		return
	}
	d.relate()
	slow := d.ways.learn(&d.root.sum, now.Sub(d.began) < opening)
	learn := func(n *node) {
		n.prof.second(now, second{n.rates(d.usual), d.begin.again, slow, d.begin.odd, d.begin.fat})
	}
	learn(d.root)
	if d.fixed() { // what is usual is told, and asked for nothing
		return
	}
	for w, n := range d.nodes {
		if now.Sub(n.seen) > 48*time.Hour {
			delete(d.nodes, w)
			continue
		}
		if n.sum[kind.CountSamples] > 0 {
			learn(n)
		}
	}
}

func (n *node) rates(u ratios) (out rates) {
	for k, v := range n.sum.kinds(u) {
		out[k] = float32(v)
	}
	out[rateSYN], out[rateTCP] = float32(n.sum[kind.CountSYN]), float32(n.sum[kind.CountTCP])
	for i := kind.CountAllUDP; i < kind.CountPackets; i++ {
		out[rateAll+int(i-kind.CountAllUDP)] = float32(n.sum[i])
	}
	return out
}

// crowd returns the number of clients that complete their handshakes, as a multiple of the usual.
// So many more packets of UDP are no flood: a browser that comes over TCP has come over QUIC, too.
func (n *node) crowd(usual *rates) float64 {
	syn, tcp := float64(usual[rateSYN]), float64(usual[rateTCP])
	if syn < 10 || tcp < 100 {
		return 1
	}
	return max(1, min(mostCrowd, n.sum[kind.CountSYN]/syn, n.sum[kind.CountTCP]/tcp))
}

// relate learns how packets of connections relate. Twice as many SYNs as usual, and four times as
// many flows, prove nothing.
func (d *Detector) relate() {
	const speed = 1.0 / 300
	s := &d.root.sum
	if s[kind.CountTCP] > 100 && s[kind.CountSYN] > 0 {
		syn := min(1, max(0.05, 2*s[kind.CountSYN]/s[kind.CountTCP]))
		d.usual.Syn += speed * (syn - d.usual.Syn)
		fresh := min(200, max(5, 4*s[kind.CountFresh]/s[kind.CountSYN]))
		d.usual.Fresh += speed * (fresh - d.usual.Fresh)
	}
}

// Raised says whether the last second is not like those before: what it had may be the beginning of
// a flood, and is no example of good traffic yet.
func (d *Detector) Raised(now time.Time) bool {
	if d.alarm || now.Before(d.calm) && !d.fixed() {
		return true
	}
	if d.fixed() {
		return false
	}
	usual := d.root.prof.usual(now)
	all := float64(usual[kind.Packets])
	for k, v := range d.root.sum.kinds(d.usual) {
		if kind.Rows[k].Floor > 0 && v > 2*float64(usual[k])+0.05*all+100 {
			return true
		}
	}
	return false
}

// Rising says whether the bin that ended last has so much that an alarm may follow.
func (d *Detector) Rising() bool {
	last := &d.root.ring[(d.root.at+bins-1)%bins]
	each := 1 / max(0.001, d.root.long[(d.root.at+bins-1)%bins].Seconds())
	if d.fixed() {
		return last[kind.CountPackets]*each > d.Packets/2 && d.Packets > 0 ||
			last[kind.CountBits]*each > d.Bits/2 && d.Bits > 0
	}
	for k, v := range last.kinds(d.usual) {
		row := &kind.Rows[k]
		if row.Same > 0 && (last[row.Same]*fatFlows <= last[row.All] || d.ways.told) {
			v = max(v, last[row.All]/fatTimes)
		}
		if row.Floor > 0 && v*each > row.Floor/2 {
			return true
		}
	}
	return false
}

// Usual are the packets and bits a second that everything which is watched usually has.
func (d *Detector) Usual(now time.Time) (packets, bits float64) {
	u := d.root.prof.usual(now)
	return float64(u[kind.Packets]), float64(u[kind.Bits])
}

// Reset forgets the last second: what was too much in it is dropped now.
func (d *Detector) Reset(now time.Time) {
	d.clear()
	d.from = now
	for _, n := range d.nodes {
		n.reset(now)
	}
	d.root.reset(now)
	d.reopen(now, d.begin.waits)
}

func (n *node) reset(now time.Time) {
	n.ring, n.sum, n.begun = [bins]raw{}, raw{}, now
	n.since = [kind.Num]time.Time{}
}
