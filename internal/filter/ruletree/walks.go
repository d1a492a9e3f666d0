package ruletree

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"levee/internal/filter/price"
)

// Walks counts the work of a look-up, on average over packets.
type Walks struct {
	Steps     float64 // from a node to a child
	Leaves    float64 // that are asked
	Entries   float64 // that are compared
	Calls     float64 // of the function that walks what follows
	Rounds    float64 // walks there, beyond the first of each call
	Surprises float64 // branches that the CPU does not foresee, of packets in no order
	// Loads[k] are cache lines that about every 2^k-th packet reads; the last are those that hardly
	// a packet reads.
	Loads [maxApart + 1]float64
}

const (
	// maxApart is the logarithm of how far apart packets may be that ask for the same line.
	maxApart = 10
	// maxSamples is the largest number of packets that are followed. Of few boxes fewer are enough.
	maxSamples = 2 << maxApart
	// linesBytes is about how much memory a packet reads: lines of the trees and of counters, its
	// header and its source.
	linesBytes = 1 << 10
)

// Least returns the time of a packet like those before it.
func (w *Walks) Least() price.Time { return w.walks(price.Overlap) }

// walks returns the time of walking, of which a packet waits for such a part of its steps.
func (w *Walks) walks(part float64) price.Time {
	return price.Wait(part * (w.Steps*price.Step + w.Leaves*price.Leaf)).Plus(
		price.Core(w.Entries*price.Entry + w.Calls*price.Walk + w.Rounds*price.Round))
}

// Time returns the time of a packet in no order, where all that such packets ask for has so many
// bytes.
func (w *Walks) Time(bytes int) price.Time {
	t := w.walks(1).Plus(price.Wait(w.Surprises * price.Surprise))
	for k, n := range w.Loads {
		between := float64(bytes)
		if k < maxApart {
			between = min(between, float64(int(linesBytes)<<k))
		}
		t = t.Plus(price.Memory(between).Times(n))
	}
	return t
}

// add adds a part of other walks.
func (w *Walks) add(v *Walks, part float64) {
	w.Steps += part * v.Steps
	w.Leaves += part * v.Leaves
	w.Entries += part * v.Entries
	w.Calls += part * v.Calls
	w.Rounds += part * v.Rounds
	w.Surprises += part * v.Surprises
	for k := range w.Loads {
		w.Loads[k] += part * v.Loads[k]
	}
}

// sampler follows packets as the emitted code does.
type sampler struct {
	t       *Table
	inPlace bool
	large   bool
	now     int32 // number of the packet
	sites   [maxTrees][straight + 2][kinds][maxSteps + 2]outcomes
	lines   map[int]asked // by line; those of ports are negative
	Walks
}

// site is the place of a branch. What came before tells the CPU in which round of a loop it is.
type site struct{ tree, walk, kind, round int }

// Kinds of branches.
const (
	isNode = iota
	onPorts
	outranked
	something
	follows
	closed
	otherAddresses
	otherPorts
	oneMore
	better
	final
	ended
	nextTree
	kinds
)

// outcomes counts how often a branch was taken, and how often it was reached.
type outcomes struct{ taken, all int32 }

// asked is the number of packets that asked for a line, and the last of them.
type asked struct{ packets, last int32 }

// sample follows packets that are made from the boxes, alike from each and half of them at corners;
// and packets from anywhere.
func (t *Table) sample(boxes []Box) (made, strange Walks) {
	r := rand.New(rand.NewPCG(1, uint64(len(boxes))))
	n := min(maxSamples, 64+16*len(boxes))
	made = t.walkPackets(n, func() Packet { return boxes[r.IntN(len(boxes))].packet(r) })
	any := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if t.pool.bits == 128 {
		any = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	all := Box{Src: any, Dst: any, Ports: [2]Span{Any, Any}}
	return made, t.walkPackets(n/4, func() Packet { return all.packet(r) })
}

// sampler makes one for first walks in place.
func (t *Table) sampler() *sampler {
	return &sampler{t: t, inPlace: true, large: t.Bytes() > cached, lines: map[int]asked{}}
}

// walkPackets walks n packets.
func (t *Table) walkPackets(n int, packet func() Packet) Walks {
	s := t.sampler()
	for range n {
		p := packet()
		s.now++
		s.lookUp(&p)
	}
	return s.average(n)
}

// packet draws one for which the box holds.
func (b *Box) packet(r *rand.Rand) (p Packet) {
	p.SrcHi, p.SrcLo = address(r, b.Src)
	p.DstHi, p.DstLo = address(r, b.Dst)
	for i, s := range b.Ports {
		p.Ports[i] = uint16(within(r, interval{uint64(s.Lo), uint64(s.Hi)}))
	}
	return p
}

func address(r *rand.Rand, p netip.Prefix) (hi, lo uint64) {
	if p.Addr().Is4() {
		return within(r, upper(p)), 0
	}
	return within(r, upper(p)), within(r, lower(p))
}

// within returns a number of an interval: its first, its last, or any. Corners of all addresses, or
// of a large part of them, are no hosts.
func within(r *rand.Rand, i interval) uint64 {
	n := i.hi - i.lo + 1
	if n == 0 {
		return r.Uint64()
	}
	const corners = 1 << 24
	switch from := r.IntN(4); {
	case from == 0 && n <= corners:
		return i.lo
	case from == 1 && n <= corners:
		return i.hi
	}
	return i.lo + r.Uint64N(n)
}

// branch notes what came of a branch.
func (s *sampler) branch(at site, taken bool) bool {
	o := &s.sites[at.tree][at.walk][at.kind][min(at.round, maxSteps+1)]
	o.all++
	if taken {
		o.taken++
	}
	return taken
}

// load notes a load from a line.
func (s *sampler) load(at int) {
	if l := s.lines[at]; l.last != s.now {
		s.lines[at] = asked{l.packets + 1, s.now}
	}
}

// lookUp follows one packet (Emit), and gives the lowest result of the boxes that match, or 0.
func (s *sampler) lookUp(q *Packet) uint32 {
	best := none
	for i := range s.t.trees {
		tr := &s.t.trees[i]
		if i > 0 && s.branch(site{i, 0, nextTree, 0}, !s.further(i, q, best)) {
			continue
		}
		d, on := tr.root, true
		if s.inPlace {
			asked := ask{rank: s.large && i > 0, gate: s.large}
			best, d, on = s.walk(d, q, best, site{tree: i}, asked)
		}
		for n := 1; on; n++ {
			if n == 1 {
				s.Calls++
			} else {
				s.Rounds++
			}
			at := site{tree: i, walk: min(n, straight+1)}
			best, d, on = s.walk(d, q, best, at, ask{rank: true, gate: true})
		}
	}
	return uint32(best >> needBits)
}

// further reports whether a packet goes on in the i-th tree (emitter.further), whose first step is
// made in any case.
func (s *sampler) further(i int, q *Packet, best uint64) bool {
	p, d := s.t.pool, s.t.trees[i].root
	on := best&needOf(i) != 0
	if s.inPlace && !isLeaf(d) {
		keys := q.keys(p.bits)
		child := p.child(d, &keys)
		s.load(child / line)
		if on = on && p.words.at(child) != nothing; !on {
			s.Steps++
		}
	}
	return on
}

// walk follows a walk from a descriptor through a leaf, and says where the next begins.
func (s *sampler) walk(d uint64, q *Packet, best uint64, at site, ask ask) (uint64, uint64, bool) {
	p, keys := s.t.pool, q.keys(s.t.pool.bits)
	shifted := func() uint64 { return keys[d>>codeShift&codeMask] >> (d >> bitsShift & bitsMask) }
	branch := func(kind, round int, taken bool) bool {
		return s.branch(site{at.tree, at.walk, kind, round}, taken)
	}
	known := s.inPlace && at.walk == 0 // what the root is
	for n := 0; ; n++ {
		if leaf := isLeaf(d); known && n == 0 {
			if leaf {
				break
			}
		} else if branch(isNode, n, d>>63 != 0) && branch(onPorts, n, leaf) {
			break
		}
		s.Steps++
		child := p.child(d, &keys)
		s.load(child / line)
		d = p.words.at(child)
	}
	s.Leaves++
	if ask.rank && branch(outranked, 0, d>>rankShift&(1<<rankBits-1) > best>>needBits>>p.scale) {
		return best, 0, false
	}
	count, first, behind := int(d>>countShift&countMask), int(uint32(d)), d&more != 0
	if branch(something, 0, count == 0 && !behind) {
		return best, 0, false
	}
	if !ask.gate || !branch(closed, 0, shifted()&valueMask != d>>valueShift&valueMask) {
		var found uint64
		best, found = s.entries(first, count, q, best, branch)
		if found != none && branch(final, 0, found&needBehind == 0) {
			return best, 0, false
		}
	}
	if branch(follows, 0, !behind) {
		return best, 0, false
	}
	s.load((first - header) / line)
	next := p.words.slice(first-header, header)
	return best, next[0], !branch(ended, 0, best <= next[1])
}

// entries follows the comparing of a leaf's entries.
func (s *sampler) entries(first, count int, q *Packet, best uint64,
	branch func(kind, round int, taken bool) bool) (after, found uint64) {
	p := s.t.pool
	n := entryWords(p.bits)
	for i := range count {
		at := first + i*n
		s.Entries++
		s.load(at / line)
		e := p.words.slice(at, n)
		if !branch(otherAddresses, i, !addressesAgree(e, q)) {
			if p.bits == 32 {
				s.load(-1 - int(e[1]>>pairShift&(1<<pairBits-1))/line)
			}
			if !branch(otherPorts, i, !p.matches(e, q)) {
				found := e[n-1] >> needShift
				if !branch(better, 0, found >= best) {
					best = found
				}
				return best, found
			}
		}
		branch(oneMore, i, i < count-1)
	}
	return best, none
}

// addressesAgree reports whether an entry's addresses hold for the packet.
func addressesAgree(e []uint64, q *Packet) bool {
	if last := e[len(e)-1]; len(e) == entry4 {
		return uint32(q.SrcHi^e[0]>>32)>>(last&(1<<openBits-1)) == 0 &&
			uint32(q.DstHi^e[0])>>(last>>openBits&(1<<openBits-1)) == 0
	}
	for i, v := range [4]uint64{q.SrcHi, q.SrcLo, q.DstHi, q.DstLo} {
		if (v^e[i])&e[4+i] != 0 {
			return false
		}
	}
	return true
}

// average returns what one of n packets does. A branch surprises where it goes the rarer way.
func (s *sampler) average(n int) (w Walks) {
	w.add(&s.Walks, 1/float64(n))
	for _, walks := range s.sites {
		for _, kinds := range walks {
			for _, rounds := range kinds {
				for _, o := range rounds {
					w.Surprises += float64(min(o.taken, o.all-o.taken)) / float64(n)
				}
			}
		}
	}
	for _, l := range s.lines {
		apart := maxApart
		if l.packets > 1 || n < maxSamples {
			apart = min(maxApart, bits.Len(uint(n)/uint(l.packets))-1)
		}
		w.Loads[apart] += float64(l.packets) / float64(n)
	}
	return w
}
