// Package classify finds the first of many rules that matches a packet's addresses and ports, at a
// cost that hardly depends on how many rules there are.
//
// In go boxes in order of priority (a source prefix, a destination prefix and two ranges of 16-bit
// numbers each), out come a piece of memory, the eBPF instructions that look a packet up in it,
// and a Go reference that reads the same bytes.
//
// The structure is a small forest of decision trees in the manner of HyperCuts (Singh et al.,
// SIGCOMM 2003) with the rule set split by wide fields first, as EffiCuts (Vamanan et al., SIGCOMM
// 2010) and CutSplit (Li et al., INFOCOM 2018) do, so that a rule that is wide in one address is not
// copied into every branch. A node takes a window of bits of one field as index of its child: one dependent
// load a level. A leaf is a few rules, compared one by one; it alone decides, so a tree can be
// slow but never wrong.
//
// Building is pure. It must never depend on the kernel or load anything.
package classify

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Box is a rule: it matches where all four fields lie inside.
type Box struct {
	Src, Dst netip.Prefix // masked, of the table's family
	Ports    [2]Span      // source and destination port, or any two 16-bit numbers
	Result   uint32       // what a look-up answers; not 0
}

// Span is inclusive.
type Span struct{ Lo, Hi uint16 }

// Any is the full span.
var Any = Span{0, 0xffff}

// Limits of the structure. They bound what the verifier walks and the memory of hostile rule sets.
const (
	maxLeaf  = 64 // rules compared in a leaf; what is more goes to another tree
	maxTrees = 16
	maxDepth = 12
	maxBits  = 12 // bits of one index
)

// Table is a built classifier.
type Table struct {
	bits  int // 32 or 128
	trees []tree
	words []uint64
	rest  []Box // rules that no tree could hold; empty but for hostile sets
	boxes int
}

// tree is one of the forest.
type tree struct {
	root   uint64 // descriptor, see layout.go
	depth  int    // levels above the deepest leaf
	widest int    // most entries of a leaf
	first  uint64 // lowest priority number in it, shifted as in an entry
	rules  int
}

// New builds the classifier of boxes of one family, bits 32 or 128; earlier boxes win.
func New(bits int, boxes []Box) *Table {
	t := &Table{bits: bits, boxes: len(boxes)}
	rules := make([]*rule, len(boxes))
	for i := range boxes {
		rules[i] = newRule(bits, &boxes[i], i)
	}
	for _, group := range split(rules) {
		for len(group) > 0 && len(t.trees) < maxTrees {
			group = t.add(group)
		}
		for _, r := range group {
			t.rest = append(t.rest, boxes[r.prio])
		}
	}
	slices.SortFunc(t.trees, func(a, b tree) int { return cmp.Compare(a.first, b.first) })
	t.pad()
	return t
}

// Rest lists the boxes that the table does not hold, in order: only sets made to defeat it have
// any. The caller compares them one by one.
func (t *Table) Rest() []Box { return t.rest }

// Bytes is the size of the map's value.
func (t *Table) Bytes() int { return 8 * len(t.words) }

// Memory is the value of the map, or a part of the value of one that holds other tables too.
func (t *Table) Memory() []byte {
	b := make([]byte, 0, 8*len(t.words))
	for _, w := range t.words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// MapSpec describes the map that the emitted code reads: one entry, read-only for programs.
func (t *Table) MapSpec(name string) *ebpf.MapSpec {
	b := t.Memory()
	return &ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1,
		Flags:    unix.BPF_F_RDONLY_PROG,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: b}},
	}
}

// Kind says what was built.
func (t *Table) Kind() string {
	deepest := 0
	for _, tr := range t.trees {
		deepest = max(deepest, tr.depth)
	}
	return fmt.Sprintf("%d decision trees, at most %d levels", len(t.trees), deepest)
}

// split parts the rules by which of the addresses are wide. Small groups join the group of the rules
// that are wide in both, so that a packet walks few trees.
func split(rules []*rule) [][]*rule {
	const few = 24
	var groups [4][]*rule
	for _, r := range rules {
		g := 0
		if r.wide(src) {
			g |= 1
		}
		if r.wide(dst) {
			g |= 2
		}
		groups[g] = append(groups[g], r)
	}
	var out [][]*rule
	last := groups[3]
	for _, g := range groups[:3] {
		if len(g) < few {
			last = append(last, g...)
		} else {
			out = append(out, g)
		}
	}
	if len(last) > 0 {
		slices.SortFunc(last, func(a, b *rule) int { return cmp.Compare(a.prio, b.prio) })
		out = append(out, last)
	}
	return out
}
