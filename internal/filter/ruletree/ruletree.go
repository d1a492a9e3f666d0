// Package ruletree finds the first of many rules that matches a packet's addresses and ports, at a
// cost that hardly depends on how many rules there are.
//
// In go boxes (a source prefix, a destination prefix and two ranges of 16-bit numbers each, and the
// result, of which the lowest wins), out come two pieces of memory, the eBPF function that looks a
// packet up in them, and a Go reference that reads the same words.
//
// The structure is a small forest of decision trees in the manner of HiCuts (Gupta and McKeown, Hot
// Interconnects 1999): a node takes a window of bits of one field as index of its child, children
// with the same rules are one, and a leaf is a few rules that are compared one by one; it alone
// decides, so a tree can be slow but never wrong. A rule that would be copied into too many
// children is put aside instead, into a tree of its own that is walked after any leaf below the
// node. This is the separation of EffiCuts (Vamanan et al., SIGCOMM 2010), made where it is needed
// and no further up. What follows a leaf is written in the leaf: a walk needs no stack, and a list
// of rules of any length can be a row of leaves. So every set of boxes can be held. What points to
// a leaf tells a packet that cannot match there, or has a better match already, so that most leaves
// that have nothing for a packet are not read: of a large table they are what the cache does not
// hold. And a rule's entry says where a better match may be at all, so that most packets that have
// one walk no further.
//
// Building is pure. It must never depend on the kernel or load anything.
package ruletree

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sync"

	"levee/internal/filter/price"
)

// Box is a rule: it matches where all four fields lie inside.
type Box struct {
	Src, Dst netip.Prefix // masked, of the pool's family
	Ports    [2]Span      // source and destination port, or any two 16-bit numbers
	Result   uint32       // what a look-up answers, not 0; of boxes that match the lowest wins
}

// Span is inclusive.
type Span struct{ Lo, Hi uint16 }

// Any is the full span.
var Any = Span{0, 0xffff}

// Limits of the structure. They bound what the verifier walks.
const (
	maxTrees = 4  // at the beginning of a table
	maxLeaf  = 16 // rules of one leaf; what is more is in leaves that follow it
	maxDepth = 16 // nodes above a leaf
	// nodes from the beginning of a walk to its leaf, with those of trees that follow at once
	maxSteps = 40
	maxBits  = 15 // bits of one index
)

// Pool holds the tables of one family.
type Pool struct {
	bits  int // 32 or 128
	scale int // a rank is a result shifted by so many bits, see layout.go
	words words
	rests [line][]int // where words of cache lines are free, by how many: see reserve
	pairs pairs       // of ports, for IPv4
}

// Table is rule trees in a pool.
type Table struct {
	pool    *Pool
	trees   []tree // in order of first
	end     int    // no descriptor points beyond
	numbers int    // of pairs of ports are below
	stats   stats

	// What look-ups do with packets made from the boxes, alike from each, and with any.
	Matched, Strange Walks
}

// tree is one of those at the beginning of a table.
type tree struct {
	root  uint64 // descriptor, see layout.go
	first uint64 // lowest result in it
	steps int    // nodes above the deepest leaf
}

// stats counts the parts of a tree that was built.
type stats struct {
	words, entries int
	aside          int // trees that follow leaves
	steps          int // of the longest walk from a root
}

// Limits of an entry for IPv4: the highest result that a box may have, and in how large a pool
// pairs of ports never run out of numbers, as each is of an entry.
const (
	MaxResult = 1<<(64-resultShift) - 1
	MaxSize   = entry4 * wordBytes << pairBits
)

// NewPool makes an empty pool for a family, width 32 or 128, whose boxes have results of top at
// most, which is MaxResult or less.
func NewPool(width int, top uint32) *Pool {
	return newPool(width, max(0, bits.Len32(top)-rankBits))
}

func newPool(width, scale int) *Pool {
	p := &Pool{bits: width, scale: scale, pairs: pairs{numbers: map[uint64]int{}}}
	p.words.grow(firstWord)
	return p
}

// Add builds the trees of boxes.
func (p *Pool) Add(boxes []Box) *Table {
	byResult := func(a, b Box) int { return cmp.Compare(a.Result, b.Result) }
	if !slices.IsSortedFunc(boxes, byResult) {
		boxes = slices.Clone(boxes)
		slices.SortStableFunc(boxes, byResult)
	}
	rules := newRuleSet(p.bits, len(boxes))
	for i := range boxes {
		rules.add(&boxes[i])
	}
	way, groups := p.fastest(rules, boxes)
	t := p.build(rules, groups, way.copies)
	t.Matched, t.Strange = t.sample(boxes)
	return t
}

// maxTried is up to how many rules a table is built in several ways, of which one is kept.
const maxTried = 1 << 14

// moreMemory is the multiple of the usual memory that another way to part rules may take. What
// needs more loses by it, where neighbours have the cache, what it wins by fewer trees.
const moreMemory = 1.1

// strangers is the number of packets from anywhere for each that is made from a rule.
const strangers = 0.1

// way says how to build a table: how rules are parted into trees, and which part of the usual
// copies of rules there may be.
type way struct {
	parting
	copies float64
}

// Where there are fewer copies tables are smaller, and packets compare more: that may gain where a
// table is larger than the cache next to the CPU.
const (
	usualCopies = 1
	fewCopies   = 0.5
)

// fastest tries ways to build a table, and gives the one in which packets take least, where the
// tables of other classes of packets take as much memory again; and the rules of each tree.
func (p *Pool) fastest(rules *ruleSet, boxes []Box) (best way, groups [][]int32) {
	list := rules.distinct()
	usual := way{partings[0], usualCopies}
	best, groups = usual, rules.split(list, usual.parting)
	if rules.len() > maxTried {
		return best, groups
	}
	ways, parted := []way{usual}, [][][]int32{groups}
	copies := fewCopies
	if rules.len() <= fewRules {
		copies = usualCopies
	}
	for _, by := range partings {
		g, known := rules.split(list, by), false
		for i, w := range ways {
			known = known || w.copies == copies && slices.EqualFunc(parted[i], g, slices.Equal)
		}
		if !known {
			ways, parted = append(ways, way{by, copies}), append(parted, g)
		}
	}
	ns, bytes := make([]float64, len(ways)), make([]float64, len(ways))
	var all sync.WaitGroup
	for i, w := range ways {
		all.Go(func() {
			t := newPool(p.bits, p.scale).build(rules, parted[i], w.copies)
			walks, strange := t.sample(boxes)
			walks.add(&strange, strangers)
			ns[i], bytes[i] = walks.Time(2*t.Bytes()).On(price.Default), float64(t.Bytes())
		})
	}
	all.Wait()
	least := ns[0]
	for i, w := range ways {
		if ns[i] < least && bytes[i] <= moreMemory*bytes[0] {
			best, groups, least = w, parted[i], ns[i]
		}
	}
	return best, groups
}

// build builds a table of groups of rules in the pool, with such a part of the usual copies. The
// last tree comes first: a rule says which of those behind its own it needs.
func (p *Pool) build(rules *ruleSet, groups [][]int32, copies float64) *Table {
	t := &Table{pool: p}
	before := p.words.n + len(p.pairs.words)
	b := newBuilder(p, t, rules)
	b.growth *= copies
	t.trees = make([]tree, len(groups))
	for i, group := range slices.Backward(groups) {
		b.number = i
		d, steps := b.build(everything(p.bits), group, after{}, position{growth: b.growth})
		t.trees[i] = tree{d, rules.result(group[0]), steps}
		t.stats.steps = max(t.stats.steps, steps)
	}
	t.end, t.numbers = p.words.n, len(p.pairs.words)
	t.stats.words = t.end + t.numbers - before
	return t
}

// Trees returns how many trees the table begins with.
func (t *Table) Trees() int { return len(t.trees) }

// Bytes returns how much the table added to the pool: what earlier ones have and it shares, or had
// left, is not in it.
func (t *Table) Bytes() int { return 8 * t.stats.words }

// Kind says what was built.
func (t *Table) Kind() string {
	return fmt.Sprintf("decision trees: %d, depth %d at most, %d behind them, %d entries",
		len(t.trees), t.stats.steps, t.stats.aside, t.stats.entries)
}

// Size returns how many bytes Put writes.
func (p *Pool) Size() int { return 8 * (p.words.n + p.room()) }

// Put writes the value of the map that the function reads, or a part of the value of one that holds
// other things too: Size bytes. Add nothing to the pool afterwards.
func (p *Pool) Put(value []byte) {
	p.words.put(value)
	clear(value[8*p.words.n : p.Size()])
}

// PortsSize returns how many bytes PutPorts writes, 0 if the function reads none of them. There are
// as many as a mask of numbers of pairs lets through, so that an entry need not be asked for its
// bounds.
func (p *Pool) PortsSize() int {
	if len(p.pairs.words) == 0 {
		return 0
	}
	return wordBytes * (int(pairMask(len(p.pairs.words))) + 1)
}

// pairMask returns a mask of numbers below n.
func pairMask(n int) int32 { return 1<<bits.Len(uint(n-1)) - 1 }

// PutPorts writes the ports that entries refer to, as Put writes the trees: PortsSize bytes.
func (p *Pool) PutPorts(value []byte) {
	clear(value[wordBytes*len(p.pairs.words) : p.PortsSize()])
	for i, v := range p.pairs.words {
		binary.LittleEndian.PutUint64(value[wordBytes*i:], v)
	}
}

// parting says how rules are parted into trees, by which of their addresses are wide.
type parting struct {
	open int // bits of an IPv4 address from which on it is wide
	with int // rules of this group join those that are wide in neither, 0 for none
}

// Groups of rules by the addresses that are wide.
const (
	neither  = 0
	wideSrc  = 1
	wideDst  = 2
	wideBoth = wideSrc | wideDst
)

// partings are tried in this order. The more groups, the less often a rule is copied into many
// branches, and the more trees a packet walks: which takes less, depends on how many rules are in a
// group. 20 bits are more than half of those that tell prefixes apart, with 28 nearly all are open.
var partings = [...]parting{{20, neither}, {28, neither}, {20, wideSrc}, {20, wideDst}}

// split parts the rules by which of the addresses are wide, in order of the first. Small groups
// join the group of the rules that are wide in both, so that a packet walks few trees.
func (s *ruleSet) split(rules []int32, by parting) [][]int32 {
	const few = 24
	var groups [maxTrees][]int32
	for _, r := range rules {
		g := 0
		if s.wide(r, src, by.open) {
			g |= wideSrc
		}
		if s.wide(r, dst, by.open) {
			g |= wideDst
		}
		if g == by.with {
			g = neither
		}
		groups[g] = append(groups[g], r)
	}
	var out [][]int32
	last := groups[wideBoth]
	for _, g := range groups[:wideBoth] {
		if len(g) < few {
			last = append(last, g...)
		} else {
			out = append(out, g)
		}
	}
	if len(last) > 0 {
		slices.Sort(last)
		out = append(out, last)
	}
	slices.SortFunc(out, func(a, b []int32) int { return cmp.Compare(a[0], b[0]) })
	return out
}
