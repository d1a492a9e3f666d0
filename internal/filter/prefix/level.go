package prefix

import "encoding/binary"

// block is one key of a level with its bits.
type block struct {
	hi, lo uint64 // the key, right-aligned; lo only in wide levels
	bits   uint64
}

// keyOf returns the key of an address in this level.
func (l *level) keyOf(hi, lo uint64) (uint64, uint64) {
	if l.wide {
		return hi, lo >> (128 - l.key())
	}
	return hi >> (64 - l.key()), 0
}

// indexOf returns the bit of the block that stands for an address.
func (l *level) indexOf(hi, lo uint64) int {
	if l.top > 64 {
		return int(lo >> (128 - l.top) & (1<<l.span - 1))
	}
	return int(hi >> (64 - l.top) & (1<<l.span - 1))
}

// collect makes the blocks of the networks whose lengths belong to the level, in ascending order of
// their keys: the networks are sorted and disjoint, so equal keys are neighbours.
func (l *level) collect(nets []network) []block {
	var out []block
	g := l.key()
	full := ^uint64(0) >> (64 - 1<<l.span)
	for _, n := range nets {
		if n.len < l.minLen || n.len > l.maxLen {
			continue
		}
		khi, klo := l.keyOf(n.hi, n.lo)
		if n.len > g {
			run := ^uint64(0) >> (64 - 1<<(l.top-n.len)) << l.indexOf(n.hi, n.lo)
			if k := len(out); k > 0 && out[k-1].hi == khi && out[k-1].lo == klo {
				out[k-1].bits |= run
			} else {
				out = append(out, block{khi, klo, run})
			}
			continue
		}
		for range 1 << (g - n.len) {
			out = append(out, block{khi, klo, full})
			if l.wide {
				klo++
				if klo>>(g-64) != 0 {
					klo = 0
					khi++
				}
			} else {
				khi++
			}
		}
	}
	return out
}

// build fills in the sizes of the level and appends its tables to data.
func (l *level) build(data []byte, nets []network) []byte {
	blocks := l.collect(nets)
	l.blocks = len(blocks)
	if l.direct {
		l.slots = 1 << l.key()
		data, l.data = extend(data, l.slots*l.size)
		for _, b := range blocks {
			binary.NativeEndian.PutUint64(data[l.data+int(b.hi)*8:], b.bits)
		}
		return data
	}
	p := place(blocks, l.wide)
	l.slots, l.logDisp, l.seed = p.slots, p.logDisp, p.seed
	data, l.disp = extend(data, 2*len(p.disp))
	for i, d := range p.disp {
		binary.NativeEndian.PutUint16(data[l.disp+2*i:], d)
	}
	data, l.data = extend(data, l.slots*l.size)
	if l.span == 0 {
		// The key alone is the answer, so an unused slot must hold a key that is a member anyway.
		for i := range l.slots {
			l.put(data, i, blocks[0])
		}
	}
	for i, b := range blocks {
		l.put(data, int(p.slot[i]), b)
	}
	return data
}

// extend makes room for n bytes that begin at a cache line.
func extend(data []byte, n int) ([]byte, int) {
	at := (len(data) + 63) &^ 63
	return append(data, make([]byte, at-len(data)+n)...), at
}

func (l *level) put(data []byte, slot int, b block) {
	at := data[l.data+slot*l.size:]
	switch l.size {
	case 4:
		binary.NativeEndian.PutUint32(at, uint32(b.hi))
	case 8:
		if l.span > 0 {
			b.hi = b.hi<<32 | b.bits
		}
		binary.NativeEndian.PutUint64(at, b.hi)
	case 16:
		binary.NativeEndian.PutUint64(at, b.hi)
		if l.wide {
			b.bits = b.lo
		}
		binary.NativeEndian.PutUint64(at[8:], b.bits)
	case 24:
		binary.NativeEndian.PutUint64(at, b.hi)
		binary.NativeEndian.PutUint64(at[8:], b.lo)
		binary.NativeEndian.PutUint64(at[16:], b.bits)
	}
}

// contains looks up as the emitted code does.
func (l *level) contains(data []byte, hi, lo uint64) bool {
	khi, klo := l.keyOf(hi, lo)
	index := l.indexOf(hi, lo)
	if l.direct {
		return binary.NativeEndian.Uint64(data[l.data+int(khi)*8:])>>index&1 != 0
	}
	h := hash(khi, klo, l.seed, l.wide)
	d := binary.NativeEndian.Uint16(data[l.disp+2*int(h>>(64-l.logDisp)):])
	at := data[l.data+slotOf(h, d, l.slots)*l.size:]
	switch l.size {
	case 4:
		return uint64(binary.NativeEndian.Uint32(at)) == khi
	case 8:
		w := binary.NativeEndian.Uint64(at)
		if l.span == 0 {
			return w == khi
		}
		return w>>32 == khi && w>>index&1 != 0
	case 16:
		if l.wide {
			return binary.NativeEndian.Uint64(at) == khi &&
				binary.NativeEndian.Uint64(at[8:]) == klo
		}
		return binary.NativeEndian.Uint64(at) == khi &&
			binary.NativeEndian.Uint64(at[8:])>>index&1 != 0
	}
	return binary.NativeEndian.Uint64(at) == khi && binary.NativeEndian.Uint64(at[8:]) == klo &&
		binary.NativeEndian.Uint64(at[16:])>>index&1 != 0
}
