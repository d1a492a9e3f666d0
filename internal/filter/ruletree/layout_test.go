package ruletree

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// A packet that matches in the first leaf of a row has not to go through the others: each says
// which rule is the first behind it.
func TestRowsOfLeavesEndAtTheFirstMatch(t *testing.T) {
	p := NewPool(32, 3*maxLeaf)
	every := netip.MustParsePrefix("0.0.0.0/0")
	var boxes []Box
	for i := range 3 * maxLeaf {
		boxes = append(boxes, Box{Src: every, Dst: every, Ports: [2]Span{Any, Any},
			Result: uint32(i + 1)})
	}
	s, rules := rulesOf(32, boxes)
	d := newBuilder(p, &Table{pool: p}, s).leaf(&region{}, rules, after{})
	for leaf := 1; d&more != 0; leaf++ {
		next := p.words.slice(int(uint32(d))-header, header)
		if want := s.result(rules[leaf*maxLeaf]); next[1]>>needBits != want {
			t.Errorf("leaf %d: what follows begins with %#x, want %#x", leaf, next[1], want)
		}
		d = next[0]
	}
}

// The gate of a leaf lets in every packet that one of its rules matches, and asks for bits that the
// way to the leaf has not settled.
func TestGatesLetInWhatRulesMatch(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	passes := func(width int, gate uint64, q *Packet) bool {
		return q.keys(width)[gate>>codeShift&codeMask]>>(gate>>bitsShift&bitsMask)&valueMask ==
			gate>>valueShift&valueMask
	}
	turned := 0
	for range 4000 {
		width := []int{32, 128}[rng.IntN(2)]
		boxes := randomBoxes(rng, width, 1+rng.IntN(3))
		s, rules := rulesOf(width, boxes)
		g := everything(width)
		for f := range g.known {
			g.known[f] = rng.Uint64()
		}
		gate := s.gate(&g, rules)
		for range 20 {
			q := packetIn(rng, &boxes[rng.IntN(len(boxes))])
			switch ok := passes(width, gate, &q); {
			case ok:
			case naive(boxes, &q) != 0:
				t.Fatalf("gate %#x of %+v turns %+v away", gate, boxes, q)
			default:
				turned++
			}
		}
	}
	if turned == 0 {
		t.Error("no gate turned anything away")
	}

	s, network := rulesOf(32,
		[]Box{{Src: netip.MustParsePrefix("198.51.100.0/24"), Dst: any4, Ports: [2]Span{Any, Any}}})
	g := everything(32)
	g.known[src] = 0xffff00 // but for the upper eight bits of the network
	if got, want := s.gate(&g, network), uint64(198<<valueShift|(32+24)<<bitsShift); got != want {
		t.Errorf("gate %#x, want %#x: the upper byte of the source", got, want)
	}
	g.known[src] = 0xffffff00
	if got := s.gate(&g, network); got != open(32) {
		t.Errorf("gate %#x where nothing is left to ask, want an open one", got)
	}
}

// A leaf's rank never exceeds that of a result in it or behind it, and nothing comes after all.
func TestRanksAreThoseOfTheLowestResult(t *testing.T) {
	const top = 40_000
	p := NewPool(32, top)
	rank := func(d uint64) uint64 { return d >> rankShift & (1<<rankBits - 1) }
	for _, result := range []uint32{1, 300, 39_999, top} {
		s, r := rulesOf(32, []Box{{Src: any4, Dst: any4, Ports: [2]Span{Any, Any}, Result: result}})
		b := newBuilder(p, &Table{pool: p}, s)
		if got, want := rank(b.leaf(&region{}, r, after{})), uint64(result)>>p.scale; got != want {
			t.Errorf("result %d: rank %d, want %d", result, got, want)
		}
		behind := after{d: nothing, first: 200}
		if got, want := rank(b.leaf(&region{}, r, behind)),
			uint64(min(result, 200))>>p.scale; got != want {
			t.Errorf("result %d before 200: rank %d, want %d", result, got, want)
		}
	}
	if rank(nothing) < uint64(top)>>p.scale || rank(nothing) > none>>p.scale {
		t.Errorf("rank %d of nothing", rank(nothing))
	}
}

// Entries have room for the highest result and, for IPv4, for the number of any pair of ports
// beside it; boxes with the same ports share it.
func TestEntriesHoldAnyResultAndShareTheirPorts(t *testing.T) {
	const used = 1 << 17 // numbers of pairs that other tables have
	for _, width := range []int{32, 128} {
		prefix := func(four, six string) netip.Prefix {
			return netip.MustParsePrefix(map[int]string{32: four, 128: six}[width])
		}
		every, hosts, host := prefix("0.0.0.0/0", "::/0"), prefix("192.0.2.0/31", "2001:db8::/127"),
			prefix("192.0.2.9/32", "2001:db8::9/128")
		boxes := []Box{
			{Src: hosts, Dst: every, Ports: [2]Span{{1, 0xffff}, {53, 53}}, Result: 1},
			{Src: host, Dst: host, Ports: [2]Span{{1, 0xffff}, {53, 53}}, Result: MaxResult - 1},
			{Src: every, Dst: every, Ports: [2]Span{Any, Any}, Result: MaxResult},
		}
		pool := NewPool(width, MaxResult)
		for n := range uint64(used) {
			pool.pairs.number(n)
		}
		before := pool.words.n
		table := pool.Add(boxes)
		added := map[int]int{32: 2, 128: 0}[width]
		if n := len(pool.pairs.words) - used; n != added {
			t.Errorf("%d pairs of ports, want %d", n, added)
		}
		if got, want := table.Bytes(), 8*(pool.words.n-before+added); got != want {
			t.Errorf("%d bytes, want %d", got, want)
		}
		k := load(t, table)
		for i := range boxes {
			hi, lo, _, _ := halves(boxes[i].Src)
			for _, port := range []uint16{0, 1, 0xffff} {
				agree(t, boxes, table, k, &Packet{SrcHi: hi, SrcLo: lo, DstHi: hi, DstLo: lo,
					Ports: [2]uint16{port, 53}})
			}
		}
	}
}

// What is left of a line is given once, to what fits, and nothing that a line has room for lies on
// two.
func TestRestsOfLinesAreUsedOnce(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 6))
	p := NewPool(32, 1)
	for _, tt := range []struct{ n, at int }{{1, firstWord}, {line, firstWord + line},
		{2, firstWord + 1}, {5, firstWord + 3}, {1, firstWord + 2*line}} {
		if at := p.reserve(tt.n); at != tt.at {
			t.Fatalf("%d words begin at %d, want %d", tt.n, at, tt.at)
		}
	}
	p = NewPool(32, 1)
	owned := make(map[int]bool)
	sum := 0
	for range 4000 {
		n := 1 + rng.IntN(2*line)
		at := p.reserve(n)
		if n <= line && at/line != (at+n-1)/line {
			t.Fatalf("%d words from %d are on two lines", n, at)
		}
		for i := at; i < at+n; i++ {
			if i < firstWord || i >= p.words.n || owned[i] {
				t.Fatalf("word %d was given before, or is none", i)
			}
			owned[i] = true
		}
		sum += n
	}
	if lost := p.words.n - firstWord - sum; lost > sum/20 {
		t.Errorf("%d words lost beside %d", lost, sum)
	}
}

// A leaf without rules of its own leads on also where nothing lies behind it.
func TestAnEmptyLeafAtTheEndLeadsOn(t *testing.T) {
	boxes := []Box{{Src: any4, Dst: any4, Ports: [2]Span{Any, Any}, Result: 5}}
	p := NewPool(32, 5)
	s, rules := rulesOf(32, boxes)
	table := &Table{pool: p}
	b := newBuilder(p, table, s)
	d := b.leaf(&region{}, nil, after{d: b.leaf(&region{}, rules, after{}), first: 5})
	table.trees, table.end, table.numbers = []tree{{root: d,
		first: 5}}, p.words.n, len(p.pairs.words)
	if first := int(uint32(d)); first != table.end {
		t.Fatalf("the leaf's first entry would be word %d of %d", first, table.end)
	}
	agree(t, boxes, table, load(t, table), &Packet{})
}
