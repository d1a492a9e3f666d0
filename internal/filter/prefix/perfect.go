package prefix

import "math/bits"

// A level finds the only slot where a key can be by hash and displace (Belazzougui, Botelho,
// Dietzfelbinger, "Hash, displace, and compress", ESA 2009): the upper bits of the hash choose a
// displacement, which is added to the lower bits to choose the slot. The builder searches
// displacements so that no two keys share a slot. A look-up is therefore two loads and one
// compare for any address, whoever chose it.

// Multipliers of the hash: odd, from the binary expansions of the golden ratio and pi.
const (
	mul1  = 0x9e3779b97f4a7c15
	mul2  = 0xc2b2ae3d27d4eb4f
	mul3  = 0x243f6a8885a308d3
	mulD  = 0x9e3779b1
	tries = 1 << 16 // displacements fit 16 bits
)

// multiplier returns the odd constant by which the seed varies the hash.
func multiplier(seed int) uint64 { return mul1 + uint64(seed)*mul3<<1 }

// hash mixes a key. For keys of one word it is a bijection of 64 bits.
func hash(hi, lo uint64, seed int, wide bool) uint64 {
	h := hi * multiplier(seed)
	if wide {
		h ^= h >> 32
		h += lo
		h *= mul3
	}
	h ^= h >> 32
	return h * mul2
}

// slotOf maps the lower 32 bits of the hash, displaced, to [0, slots).
func slotOf(h uint64, d uint16, slots int) int {
	return int(uint64(uint32(h)+uint32(d)*mulD) * uint64(slots) >> 32)
}

// placement is a perfect hash of some blocks.
type placement struct {
	seed, slots, logDisp int
	disp                 []uint16
	slot                 []uint32 // of each block
}

// place finds one. A seed fails only when two keys agree in the 32 bits that choose the slot, or
// when the table is too full at the end; each failure tries another seed and a little more room.
func place(blocks []block, wide bool) *placement {
	p := &placement{logDisp: max(1, bits.Len(uint(len(blocks)/3)))}
	p.disp = make([]uint16, 1<<p.logDisp)
	p.slot = make([]uint32, len(blocks))
	p.slots = int(float64(len(blocks))/load) + 1
	hashes := make([]uint64, len(blocks))
	for {
		for i, b := range blocks {
			hashes[i] = hash(b.hi, b.lo, p.seed, wide)
		}
		if p.search(hashes) {
			return p
		}
		p.seed++
		p.slots += p.slots/64 + 1
	}
}

// search tries one seed: buckets with most keys first, while there is room.
func (p *placement) search(hashes []uint64) bool {
	clear(p.disp)
	shift := 64 - p.logDisp
	start := make([]uint32, len(p.disp)+1) // of each bucket in order
	for _, h := range hashes {
		start[h>>shift+1]++
	}
	largest := uint32(0)
	for i := range p.disp {
		largest = max(largest, start[i+1])
		start[i+1] += start[i]
	}
	order := make([]uint32, len(hashes))
	fill := append([]uint32(nil), start...)
	for i, h := range hashes {
		b := h >> shift
		order[fill[b]] = uint32(i)
		fill[b]++
	}
	taken := make([]uint64, p.slots/64+1)
	for size := largest; size > 0; size-- {
		for b := range p.disp {
			if keys := order[start[b]:start[b+1]]; uint32(len(keys)) == size &&
				!p.settle(b, keys, hashes, taken) {
				return false
			}
		}
	}
	return true
}

// settle finds a displacement for the keys of bucket b, none of whose slots is taken.
func (p *placement) settle(b int, keys []uint32, hashes []uint64, taken []uint64) bool {
	for d := range tries {
		n := 0
		for ; n < len(keys); n++ {
			s := slotOf(hashes[keys[n]], uint16(d), p.slots)
			if taken[s/64]>>(s%64)&1 != 0 {
				break
			}
			taken[s/64] |= 1 << (s % 64)
			p.slot[keys[n]] = uint32(s)
		}
		if n == len(keys) {
			p.disp[b] = uint16(d)
			return true
		}
		for _, k := range keys[:n] {
			s := p.slot[k]
			taken[s/64] &^= 1 << (s % 64)
		}
	}
	return false
}
