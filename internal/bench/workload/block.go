package workload

import (
	"fmt"
	"net/netip"
)

// Block draws n different prefixes of one length among the first span of that length from base on,
// in no order: span over n is how thinly they lie. n may be at most MaxPrefixes and span, and all
// must be in the address space.
func Block(base netip.Addr, length, n int, span, seed uint64) ([]netip.Prefix, error) {
	width := base.BitLen()
	if length < 1 || length > width || length > 64 && width-length > 63 {
		return nil, fmt.Errorf("no prefixes of length %d from %s on", length, base)
	}
	if n < 0 || n > MaxPrefixes || uint64(n) > span || span > 1<<40 {
		return nil, fmt.Errorf("%d of %d prefixes cannot be drawn", n, span)
	}
	first := netip.PrefixFrom(base, length).Masked()
	if n == 0 {
		return nil, nil
	}
	if last := nth(first, span-1); last.Addr().Less(first.Addr()) {
		return nil, fmt.Errorf("%d prefixes of length %d do not fit from %s on", span, length, base)
	}
	r := stream(seed, 48)
	out := make([]netip.Prefix, 0, n)
	// dense: of a shuffled list; the draws below would meet the same ones again and again
	if span <= 4*uint64(n) {
		for _, i := range r.Perm(int(span))[:n] {
			out = append(out, nth(first, uint64(i)))
		}
		return out, nil
	}
	seen := make(map[uint64]bool, n)
	for len(out) < n {
		if i := r.Uint64N(span); !seen[i] {
			seen[i] = true
			out = append(out, nth(first, i))
		}
	}
	return out, nil
}

// nth returns the n-th prefix behind p, of its length; it wraps around at the end of the address
// space.
func nth(p netip.Prefix, n uint64) netip.Prefix {
	hi, lo := Split(p.Addr())
	if b := p.Bits(); b <= 64 {
		hi += n << (64 - b)
	} else {
		add := n << (128 - b)
		if lo += add; lo < add {
			hi++
		}
	}
	return netip.PrefixFrom(join(hi, lo, p.Addr().BitLen()), p.Bits())
}
