package prefix

import (
	"net/netip"
	"testing"
)

// triesFor is how many prefix lengths a look-up goes through.
func triesFor(d *Dynamic, a netip.Addr) (n int) {
	f := d.family(a)
	for range f.candidates(d.wanted(f, d.keyOf(netip.PrefixFrom(a, f.width)))) {
		n++
	}
	return n
}

func TestFilterSavesTriesAndForgetsWhatIsGone(t *testing.T) {
	r := newRand(t)
	for _, width := range []int{32, 128} {
		c := &clock{now: 1}
		d := newDynamic(t, 4000, c)
		near := func() netip.Addr {
			if width == 32 {
				return join(10<<56|r.Uint64()>>8, 0, 32)
			}
			return join(0x20010db<<36|r.Uint64()>>28, r.Uint64(), 128)
		}
		all := func(address func() netip.Addr) (n int) {
			for range 1000 {
				n += triesFor(d, address())
			}
			return n
		}
		for length := 28; length <= width; length++ { // in 10/8, or 2001:db0::/28, all lengths
			for range 20 {
				if err := d.Add(netip.PrefixFrom(near(), length), 100); err != nil {
					t.Fatal(err)
				}
			}
		}
		far := func() netip.Addr { return join(0x2a<<56|r.Uint64()>>8, r.Uint64(), width) }
		if n := all(far); n > 10_000 { // of 100,000; IPv6 slots are hashes, so some are shared
			t.Errorf("%d bits: %d lengths tried for 1000 addresses far from all entries", width, n)
		}
		if all(near) == 0 {
			t.Fatalf("%d bits: the filter finds nothing", width)
		}
		c.now = 100
		if d.Expire(c.now) == 0 {
			t.Fatal("nothing expired")
		}
		for length := range 6 { // so many that the filter is asked
			if err := d.Add(netip.PrefixFrom(join(0x3f<<56, 0, width), width-length), 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 600 { // removals in number bring it up to date
			p := netip.PrefixFrom(join(0x3f<<56, 0, width), width-7)
			if err := d.Add(p, 0); err != nil || !d.Delete(p) {
				t.Fatal("not deleted: ", err)
			}
		}
		if n := all(near); n > 1000 {
			t.Errorf("%d bits: %d tries for entries that are gone", width, n)
		}
	}
}
