package prefix

import (
	"math"
	"slices"
	"sync/atomic"
)

// soonest is the part of the entries, 1 in so many, that may end before the horizon. Nearly all
// of a bulk is worth having for as long as that.
const soonest = 64

// Due reports whether a Merge of a copy would make look-ups cheaper and has been put off for long
// enough; see Rest.
func (d *Dynamic) Due() bool {
	if d.bytes == 0 {
		return false
	}
	for _, f := range d.families() {
		if d.due(f) {
			return true
		}
	}
	return false
}

func (d *Dynamic) due(f *family) bool {
	horizon := *d.horizon(f)
	old := *d.mem.U64(f.bulk.head + headMarked) > 1<<f.bulk.bits/2
	if *d.mem.U64(f.bulk.head + headTooBig) == 0 {
		old = old || horizon == 0 || horizon != math.MaxUint64 && d.now() >= horizon
	}
	return old && d.now() >= *d.mem.U64(f.bulk.head + headRest) && d.pays(f)
}

// pays says whether a look-up in the bulk is cheaper than in the table, where it costs a bucket for
// each length in use.
func (d *Dynamic) pays(f *family) bool {
	entries := 0
	for length := range f.width + 1 {
		entries += int(*d.mem.U32(f.counts + 4*length))
	}
	return *d.mem.U64(f.lengths) > few && entries >= minEntries
}

// Rest keeps Due from saying yes until the clock reaches a time in jiffies.
func (d *Dynamic) Rest(until uint64) {
	if d.bytes == 0 {
		return
	}
	for _, f := range d.families() {
		*d.mem.U64(f.bulk.head + headRest) = until
	}
}

// Merge builds the bulk of both families anew from the entries. No program may be reading the set:
// it is for memory that is to take the place of another.
func (d *Dynamic) Merge() {
	if d.bytes == 0 {
		return
	}
	arena := d.mem[d.arena : d.arena : d.arena+d.bytes]
	for _, f := range d.families() {
		clear(d.mem[f.bulk.head : f.bulk.head+headLevels+maxLevels*sizeLevel])
		clear(d.mem[f.bulk.marks : f.bulk.marks+16<<f.bulk.bits])
		if !d.pays(f) {
			continue
		}
		nets, horizon := d.lasting(f)
		var fits bool
		if arena, fits = d.build(f, arena, nets); !fits {
			*d.mem.U64(f.bulk.head + headTooBig) = 1
			continue
		}
		atomic.StoreUint64(d.horizon(f), horizon)
		for k, expires := range f.table.Alive() {
			if expires != 0 && expires < horizon {
				d.mark(f, k, added)
			}
		}
		if *d.horizon(f) != 0 { // a short prefix that is about to end has too many areas
			*d.mem.U64(f.bulk.head + headMarked) = 0
		}
	}
}

// lasting lists the networks of entries that live until the horizon, and chooses it.
func (d *Dynamic) lasting(f *family) ([]network, uint64) {
	var ends []uint64
	n := 0
	for _, expires := range f.table.Alive() {
		if n++; expires != 0 {
			ends = append(ends, expires)
		}
	}
	horizon := uint64(math.MaxUint64)
	if few := min(n/soonest, 1<<f.bulk.bits/4); len(ends) > few {
		slices.Sort(ends)
		horizon = ends[few]
	}
	nets := make([]network, 0, n)
	for k, expires := range f.table.Alive() {
		if expires != 0 && expires < horizon {
			continue
		}
		hi := k.Hi
		if f.Narrow {
			hi <<= 32
		}
		nets = append(nets, network{hi, k.Lo, lengthOf(k)})
	}
	slices.SortFunc(nets, compare)
	return merge(nets), horizon
}

// build writes the levels for networks behind what is in the arena, if they fit.
func (d *Dynamic) build(f *family, arena []byte, nets []network) ([]byte, bool) {
	if len(nets) == 0 {
		return arena, true
	}
	before := len(arena)
	levels := ofBulk(cap(arena)-before).plan(nets, f.width)
	if len(levels) == 0 || len(levels) > maxLevels {
		return arena, false
	}
	var out []byte
	for i := range levels {
		if out = levels[i].build(out, nets); len(out) > cap(arena)-before-64 {
			return arena, false
		}
	}
	at := (before + 63) &^ 63
	arena = append(arena[:at], out...)
	for i := range levels {
		d.describe(f, i, &levels[i], at)
	}
	return arena, true
}

// describe writes what programs have to know of a level whose tables lie behind an offset.
func (d *Dynamic) describe(f *family, i int, l *level, offset int) {
	at := f.bulk.head + headLevels + sizeLevel*i
	shifted := 64
	d.mem[at] = hashedLevel
	switch {
	case l.direct:
		d.mem[at] = directLevel
	case l.wide:
		d.mem[at], shifted = wideLevel, 128
	}
	d.mem[at+1] = byte(shifted - l.key())
	d.mem[at+2] = byte(shifted - l.top)
	d.mem[at+3] = byte(64 - l.logDisp)
	*d.mem.U32(at + 4) = uint32(l.slots)
	*d.mem.U32(at + 8) = uint32(offset + l.disp)
	*d.mem.U32(at + 12) = uint32(offset + l.data)
	*d.mem.U64(at + 16) = multiplier(l.seed)
}
