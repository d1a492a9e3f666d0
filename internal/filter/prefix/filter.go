package prefix

import (
	"iter"
	"math/bits"
	"sync/atomic"

	"levee/internal/filter/hashtable"
)

// A filter tells a look-up which prefix lengths to try, so that it does not read a bucket for each
// length that occurs anywhere in the set. The address space is cut into slots: IPv4 by the first
// bits of the address, IPv6 by a hash of the first 32. A slot has a bit for each length of which
// some entry lies in it, longest first, so that the lowest bit is the longest prefix. An entry
// shorter than the slots sets its bit in all slots that it covers; IPv6 prefixes too short for that
// are tried for every address, and so is a length with entries in nearly all slots.
//
// A filter may say too much and never too little: bits are set before their entry can be found, and
// are not cleared with it but when the filter is built anew, after so many removals that building
// costs nothing by comparison. Building stores each word once and as a whole.

const (
	hashed6 = 32 // bits of an IPv6 address that choose the slot
	short6  = 20 // IPv6 prefixes shorter than this are in every slot
)

// filterBits sizes the filters: one slot for four entries, no more than 64 K, which with 512 KB of
// IPv4 words still fit the second-level cache.
func filterBits(max int) int {
	const least, most = 8, 16
	return min(least+bits.Len(uint(max)>>(least+2)), most)
}

// lengthSet has a bit for each prefix length; IPv6 has the lengths from 65 in the first word.
// IPv6's length 0 has none: its count says whether it is in use.
type lengthSet [2]uint64

// bit returns the place of a length in the set.
func (f *family) bit(length int) (word int, bit uint64) {
	top := f.width
	if f.width == 128 && length <= 64 {
		word, top = 1, 64
	}
	return word, 1 << (top - length) // nothing for IPv6's 0
}

// candidates lists the lengths of a set, those of each word from the longest.
func (f *family) candidates(s lengthSet, everything bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, top := 0, f.width; w < f.words; w, top = w+1, top-64 {
			for m := s[w]; m != 0; m &= m - 1 {
				if !yield(top - bits.TrailingZeros64(m)) {
					return
				}
			}
		}
		if everything {
			yield(0)
		}
	}
}

// Offsets of what is known of a family's lengths.
const (
	lengthsUsed  = 8
	lengthsShort = 24
)

func (d *Dynamic) word(off, i int) *uint64 { return d.mem.U64(off + 8*i) }

// usedOf returns the set of lengths in use as programs see it.
func (d *Dynamic) usedOf(f *family) (s lengthSet) {
	for w := range f.words {
		s[w] = atomic.LoadUint64(d.word(f.lengths+lengthsUsed, w))
	}
	return s
}

// inUse returns the set of lengths in use by their counts.
func (d *Dynamic) inUse(f *family) (number uint64, s lengthSet) {
	for length := range f.width + 1 {
		if *d.mem.U32(f.counts + 4*length) != 0 {
			w, b := f.bit(length)
			s[w] |= b
			number++
		}
	}
	return number, s
}

// use tells programs which lengths are in use.
func (d *Dynamic) use(f *family) {
	number, s := d.inUse(f)
	for w := range f.words {
		atomic.StoreUint64(d.word(f.lengths+lengthsUsed, w), s[w])
	}
	atomic.StoreUint64(d.mem.U64(f.lengths), number)
}

// few is up to how many lengths in use the filter is not asked. With three lengths everywhere,
// reading it made look-ups in 100,000 entries a third slower; with ten or more it saves most of the
// work.
const few = 4

// wanted returns the set of lengths to try for an address, as the emitted code finds it, and
// whether IPv6's length 0 is one of them.
func (d *Dynamic) wanted(f *family, k hashtable.Key) (s lengthSet, everything bool) {
	s = d.usedOf(f)
	if atomic.LoadUint64(d.mem.U64(f.lengths)) > few {
		slot := f.filter + 8*f.words*d.slotOf(f, k.Hi)
		for w := range f.words {
			s[w] &= atomic.LoadUint64(d.word(slot,
				w)) | atomic.LoadUint64(d.word(f.lengths+lengthsShort, w))
		}
	}
	return s, f.width == 128 && atomic.LoadUint32(d.mem.U32(f.counts)) != 0
}

// slotOf returns the slot of an address, of which the upper half is given; one of the filter's,
// whatever a foreign writer left as an address.
func (d *Dynamic) slotOf(f *family, hi uint64) int {
	if f.width == 32 {
		return int(hi >> (32 - f.bits) & (1<<f.bits - 1))
	}
	return int(hi >> (64 - hashed6) * *d.mem.U64(hashtable.AtSeeds + 8) >> (64 - f.bits))
}

// slotsOf lists the slots that a prefix lies in or covers; none if it is too short to list them.
func (d *Dynamic) slotsOf(f *family, k hashtable.Key) iter.Seq[int] {
	return func(yield func(int) bool) {
		cut, at := f.bits, k.Hi
		step := uint64(1) << (32 - f.bits)
		if f.width == 128 {
			if lengthOf(k) < short6 {
				return
			}
			cut, step = hashed6, 1<<(64-hashed6)
		}
		for range 1 << max(cut-lengthOf(k), 0) {
			if !yield(d.slotOf(f, at)) {
				return
			}
			at += step
		}
	}
}

// isShort says whether a length is tried for every address; of IPv4 none is.
func (d *Dynamic) isShort(f *family, length int) bool {
	w, b := f.bit(length)
	return f.width == 128 && *d.word(f.lengths+lengthsShort, w)&b != 0
}

// crowded is from how many slots, each as often as entries of one length lie in it, that length is
// tried for every address: by then all but one slot of some million has its bit, and setting one
// for each of its slots takes longer than all else that a new entry does.
func (f *family) crowded() uint64 { return 16 << f.bits }

// admit makes the filter let look-ups of the entry through.
func (d *Dynamic) admit(f *family, k hashtable.Key) {
	w, b := f.bit(lengthOf(k))
	set := func(at int) {
		if p := d.word(at, w); *p&b == 0 {
			atomic.StoreUint64(p, *p|b)
		}
	}
	if d.isShort(f, lengthOf(k)) {
		return
	}
	entries := uint64(*d.mem.U32(f.counts + 4*lengthOf(k)))
	if f.width == 128 && (lengthOf(k) < short6 ||
		entries<<max(hashed6-lengthOf(k), 0) >= f.crowded() && lengthOf(k) < hashed6) {
		set(f.lengths + lengthsShort)
		return
	}
	for slot := range d.slotsOf(f, k) {
		set(f.filter + 8*f.words*slot)
	}
}

// buildFilters keeps lengths that are tried for every address as long as there are entries of them:
// going back to slots would take two stores, between which a look-up could find the length in
// neither.
func (d *Dynamic) buildFilters() {
	*d.mem.U64(offRemoved) = 0
	for _, f := range d.families() {
		_, used := d.inUse(f)
		for w := range f.words {
			p := d.word(f.lengths+lengthsShort, w)
			atomic.StoreUint64(p, *p&used[w])
		}
		words := make([]uint64, f.words<<f.bits)
		for _, k := range f.table.Entries() {
			if w, b := f.bit(lengthOf(k)); !d.isShort(f, lengthOf(k)) {
				// of a foreign writer: it says so already otherwise
				if f.width == 128 && lengthOf(k) < short6 {
					d.admit(f, k)
				}
				for slot := range d.slotsOf(f, k) {
					words[slot*f.words+w] |= b
				}
			}
		}
		for i, v := range words {
			atomic.StoreUint64(d.word(f.filter, i), v)
		}
	}
}

// lowestMultiplier is a de Bruijn sequence: its products with the powers of two differ in the upper
// six bits (Leiserson, Prokop, Randall: Using de Bruijn Sequences to Index a 1 in a Computer Word,
// 1998). eBPF has no instruction that finds the lowest bit.
const lowestMultiplier = 0x03f79d71b4cb0a89

// lowestHash returns the index, in the table at offLowest, of a word with one bit.
func lowestHash(one uint64) int { return int(one * lowestMultiplier >> 58) }
