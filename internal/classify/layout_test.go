package classify

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// A packet that matches in the first leaf of a row has not to go through the others: each says which rule is the first behind it.
func TestRowsOfLeavesEndAtTheFirstMatch(t *testing.T) {
	p := NewPool(32, 3*maxLeaf)
	every := netip.MustParsePrefix("0.0.0.0/0")
	var boxes []Box
	for i := range 3 * maxLeaf {
		boxes = append(boxes, Box{Src: every, Dst: every, Ports: [2]Span{Any, Any}, Result: uint32(i + 1)})
	}
	s, rules := rulesOf(32, boxes)
	d := newBuilder(p, &Table{pool: p}, s).leaf(&region{}, rules, after{})
	for leaf := 1; d&more != 0; leaf++ {
		next := p.words.slice(int(uint32(d))-header, header)
		if want := s.result(rules[leaf*maxLeaf]); next[1] != want {
			t.Errorf("leaf %d: what follows begins with %#x, want %#x", leaf, next[1], want)
		}
		d = next[0]
	}
}

// The gate of a leaf lets in every packet that one of its rules matches, and asks for bits that the way to the leaf has
// not settled.
func TestGatesLetInWhatRulesMatch(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	passes := func(gate uint64, q *Packet) bool {
		fields := [...]uint64{q.SrcHi, q.DstHi, uint64(q.Ports[0]), uint64(q.Ports[1]), q.SrcLo, q.DstLo}
		return fields[gate>>codeShift&codeMask]>>(gate>>bitsShift&bitsMask)&valueMask == gate>>valueShift&valueMask
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
			switch ok := passes(gate, &q); {
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

	s, network := rulesOf(32, []Box{{Src: netip.MustParsePrefix("198.51.100.0/24"), Dst: any4, Ports: [2]Span{Any, Any}}})
	g := everything(32)
	g.known[src] = 0xffff00 // but for the upper eight bits of the network
	if got, want := s.gate(&g, network), uint64(198<<valueShift|24<<bitsShift); got != want {
		t.Errorf("gate %#x, want %#x: the upper byte of the source", got, want)
	}
	g.known[src] = 0xffffff00
	if got := s.gate(&g, network); got != open {
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
		if got, want := rank(b.leaf(&region{}, r, behind)), uint64(min(result, 200))>>p.scale; got != want {
			t.Errorf("result %d before 200: rank %d, want %d", result, got, want)
		}
	}
	if rank(nothing) < uint64(top)>>p.scale || rank(nothing) > none>>p.scale {
		t.Errorf("rank %d of nothing", rank(nothing))
	}
}

// An entry for IPv4 has room for the highest result beside ports that have a number, which boxes with the same ports share.
func TestEntriesHoldAnyResultAndShareTheirPorts(t *testing.T) {
	boxes := []Box{
		{Src: netip.MustParsePrefix("192.0.2.0/31"), Dst: any4, Ports: [2]Span{{1, 0xffff}, {53, 53}}, Result: 1},
		{Src: netip.MustParsePrefix("192.0.2.9/32"), Dst: netip.MustParsePrefix("192.0.2.9/32"), Ports: [2]Span{{1, 0xffff}, {53, 53}}, Result: MaxResult - 1},
		{Src: any4, Dst: any4, Ports: [2]Span{Any, Any}, Result: MaxResult},
	}
	table := NewPool(32, MaxResult).Add(boxes)
	if n := table.pool.PortsSize() / 8; n != 2 {
		t.Errorf("%d pairs of ports, want 2", n)
	}
	k := load(t, table)
	for _, q := range []Packet{
		{SrcHi: 0xc0000201, Ports: [2]uint16{1, 53}},
		{SrcHi: 0xc0000209, DstHi: 0xc0000209, Ports: [2]uint16{0xffff, 53}},
		{SrcHi: 0xc0000209, DstHi: 0xc0000209, Ports: [2]uint16{0, 53}},
		{SrcHi: 0xffffffff},
	} {
		want := naive(boxes, &q)
		if got := table.Lookup(q); got != want {
			t.Errorf("%+v: table says %d, comparing all %d", q, got, want)
		}
		if got := k.lookup(t, &q); got != want {
			t.Errorf("%+v: program says %d, comparing all %d", q, got, want)
		}
	}
}
