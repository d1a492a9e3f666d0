package workload

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"

	"levee/internal/lang/literal"
)

// Internet4 draws n different prefixes with the lengths of an Internet full view, 1 to MaxPrefixes:
// about half of them lie inside another one, and neighbours follow one another in blocks.
func Internet4(n int, seed uint64) []netip.Prefix {
	r := stream(seed, 4)
	return internet(r, n, 32, newWeighted(lengths4[:]), func() (uint64, uint64) {
		for {
			if top := 1 + r.IntN(223); top != 10 && top != 127 {
				return uint64(top)<<56 | r.Uint64()>>8, 0
			}
		}
	})
}

// Internet6 does the same for IPv6.
func Internet6(n int, seed uint64) []netip.Prefix {
	r := stream(seed, 6)
	return internet(r, n, 128, newWeighted(lengths6[:]), func() (uint64, uint64) {
		// Registries number /32s from the start of what they have; their customers number from
		// zero.
		block := uint64(tops6[r.IntN(len(tops6))])<<48 | uint64(r.IntN(1<<13))<<35
		return block | sparse(r), 0
	})
}

// sparse is 32 bits as in numbering plans: mostly zero but for a few leading digits.
func sparse(
	r *rand.Rand) uint64 {
	return r.Uint64() >> 32 & (0xffff0000 << r.IntN(16)) & 0xffffffff
}

func internet(r *rand.Rand, n, width int, lengths weighted,
	fresh func() (hi, lo uint64)) []netip.Prefix {
	out := make([]netip.Prefix, 0, n)
	seen := make(map[netip.Prefix]bool, n)
	last := map[int]netip.Prefix{}
	draw := func(length int) netip.Prefix {
		if parent, ok := shorter(r, out, length); ok && r.IntN(100) < moreSpecific {
			return inside(r, parent, length)
		}
		if near, ok := last[length]; ok && r.IntN(3) > 0 {
			return next(near, 1+r.IntN(3))
		}
		hi, lo := fresh()
		return netip.PrefixFrom(join(hi, lo, width), length).Masked()
	}
	for len(out) < n {
		length := lengths.draw(r)
		for range 100 { // short lengths run out
			if p := draw(length); !seen[p] && usable(p) {
				seen[p] = true
				last[length] = p
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// shorter picks a prefix that one of this length may lie in, a few bits shorter where there is one.
func shorter(r *rand.Rand, from []netip.Prefix, length int) (netip.Prefix, bool) {
	if len(from) == 0 {
		return netip.Prefix{}, false
	}
	for range 12 {
		if p := from[r.IntN(len(from))]; p.Bits() < length && p.Bits() >= length-16 {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// inside draws a prefix of that length in p.
func inside(r *rand.Rand, p netip.Prefix, length int) netip.Prefix {
	hi, lo := Split(p.Addr())
	rhi, rlo := r.Uint64(), r.Uint64()
	if p.Addr().Is6() && r.IntN(4) > 0 {
		rhi = rhi & (^uint64(0) << max(0, min(63, 64-p.Bits()-r.IntN(9)))) // the first of the block
	}
	mhi, mlo := mask(p.Bits())
	return netip.PrefixFrom(join(hi|rhi&^mhi, lo|rlo&^mlo, p.Addr().BitLen()), length).Masked()
}

// next returns the n-th prefix behind p, of its length.
func next(p netip.Prefix, n int) netip.Prefix {
	hi, lo := Split(p.Addr())
	if b := p.Bits(); b <= 64 {
		hi += uint64(n) << (64 - b)
	} else {
		lo += uint64(n) << (128 - b)
	}
	return netip.PrefixFrom(join(hi, lo, p.Addr().BitLen()), p.Bits()).Masked()
}

// usable tells whether a prefix is in the space that is routed: not 0/8, 10/8, 127/8 nor beyond
// 223/8; 2000::/3.
func usable(p netip.Prefix) bool {
	if p.Addr().Is4() {
		top := p.Addr().As4()[0]
		return top > 0 && top < 224 && top != 10 && top != 127
	}
	return p.Addr().As16()[0]>>5 == 1
}

// Hosts draws n different single addresses all over the routed space of a family, 32 or 128 bits.
func Hosts(width, n int, seed uint64) []netip.Prefix {
	r := stream(seed, uint64(1000+width))
	out := make([]netip.Prefix, 0, n)
	seen := make(map[netip.Addr]bool, n)
	for len(out) < n {
		p := anywhere(r, width)
		if !seen[p] {
			seen[p] = true
			out = append(out, netip.PrefixFrom(p, width))
		}
	}
	return out
}

// anywhere draws an address of the routed space.
func anywhere(r *rand.Rand, width int) netip.Addr {
	for {
		hi, lo := r.Uint64(), r.Uint64()
		if width == 128 {
			hi = hi>>3 | 1<<61
		}
		if a := join(hi, lo, width); usable(netip.PrefixFrom(a, width)) {
			return a
		}
	}
}

// ReadPrefixes reads a table, one prefix or address a line, packed with gzip or not. It returns
// both families, as the file has them.
func ReadPrefixes(r io.Reader, name string) ([]netip.Prefix, error) {
	in, err := unpack(r)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	out, diags := literal.ReadPrefixes(in, name)
	if diags.HasErrors() {
		return nil, diags.Err()
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no prefixes: one a line, as 192.0.2.0/24 or 2001:db8::/32",
			name)
	}
	return out, nil
}

// unpack looks through gzip.
func unpack(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	z, err := gzip.NewReader(in)
	return gzipped{z}, cut(err)
}

// gzipped says of data that ends too early that it does.
type gzipped struct{ io.Reader }

func (z gzipped) Read(b []byte) (int, error) {
	n, err := z.Reader.Read(b)
	return n, cut(err)
}

// cut puts the end of the data before its time into words.
func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the gzip data is cut off")
	}
	return err
}

// Family keeps the prefixes of one family, 32 or 128 bits.
func Family(prefixes []netip.Prefix, width int) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().BitLen() == width {
			out = append(out, p)
		}
	}
	return out
}

// Sample draws n of the prefixes, in no order; all of them, shuffled, if there are not as many.
func Sample(prefixes []netip.Prefix, n int, seed uint64) []netip.Prefix {
	out := slices.Clone(prefixes)
	stream(seed, 7).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// Outermost keeps the prefixes that lie in no other one, sorted and without repetition: the same
// addresses in the fewest of the given prefixes.
func Outermost(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// Split returns an address as two host-order halves; an IPv4 address fills the upper 32 bits of the
// first.
func Split(a netip.Addr) (hi, lo uint64) {
	b := a.As16() // an IPv4 address is the last four bytes
	hi, lo = binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if a.Is4() {
		return lo << 32, 0
	}
	return hi, lo
}

// join returns the inverse of Split, for a width of 32 or 128 bits.
func join(hi, lo uint64, width int) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	if width == 32 {
		return netip.AddrFrom4([4]byte(b[:]))
	}
	return netip.AddrFrom16(b)
}

// mask returns the network part of a length.
func mask(length int) (hi, lo uint64) {
	if length <= 64 {
		return ^uint64(0) << (64 - length), 0
	}
	return ^uint64(0), ^uint64(0) << (128 - length)
}

// Internet draws n prefixes as an Internet routing table has them, of addresses of 32 or of 128
// bits.
func Internet(width, n int, seed uint64) []netip.Prefix {
	if width == 32 {
		return Internet4(n, seed)
	}
	return Internet6(n, seed)
}
