package names

import (
	"encoding/binary"
	"slices"

	"levee/internal/lang/dnsname"
)

// Layout of a table: which numbers of labels elements have, then buckets of one cache line. A
// bucket is filled from its first slot on. An element for which its bucket has no room is in one of
// the next. A large table has a filter behind its buckets: a word for each, with a bit for each of
// its elements. A flood asks for names that are not there, and most of them have no bit: then no
// bucket is read, which would have to come from memory.
const (
	depthBytes  = 128 // a byte for each number of labels, in order, then 0
	slots       = 8
	bucketBytes = 8 * slots
	reach       = 8 // buckets that are looked into
	perBucket   = 4 // elements a bucket, on average

	// filtered is from how many elements on a table has a filter: smaller ones stay in caches.
	filtered    = 1 << 16
	filterBits  = 5 // a word of the filter has so many, to the power of two
	filterBytes = 1 << filterBits / 8
)

// Table is the memory of a set of names that does not change.
type Table struct {
	Elements int
	Depths   []int // of labels that elements have, in order, without 0
	Root     bool  // the root is an element: every name is in the set
	AllBelow bool  // what is below the root is: every name but the root
	below    bool  // an element stands for what is below it only
	buckets  int
	filter   int // where the filter begins, 0: there is none
	memory   []byte
}

// NewTable builds the table of patterns.
func NewTable(patterns []dnsname.Pattern, secret Secret) *Table {
	t := &Table{Elements: len(patterns)}
	k := keysOf(secret)
	type element struct {
		d     digest
		below bool
	}
	all := make([]element, 0, len(patterns))
	var depths [dnsname.MaxLabels + 1]bool
	for _, p := range patterns {
		if p.Name == "" {
			t.Root, t.AllBelow = t.Root || !p.Below, t.AllBelow || p.Below
			continue
		}
		depths[p.Name.Labels()], t.below = true, t.below || p.Below
		all = append(all, element{k.digest(p.Name), p.Below})
	}
	for n, has := range depths {
		if has {
			t.Depths = append(t.Depths, n)
		}
	}
	for t.buckets = max(1, (len(all)+perBucket-1)/perBucket); ; t.buckets += t.buckets/4 + 1 {
		bytes := depthBytes + (t.buckets+reach-1)*bucketBytes
		if len(all) >= filtered {
			t.filter = bytes
			bytes += t.buckets * filterBytes
		}
		t.memory = make([]byte, bytes)
		for i, n := range t.Depths {
			t.memory[i] = byte(n)
		}
		if !slices.ContainsFunc(all, func(e element) bool { return !t.put(e.d, e.below) }) {
			return t
		}
	}
}

// put gives an element a slot, or tells that there is none near its bucket.
func (t *Table) put(d digest, below bool) bool {
	bucket, bit, mark := d.place(t.buckets)
	if below {
		mark |= onlyBelow
	}
	if t.filter > 0 {
		word := t.memory[t.filter+bucket*filterBytes:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|1<<bit)
	}
	first := depthBytes + bucket*bucketBytes
	for at := first; at < first+reach*bucketBytes; at += 8 {
		if binary.LittleEndian.Uint64(t.memory[at:]) == 0 {
			binary.LittleEndian.PutUint64(t.memory[at:], mark)
			return true
		}
	}
	return false
}

// Bytes returns the memory.
func (t *Table) Bytes() []byte { return t.memory }

// Deepest returns the most labels that an element has.
func (t *Table) Deepest() int {
	if len(t.Depths) == 0 {
		return 0
	}
	return t.Depths[len(t.Depths)-1]
}
