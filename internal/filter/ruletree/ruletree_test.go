package ruletree

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"levee/internal/bench/workload"
)

const seed = 7

// randomBoxes makes boxes of the kinds that real rule sets have: nested prefixes, wide and narrow
// ports, many alike.
func randomBoxes(rng *rand.Rand, bits, n int) []Box {
	prefix := func() netip.Prefix {
		lens := []int{0, 8, 16, 20, 24, 28, 31, 32}
		if bits == 128 {
			lens = []int{0, 16, 32, 48, 56, 64, 65, 96, 127, 128}
		}
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], rng.Uint64()&0x03030f0f0f0fffff)
		binary.BigEndian.PutUint64(a[8:], rng.Uint64()&0x0000000000ff00ff)
		addr := netip.AddrFrom16(a)
		if bits == 32 {
			addr = netip.AddrFrom4([4]byte(a[4:8]))
		}
		p, _ := addr.Prefix(lens[rng.IntN(len(lens))])
		return p
	}
	span := func() Span {
		switch rng.IntN(4) {
		case 0:
			v := uint16(rng.IntN(1 << 16))
			return Span{v, v}
		case 1:
			return Span{1024, 0xffff}
		case 2:
			a, b := uint16(rng.IntN(1<<16)), uint16(rng.IntN(1<<16))
			return Span{min(a, b), max(a, b)}
		}
		return Any
	}
	boxes := make([]Box, n)
	for i := range boxes {
		boxes[i] = Box{Src: prefix(), Dst: prefix(), Ports: [2]Span{span(), span()},
			Result: uint32(i + 1)}
	}
	return boxes
}

// packetIn picks a packet in or just beside a box.
func packetIn(rng *rand.Rand, b *Box) Packet {
	address := func(p netip.Prefix) (hi, lo uint64) {
		hi, lo, maskHi, maskLo := halves(p)
		switch rng.IntN(4) {
		case 0:
		case 1:
			hi, lo = hi|^maskHi, lo|^maskLo
		case 2:
			hi, lo = hi|rng.Uint64()&^maskHi, lo|rng.Uint64()&^maskLo
		case 3:
			hi ^= 1 << rng.IntN(32)
		}
		if p.Addr().Is4() {
			return hi & 0xffffffff, 0
		}
		return hi, lo
	}
	port := func(s Span) uint16 {
		return [...]uint16{s.Lo, s.Hi, s.Lo - 1, s.Hi + 1, s.Lo +
			uint16(rng.IntN(int(s.Hi-s.Lo)+1))}[rng.IntN(5)]
	}
	var p Packet
	p.SrcHi, p.SrcLo = address(b.Src)
	p.DstHi, p.DstLo = address(b.Dst)
	p.Ports = [2]uint16{port(b.Ports[0]), port(b.Ports[1])}
	return p
}

// naive is the first box that matches, one by one.
func naive(boxes []Box, p *Packet) uint32 {
	in := func(q netip.Prefix, hi, lo uint64) bool {
		vHi, vLo, mHi, mLo := halves(q)
		return (hi^vHi)&mHi == 0 && (lo^vLo)&mLo == 0
	}
	for i := range boxes {
		b := &boxes[i]
		if in(b.Src, p.SrcHi, p.SrcLo) && in(b.Dst, p.DstHi, p.DstLo) &&
			p.Ports[0] >= b.Ports[0].Lo && p.Ports[0] <= b.Ports[0].Hi &&
			p.Ports[1] >= b.Ports[1].Lo && p.Ports[1] <= b.Ports[1].Hi {
			return b.Result
		}
	}
	return 0
}

// halves gives value and mask of a prefix; an IPv4 prefix fills the upper half's low 32 bits.
func halves(p netip.Prefix) (hi, lo, maskHi, maskLo uint64) {
	const ones = ^uint64(0)
	if p.Addr().Is4() {
		a := p.Addr().As4()
		return uint64(binary.BigEndian.Uint32(a[:])), 0, uint64(uint32(ones << (32 - p.Bits()))), 0
	}
	a := p.Addr().As16()
	hi, lo = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	if p.Bits() <= 64 {
		return hi, lo, ones << (64 - p.Bits()), 0
	}
	return hi, lo, ones, ones << (128 - p.Bits())
}

func memoryOf(p *Pool) []byte {
	value := make([]byte, p.Size())
	p.Put(value)
	return value
}

func portsOf(p *Pool) []byte {
	value := make([]byte, p.PortsSize())
	p.PutPorts(value)
	return value
}

// rulesOf gives the rules of boxes, and a list of all of them.
func rulesOf(width int, boxes []Box) (s *ruleSet, all []int32) {
	s = newRuleSet(width, len(boxes))
	for i := range boxes {
		s.add(&boxes[i])
		all = append(all, int32(i))
	}
	return s, all
}

// agree holds the table and its programs against comparing all boxes.
func agree(t *testing.T, boxes []Box, table *Table, k *kernel, p *Packet) {
	t.Helper()
	want := naive(boxes, p)
	if got := table.Lookup(*p); got != want {
		t.Fatalf("%+v: table says %d, comparing all %d", *p, got, want)
	}
	if got := k.lookup(t, p); got != [2]uint32{want, want} {
		t.Fatalf("%+v: programs say %d, comparing all %d", *p, got, want)
	}
}

func TestTableAndProgramAgreeWithComparingAll(t *testing.T) {
	for _, bits := range []int{32, 128} {
		for _, n := range []int{1, 5, 40, 300, 2000} {
			t.Run(fmt.Sprintf("%d-%d", bits, n), func(t *testing.T) {
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, uint64(bits*n)))
				boxes := randomBoxes(rng, bits, n)
				table := NewPool(bits, uint32(n)).Add(boxes)
				t.Logf("%s, %d bytes", table.Kind(), table.Bytes())
				k := load(t, table)
				for range 4000 {
					p := packetIn(rng, &boxes[rng.IntN(n)])
					agree(t, boxes, table, k, &p)
				}
			})
		}
	}
}

// hostile are the worst sets for trees: whatever they are, they must be held, and decide as
// comparing all does.
var hostile = []struct {
	name string
	box  func(rng *rand.Rand, i, n int) Box
}{
	{"every box overlaps every other", func(_ *rand.Rand, i, n int) Box {
		return Box{Src: any4, Dst: any4,
			Ports: [2]Span{{uint16(n - i), uint16(60000 + i%5000)}, {uint16(i), uint16(50000 + i)}}}
	}},
	{"all are the same", func(*rand.Rand, int, int) Box {
		return Box{Src: netip.MustParsePrefix("192.0.2.0/31"), Dst: any4,
			Ports: [2]Span{{3, 9}, Any}}
	}},
	{"all are nearly the same", func(_ *rand.Rand, i, n int) Box {
		return Box{Src: netip.MustParsePrefix("192.0.2.0/31"), Dst: any4,
			Ports: [2]Span{{3, uint16(40000 + i)}, {uint16(n - i), 50000}}}
	}},
	{"nested, the widest first", func(_ *rand.Rand, i, n int) Box {
		p, _ := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).Prefix(32 * i / n)
		q, _ := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).Prefix(32 * i / n)
		return Box{Src: p, Dst: q, Ports: [2]Span{{uint16(i), uint16(i)}, {uint16(i % 7), 0xffff}}}
	}},
	{"nested in one address and crossed in the other", func(_ *rand.Rand, i, n int) Box {
		p, _ := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).Prefix(i % 33)
		q, _ := netip.AddrFrom4([4]byte{10, byte(i), byte(i >> 8), 1}).Prefix(32 - i%33)
		return Box{Src: p, Dst: q, Ports: [2]Span{Any, {uint16(i % 100), uint16(i%100 + 9)}}}
	}},
	{"a staircase of ports", func(_ *rand.Rand, i, n int) Box {
		return Box{Src: any4, Dst: any4,
			Ports: [2]Span{{uint16(16 * i), 0xffff}, {0, uint16(0xffff - 16*i)}}}
	}},
	{"anything", func(rng *rand.Rand, _, _ int) Box { return randomBoxes(rng, 32, 1)[0] }},
}

var any4 = netip.MustParsePrefix("0.0.0.0/0")

func TestHostileBoxesAreHeld(t *testing.T) {
	const n = 4000
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			boxes := make([]Box, n)
			for i := range boxes {
				boxes[i] = tt.box(rng, i, n)
				boxes[i].Result = uint32(i + 1)
			}
			table := NewPool(32, uint32(len(boxes))).Add(boxes)
			t.Logf("%s, %d bytes", table.Kind(), table.Bytes())
			if most := 1000 * n; table.Bytes() > most {
				t.Errorf("%d bytes, want %d at most", table.Bytes(), most)
			}
			k := load(t, table)
			for range 1500 {
				p := packetIn(rng, &boxes[rng.IntN(n)])
				agree(t, boxes, table, k, &p)
			}
		})
	}
}

// generatedBoxes are the rules of a shape that TCP packets meet.
func generatedBoxes(t testing.TB, shape string, n int) (boxes []Box) {
	rules, err := workload.Rules(shape, n, seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Proto == 0 || r.Proto == 6 {
			boxes = append(boxes, Box{
				Src: r.Src, Dst: r.Dst, Ports: [2]Span{{r.SrcPort.Lo, r.SrcPort.Hi},
					{r.DstPort.Lo, r.DstPort.Hi}},
				Result: uint32(len(boxes) + 1),
			})
		}
	}
	return boxes
}

var large = flag.Int("large", 10_000, "rules of each generated set")

func TestGeneratedSetsAreAnsweredInFewSteps(t *testing.T) {
	for _, shape := range workload.Shapes {
		t.Run(shape, func(t *testing.T) {
			t.Logf("seed %d", seed)
			boxes := generatedBoxes(t, shape, *large)
			table := NewPool(32, uint32(len(boxes))).Add(boxes)
			t.Logf("%d boxes, %s, %d bytes", len(boxes), table.Kind(), table.Bytes())
			if most := 200 * len(boxes); table.Bytes() > most {
				t.Errorf("%d bytes, want %d at most", table.Bytes(), most)
			}
			k := load(t, table)
			rng := rand.New(rand.NewPCG(seed, 2))
			entries := 0
			const packets = 1500
			for range packets {
				p := packetIn(rng, &boxes[rng.IntN(len(boxes))])
				agree(t, boxes, table, k, &p)
				entries += table.compared(&p)
			}
			if mean := float64(entries) / packets; mean > 32 {
				t.Errorf("%.1f entries compared for a packet, want 32 at most", mean)
			}
		})
	}
}

// The size of large tables decides what a packet takes
// (docs/explanation/decisions/0014-classifier.md).
func TestLargeTablesAreSmall(t *testing.T) {
	for _, shape := range workload.Shapes {
		boxes := generatedBoxes(t, shape, 100_000)
		table := NewPool(32, uint32(len(boxes))).Add(boxes)
		if most := 60 * len(boxes); table.Bytes() > most {
			t.Errorf("%s: %d bytes for %d boxes, want %d at most", shape, table.Bytes(), len(boxes),
				most)
		}
	}
}

// compared counts the entries that a look-up compares with the packet, but for what a better match
// spares.
func (t *Table) compared(q *Packet) (n int) {
	keys := q.keys(t.pool.bits)
	for _, tr := range t.trees {
		for d := tr.root; ; {
			for !isLeaf(d) {
				d = t.pool.words.at(t.pool.child(d, &keys))
			}
			n += int(d >> countShift & countMask)
			if d&more == 0 {
				break
			}
			d = t.pool.words.at(int(uint32(d)) - header)
		}
	}
	return n
}

// A later tree must not be skipped for an earlier one's match that comes after its own, nor win by
// being later.
func TestPriorityHoldsAcrossTrees(t *testing.T) {
	host := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 32)
	}
	for _, wideFirst := range []bool{false, true} {
		var boxes []Box
		for i := range 600 {
			b := Box{Src: host(i / 3), Dst: host(i / 3), Ports: [2]Span{Any, Any},
				Result: uint32(i + 1)}
			switch wide := i % 3; {
			case wide == 0 == wideFirst:
				b.Src = any4
			case wide == 1:
				b.Dst = any4
			}
			boxes = append(boxes, b)
		}
		rules, _ := rulesOf(32, boxes)
		for i, by := range partings {
			pool := NewPool(32, uint32(len(boxes)))
			groups := rules.split(rules.distinct(), by)
			table := pool.build(rules, groups, usualCopies)
			if i == 0 && len(table.trees) < 2 {
				t.Fatalf("%d trees: the test is of several", len(table.trees))
			}
			k := load(t, table)
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 1000 {
				p := packetIn(rng, &boxes[rng.IntN(len(boxes))])
				agree(t, boxes, table, k, &p)
			}
		}
	}
}

// Tables of one pool lie in one memory, and are searched by one function.
func TestTablesOfAPoolDoNotMeet(t *testing.T) {
	for _, width := range []int{32, 128} {
		rng := rand.New(rand.NewPCG(seed, 1))
		pool := NewPool(width, 400)
		var sets [][]Box
		var tables []*Table
		for n := range 6 {
			sets = append(sets, randomBoxes(rng, width, 1+60*n))
			tables = append(tables, pool.Add(sets[n]))
		}
		for n, table := range tables {
			k := load(t, table)
			for range 500 {
				p := packetIn(rng, &sets[n][rng.IntN(len(sets[n]))])
				agree(t, sets[n], table, k, &p)
			}
		}
	}
}

// A block either lies within its region, which rules that fill the region then fill too, or holds
// it, so that no packet comes from outside. One that did neither would send packets to children
// that lack their rules.
func TestBlocksLieWithinTheRegionOrHoldIt(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	between := func(lo, hi uint64) interval {
		a, b := lo+rng.Uint64N(hi-lo+1), lo+rng.Uint64N(hi-lo+1)
		return interval{min(a, b), max(a, b)}
	}
	for range 20000 {
		g := everything(32)
		g.cut[port0] = between(0, 40)
		var boxes []Box
		for range 1 + rng.IntN(4) {
			inside := between(g.cut[port0].lo, g.cut[port0].hi) // a rule of the region meets it
			lo, hi := inside.lo-rng.Uint64N(inside.lo+1), inside.hi+rng.Uint64N(9)
			boxes = append(boxes, Box{Src: any4, Dst: any4,
				Ports: [2]Span{{uint16(lo), uint16(hi)}, Any}})
		}
		s, rules := rulesOf(32, boxes)
		base, size, ok := s.block(&g, rules, port0)
		if !ok {
			continue
		}
		b := interval{base, base + uint64(1)<<size - 1}
		if !b.contains(g.cut[port0]) && !g.cut[port0].contains(b) {
			t.Fatalf("region %v, block %v", g.cut[port0], b)
		}
		for _, r := range rules {
			if f := s.field(r, port0); !f.contains(g.cut[port0]) &&
				!b.contains(interval{max(f.lo, g.cut[port0].lo), min(f.hi, g.cut[port0].hi)}) {
				t.Fatalf("region %v, block %v leaves out %v", g.cut[port0], b, f)
			}
		}
	}
}

// Segments of a node need not be aligned to powers of two. With few values of each field every case
// comes up.
func TestSmallWorldsAgreeWithComparingAll(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	span := func(values int) Span {
		a, b := uint16(rng.IntN(values)), uint16(rng.IntN(values))
		if rng.IntN(8) == 0 {
			return Any
		}
		return Span{min(a, b), max(a, b)}
	}
	prefix := func() netip.Prefix {
		p, _ := netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(8))}).Prefix([]int{0, 28, 29, 30,
			31, 32}[rng.IntN(6)])
		return p
	}
	for world := range 120 {
		values := []int{24, 70, 300}[world%3]
		boxes := make([]Box, 5+rng.IntN(values))
		for i := range boxes {
			boxes[i] = Box{Src: any4, Dst: any4, Ports: [2]Span{span(values), span(values)},
				Result: uint32(i + 1)}
			if world%2 == 1 {
				boxes[i].Src, boxes[i].Dst = prefix(), prefix()
			}
		}
		table := NewPool(32, uint32(len(boxes))).Add(boxes)
		for range 1500 {
			p := Packet{SrcHi: 10<<24 + uint64(rng.IntN(9)), DstHi: 10<<24 + uint64(rng.IntN(9))}
			p.Ports = [2]uint16{uint16(rng.IntN(values + 9)), uint16(rng.IntN(values + 9))}
			if got, want := table.Lookup(p), naive(boxes, &p); got != want {
				t.Fatalf("world %d, %+v: got %d, want %d", world, p, got, want)
			}
		}
	}
}

// FuzzTable makes boxes of any bytes, and compares the table with comparing all.
func FuzzTable(f *testing.F) {
	f.Add([]byte("boxes that overlap, and boxes that do not, of any lengths"), uint64(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 32,
		32, 1, 2, 3, 4}, uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		const size = 14
		var boxes []Box
		for ; len(data) >= size && len(boxes) < 300; data = data[size:] {
			src, _ := netip.AddrFrom4([4]byte(data)).Prefix(int(data[8]) % 33)
			dst, _ := netip.AddrFrom4([4]byte(data[4:])).Prefix(int(data[9]) % 33)
			a, b := binary.LittleEndian.Uint16(data[10:]), binary.LittleEndian.Uint16(data[12:])
			boxes = append(boxes, Box{Src: src, Dst: dst,
				Ports: [2]Span{{min(a, b), max(a, b)}, {0, a}}, Result: uint32(len(boxes) + 1)})
		}
		if len(boxes) == 0 {
			return
		}
		table := NewPool(32, uint32(len(boxes))).Add(boxes)
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 200 {
			p := packetIn(rng, &boxes[rng.IntN(len(boxes))])
			if got, want := table.Lookup(p), naive(boxes, &p); got != want {
				t.Fatalf("%+v: got %d, want %d", p, got, want)
			}
		}
	})
}

// Hosts of one /64 differ in the lower half of their addresses only. Trees that cut the upper half
// alone could not part them, and left most of them over.
func TestHostsOfOneNetworkAreParted(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 0))
	boxes := make([]Box, 5000)
	for i := range boxes {
		a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
		binary.BigEndian.PutUint64(a[8:], rng.Uint64())
		lo, hi := uint16(rng.Uint32()), uint16(rng.Uint32())
		boxes[i] = Box{
			Src:    netip.PrefixFrom(netip.AddrFrom16(a), 128),
			Dst:    netip.PrefixFrom(netip.IPv6Unspecified(), 0),
			Ports:  [2]Span{Any, {min(lo, hi), max(lo, hi)}},
			Result: uint32(i + 1),
		}
	}
	table := NewPool(128, uint32(len(boxes))).Add(boxes)
	for i, b := range boxes {
		hi, lo, _, _ := halves(b.Src)
		p := Packet{SrcHi: hi, SrcLo: lo, Ports: [2]uint16{1, b.Ports[1].Lo}}
		if got := table.Lookup(p); got != b.Result {
			t.Fatalf("rule %d: got %d", i, got)
		}
		if p.SrcLo ^= 1; table.Lookup(p) != 0 {
			t.Fatalf("rule %d matches the address beside its own", i)
		}
	}
}
