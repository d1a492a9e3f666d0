package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
)

// Kind says which addresses a trace has.
type Kind string

const (
	Hits   Kind = "hit"  // within the prefixes
	Misses Kind = "miss" // outside: half of them beside a prefix, half anywhere
	Mix    Kind = "mix"  // half hits and half misses, in no order
)

// Skew is the distribution of packets over prefixes or rules.
type Skew string

const (
	Uniform Skew = "uniform" // all alike
	Zipf    Skew = "zipf"    // the n-th with a frequency of n^-1.1, as a few sources send most
)

const zipfExponent = 1.1

// picker draws indices below n.
func (s Skew) picker(r *rand.Rand, n int) (func() int, error) {
	switch s {
	case Uniform:
		return func() int { return r.IntN(n) }, nil
	case Zipf:
		order := r.Perm(n)
		z := rand.NewZipf(r, zipfExponent, 1, uint64(n-1))
		return func() int { return order[z.Uint64()] }, nil
	}
	return nil, fmt.Errorf("no skew %q: it is uniform or zipf", s)
}

// errNoMiss says that the prefixes leave no address out, or next to none.
var errNoMiss = errors.New("the prefixes cover nearly every address")

// Addresses draws n addresses of the family of the prefixes, which are of one and not none.
func Addresses(prefixes []netip.Prefix, n int, kind Kind, skew Skew, seed uint64) ([]netip.Addr,
	error) {
	if len(prefixes) == 0 {
		return nil, errors.New("no prefix to draw addresses from")
	}
	r := stream(seed, 20)
	pick, err := skew.picker(r, len(prefixes))
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]Kind{Hits, Misses, Mix}, kind) {
		return nil, fmt.Errorf("no kind of addresses %q: it is hit, miss or mix", kind)
	}
	var outer []netip.Prefix
	if kind != Hits {
		outer = Outermost(prefixes)
	}
	out := make([]netip.Addr, 0, n)
	next := func() netip.Prefix { return prefixes[pick()] }
	for len(out) < n {
		if kind == Hits || kind == Mix && r.IntN(2) == 0 {
			out = append(out, within(r, next()))
			continue
		}
		a, ok := outside(r, next, outer, prefixes[0].Addr().BitLen())
		if !ok {
			return nil, errNoMiss
		}
		out = append(out, a)
	}
	return out, nil
}

// within draws an address of a prefix.
func within(r *rand.Rand, p netip.Prefix) netip.Addr {
	hi, lo := Split(p.Addr())
	mhi, mlo := mask(p.Bits())
	return join(hi|r.Uint64()&^mhi, lo|r.Uint64()&^mlo, p.Addr().BitLen())
}

// Tries at an address in none of the prefixes: with one of them, and in all.
const (
	triesBeside = 16
	triesAtMiss = 1000
)

// outside draws an address in none of the outermost prefixes: beside one that is picked, or, one
// time in two, anywhere. Which of both is settled before the first try, because beside prefixes
// there is more often another one. Only where there is no room beside any of those picked is it an
// address anywhere after all.
func outside(r *rand.Rand, pick func() netip.Prefix, outer []netip.Prefix, width int) (netip.Addr,
	bool) {
	free := func(a netip.Addr) bool {
		i := sort.Search(len(outer), func(i int) bool { return a.Less(outer[i].Addr()) })
		return i == 0 || !outer[i-1].Contains(a)
	}
	if r.IntN(2) == 0 {
		p := pick()
		for try := range triesAtMiss {
			if try%triesBeside == triesBeside-1 {
				p = pick()
			}
			if a, ok := beside(r, p); ok && free(a) {
				return a, true
			}
		}
	}
	for range triesAtMiss {
		if a := anywhere(r, width); free(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// beside draws an address of a prefix and turns one of the prefix's last eight bits; there is none
// beside all addresses.
func beside(r *rand.Rand, p netip.Prefix) (netip.Addr, bool) {
	if p.Bits() == 0 {
		return netip.Addr{}, false
	}
	hi, lo := Split(within(r, p))
	bit := max(0, p.Bits()-1-r.IntN(8))
	if bit < 64 {
		hi ^= 1 << (63 - bit)
	} else {
		lo ^= 1 << (127 - bit)
	}
	return join(hi, lo, p.Addr().BitLen()), true
}
