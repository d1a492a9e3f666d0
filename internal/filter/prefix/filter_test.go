package prefix

import (
	"net/netip"
	"testing"
)

// triesFor returns the number of prefix lengths that a look-up goes through.
func triesFor(d *Dynamic, a netip.Addr) (n int) {
	f, k := d.locate(netip.PrefixFrom(a, a.BitLen()))
	for range f.candidates(d.wanted(f, k)) {
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
			if err := d.Add(netip.PrefixFrom(join(0x3f<<56, 0, width), width-length),
				0); err != nil {
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

// 2000 prefixes of 20 bits lie in 4096 slots each: what would take eight million stores is known
// after a few of them.
func TestFilterGivesUpOnCrowdedLengths(t *testing.T) {
	d := newDynamic(t, 4000, &clock{now: 1})
	f := &d.v6
	crowd := func(i uint64) netip.Prefix {
		return netip.PrefixFrom(join(0x2000<<48|i<<44, 0, 128), 20)
	}
	for length := 124; length <= 128; length++ { // so many that the filter is asked
		if err := d.Add(netip.PrefixFrom(join(0x3f<<56, 0, 128), length), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(2000) {
		if err := d.Add(crowd(i), 0); err != nil {
			t.Fatal(err)
		}
		if listed := f.crowded() >> (hashed6 - 20); i >= listed != d.isShort(f, 20) {
			t.Fatalf("tried for every address: %v, after %d entries of which each lies in 4096 "+
				"of %d slots", d.isShort(f, 20), i+1, 1<<f.bits)
		}
	}
	check := func(last uint64) {
		t.Helper()
		for i := range uint64(2000) {
			if got, want := d.Lookup(crowd(i).Addr()), i <= last; got != want {
				t.Fatalf("%v: %v, want %v", crowd(i), got, want)
			}
		}
	}
	check(1999)
	for i := uint64(1999); i > 0; i-- {
		d.Delete(crowd(i))
	}
	d.buildFilters()
	check(0)
	if d.Delete(crowd(0)); triesFor(d, crowd(0).Addr()) > 0 {
		t.Error("a length without entries is tried")
	}
	if d.buildFilters(); d.isShort(f, 20) {
		t.Error("a length without entries is still tried for every address")
	}
}
