package names

import (
	"encoding/binary"

	"levee/internal/lang/dnsname"
)

// Secret is the key of digests: who does not know it can make no name whose digest is that of
// another.
type Secret = [2]uint64

// pieces is the largest number of pieces of 8 bytes in a name.
const pieces = len(readNameWork{}.Suffixes)

// keys are those of the two sums, of which the second begins a pair later.
type keys [2*pieces + 2]uint32

// keys are drawn from the secret by SplitMix64 (Steele, Lea, Flood, 2014), whose steps nobody can
// see: no digest leaves the program.
func keysOf(s Secret) (k keys) {
	state := s[0]
	for i := range k {
		state += 0x9e3779b97f4a7c15
		z := state ^ s[1]
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		k[i] = uint32((z ^ z>>31) >> 32)
	}
	return k
}

func (k *keys) bytes() []byte {
	b := make([]byte, 0, 4*len(k))
	for _, v := range k {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// digest is that of bpf/dns.bpf.c: a pair of sums over the labels from the last one on, each with
// its length, in pieces of 8 bytes from its end.
type digest struct{ a, b uint64 }

func (k *keys) digest(n dnsname.Name) (d digest) {
	var starts []int
	for at := 0; at < len(n); at += 1 + int(n[at]) {
		starts = append(starts, at)
	}
	end, i := len(n), 0
	for l := len(starts) - 1; l >= 0; l-- {
		for ; end > starts[l]; i++ {
			var piece [8]byte
			first := max(starts[l], end-8)
			copy(piece[:], n[first:end])
			lo, hi := binary.LittleEndian.Uint32(piece[:]), binary.LittleEndian.Uint32(piece[4:])
			d.a += uint64(lo+k[2*i]) * uint64(hi+k[2*i+1])
			d.b += uint64(lo+k[2*i+2]) * uint64(hi+k[2*i+3])
			end = first
		}
	}
	return d
}

// Mixing of a digest, whose sums are not evenly distributed: constants of MurmurHash3's finalizer.
const (
	mixA = 0xff51afd7ed558ccd
	mixB = 0xc4ceb9fe1a85ec53
)

// place returns the bucket of a digest among so many, its bit in the bucket's word of the filter,
// and what stands in the bucket for it.
func (d digest) place(buckets int) (bucket, bit int, mark uint64) {
	g := d.a*mixA + d.b
	g ^= g >> 32
	g *= mixB
	at := g >> 32 * uint64(buckets)
	bit = int(at >> (32 - filterBits) & (1<<filterBits - 1))
	return int(at >> 32), bit, (d.a^(d.b<<32|d.b>>32))>>1&^flags | present
}

// The lowest bits of a mark, whose highest is 0.
const (
	onlyBelow = 1 // the element stands for what is below it only
	present   = 2
	flags     = onlyBelow | present
)
