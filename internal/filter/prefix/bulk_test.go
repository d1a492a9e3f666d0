package prefix

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"

	"levee/internal/filter/hashtable"
)

// merged puts a merged copy in the place of the set, as commands do.
func merged(t *testing.T, d *Dynamic, in *mapped, max int, c *clock) *Dynamic {
	t.Helper()
	if in.m == nil {
		mem := make([]byte, len(d.mem))
		if err := d.CopyTo(mem); err != nil {
			t.Fatal(err)
		}
		next, err := Open(mem, c.read)
		if err != nil {
			t.Fatal(err)
		}
		next.Merge()
		return next
	}
	in.swapFor(t, max, c, func(next *Dynamic) {
		if err := d.CopyTo(next.mem); err != nil {
			t.Fatal(err)
		}
		next.Merge()
	})
	return in.Dynamic
}

// TestBulkFollowsAModel applies random changes and merges to sets that have a bulk, and compares
// members with a naive model, as TestDynamicFollowsAModel does for small sets. Leases lie an hour
// around the kernel's clock. A merge happens an hour before, when all of them live, so some end
// before the horizon and, in some rounds, the horizon is over.
func TestBulkFollowsAModel(t *testing.T) {
	const hour = 3600 * 1200 // at the highest rate
	const max = minBulk
	for name, lengths := range map[string]map[int][]int{
		"any length": {32: span(0, 32), 128: span(0, 128)},
		"usual":      {32: span(16, 25), 128: span(28, 50)},
		"nested":     {32: {8, 14, 16, 20, 24, 25, 32}, 128: {16, 20, 32, 33, 40, 48, 64, 65, 128}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRand(t)
			c := &clock{now: 1 << 33}
			var in mapped
			var programs map[int]*runner
			if os.Geteuid() == 0 {
				c.now = jiffies(t)
				in, programs = inKernel(t, max, c)
			}
			start := c.now
			known, seen := 0, 0
			for _, ended := range []int{0, 100, 3} { // by start 1 lease in so many has
				c.now = start - hour
				m := model{}
				lease := func() uint64 {
					switch {
					case ended > 0 && r.IntN(ended) == 0:
						return start - r.Uint64N(hour/2)
					case r.IntN(2) == 0:
						return 0
					}
					return start + hour + r.Uint64N(hour)
				}
				var list []netip.Prefix
				draw := func() netip.Prefix {
					width := []int{32, 128}[r.IntN(2)]
					return randomPrefix(r, width, lengths[width], 40)
				}
				var entries []Entry
				for range max * 3 / 4 {
					p := draw()
					if _, ok := m[p]; ok {
						continue
					}
					m[p] = lease()
					list = append(list, p)
					entries = append(entries, Entry{p, m[p]})
				}
				var d *Dynamic
				if programs != nil {
					in.swap(t, max, c, entries)
					d = in.Dynamic
				} else {
					d = newDynamic(t, max, c)
					addEntries(t, d, entries)
				}
				d = merged(t, d, &in, max, c)
				for step := range 120 {
					c.now = start - hour
					p := draw()
					if r.IntN(2) == 0 {
						p = list[r.IntN(len(list))]
					}
					switch op := r.IntN(20); {
					case op < 9 && len(m) < max:
						e := lease()
						if err := d.Add(p, e); err != nil {
							t.Fatalf("step %d: %v", step, err)
						}
						m[p] = e
						list = append(list, p)
					case op < 18:
						_, was := m[p]
						if got := d.Delete(p); got != was {
							t.Fatalf("step %d: Delete(%v) = %v, want %v", step, p, got, was)
						}
						delete(m, p)
					case op < 19:
						d = merged(t, d, &in, max, c)
					default:
						c.now = start
						d.Expire(start)
						for p, e := range m {
							if e != 0 && e <= start {
								delete(m, p)
							}
						}
					}
					c.now = start
					around := append(sample(r, list, 3), p)
					if step%10 == 0 {
						around = sample(r, list, 40)
						check(t, r, d, m, start, around, programs)
					} else {
						check(t, r, d, m, start, around, nil)
					}
					for _, p := range around {
						seen++
						if _, _, ok := d.inBulk(p.Addr()); ok {
							known++
						}
					}
				}
			}
			t.Logf("the bulk answered for %d of %d addresses", known, seen)
			if known == 0 {
				t.Error("the test shows nothing of the bulk")
			}
		})
	}
}

// bulkOf is a set of more lengths than are looked up one by one, merged.
func bulkOf(t *testing.T, c *clock, lease uint64) (*Dynamic, []netip.Prefix) {
	t.Helper()
	d := newDynamic(t, minBulk, c)
	var list []netip.Prefix
	for i := range uint64(2000) {
		p := netip.PrefixFrom(join(0x1000_0000_0000_0000+i<<40, 0, 32), 18+int(i%7)).Masked()
		list = append(list, p)
		if err := d.Add(p, lease); err != nil {
			t.Fatal(err)
		}
	}
	if !d.Due() {
		t.Fatal("a set of seven lengths is not due")
	}
	d.Merge()
	if d.Due() {
		t.Fatal("a set that was merged is due")
	}
	return d, list
}

// TestBulkIsDue shows when a merge is due: after many changes, when the horizon is over, and when a
// change was too large for marks; and that Rest puts it off.
func TestBulkIsDue(t *testing.T) {
	c := &clock{now: 1000}
	d, list := bulkOf(t, c, 0)
	for range 1<<d.v4.bulk.bits/2 + 1 {
		if d.Due() {
			t.Fatal("due after few changes")
		}
		d.Delete(list[0])
	}
	if !d.Due() {
		t.Error("not due after many changes")
	}
	d.Rest(1100)
	if d.Due() {
		t.Error("due while it rests")
	}
	if c.now = 1100; !d.Due() {
		t.Error("not due after its rest")
	}

	d, _ = bulkOf(t, c, 5000)
	if c.now = 4999; d.Due() {
		t.Error("due before the horizon")
	}
	if err := d.Add(netip.MustParsePrefix("198.51.0.0/16"), 0); err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("16.1.2.3")
	if !d.Lookup(a) {
		t.Error("an entry is gone before its end")
	}
	if c.now = 5000; d.Lookup(a) || !d.Lookup(netip.MustParseAddr("198.51.100.7")) {
		t.Error("behind the horizon the bulk answers")
	}

	c.now = 1000
	d, _ = bulkOf(t, c, 0)
	everything := netip.MustParsePrefix("0.0.0.0/0")
	if err := d.Add(everything, 0); err != nil {
		t.Fatal(err)
	}
	if !d.Lookup(netip.MustParseAddr("203.0.113.1")) || !d.Due() {
		t.Error("0.0.0.0/0 is not a member at once, or not merged")
	}
}

// TestBulkOfOneLengthIsNone keeps sets that the table answers in one bucket from paying for more.
func TestBulkOfOneLengthIsNone(t *testing.T) {
	c := &clock{now: 1}
	d := newDynamic(t, minBulk, c)
	for _, p := range hosts(rand.New(rand.NewPCG(1, 1)), 3000, 32) {
		if err := d.Add(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if d.Due() {
		t.Error("due")
	}
	d.Merge()
	if *d.horizon(&d.v4) != 0 {
		t.Error("it has a bulk")
	}
}

// TestBulkIsGivenUpWithCounts mends a set of which a killed writer left wrong counts.
func TestBulkIsGivenUpWithCounts(t *testing.T) {
	c := &clock{now: 1}
	d, list := bulkOf(t, c, 0)
	clear(d.mem[d.v4.bulk.marks : d.v4.bulk.marks+64])
	*d.mem.U32(hashtable.AtTotal) += 3
	*d.mem.U32(hashtable.AtDirty) = 1
	d, err := Open(d.mem, c.read)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, known := d.inBulk(list[0].Addr()); known || !d.Lookup(list[0].Addr()) || !d.Due() {
		t.Error("the bulk is asked, an entry is gone, or nothing is due")
	}
}

// TestSetWithoutBulkIsOpened opens large sets of levees that knew of no bulk, and makes others that
// may take their place.
func TestSetWithoutBulkIsOpened(t *testing.T) {
	c := &clock{now: 1}
	mem := make([]byte, plainGeometry(minBulk).size)
	if err := Format(mem, minBulk); err != nil {
		t.Fatal(err)
	}
	d, err := Open(mem, c.read)
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix("192.0.2.0/24")
	if err := d.Add(p, 0); err != nil || !d.Lookup(p.Addr()) || d.Due() {
		t.Errorf("%v, or no member, or due", err)
	}
	d.Merge()
	if !d.Delete(p) || d.Lookup(p.Addr()) {
		t.Error("it is not deleted")
	}
	spec, err := DynamicSpec("x", minBulk)
	if err != nil || int(spec.InnerMap.ValueSize) == len(mem) {
		t.Errorf("%v, or new sets are without", err)
	}
}

// TestBulkIsTheStaticSet compares the bulk of a whole table with the static set of the same
// prefixes, and the table is asked about nothing.
func TestBulkIsTheStaticSet(t *testing.T) {
	r := newRand(t)
	prefixes := internet(r, 20_000, 20_000)
	c := &clock{now: 1}
	d := newDynamic(t, 50_000, c)
	for _, p := range prefixes {
		if err := d.Add(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	d.Merge()
	for _, width := range []int{32, 128} {
		own := ofWidth(prefixes, width)
		s := newStatic(own, width)
		for _, a := range slices.Concat(probes(r, sample(r, own, 2000), width, 2),
			traffic(r, own, width, 5000, "mix")) {
			member, _, known := d.inBulk(a)
			if !known || member != s.Contains(a) {
				t.Fatalf("%v: %v, known %v; static %v", a, member, known, s.Contains(a))
			}
		}
	}
}

// An entry whose lease had ended when the bulk was built is a member again once it is added again,
// by itself or as what hosts are rolled up into.
func TestAnEndedEntryComesBackBesideABulk(t *testing.T) {
	c := &clock{now: 1 << 33}
	d := newDynamic(t, minBulk, c)
	r := newRand(t)
	for range minBulk / 2 {
		if err := d.Add(randomPrefix(r, 32, span(16, 25), 40), 0); err != nil {
			t.Fatal(err)
		}
	}
	host, cover := netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("198.51.100.0/24")
	beside := netip.MustParseAddr("198.51.100.99")
	addEntries(t, d, []Entry{{host, c.now + 10}, {cover, c.now + 10}})
	c.now += 100
	d = merged(t, d, &mapped{}, minBulk, c)
	if _, _, known := d.inBulk(host.Addr()); !known {
		t.Fatal("the bulk does not know the host: this test shows nothing")
	}
	if d.Lookup(host.Addr()) || d.Lookup(beside) {
		t.Fatal("what has ended is a member")
	}
	addEntries(t, d, []Entry{{host, c.now + 1000}})
	if !d.Lookup(host.Addr()) {
		t.Error("the host was added again, and is no member")
	}
	for i := range 200 {
		addEntries(t, d, []Entry{{netip.PrefixFrom(
			netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}), 32), c.now + 1000}})
	}
	d.RollUp(func(netip.Prefix) bool { return false })
	if _, there := d.Get(cover); !there {
		t.Fatal("the hosts were not rolled up")
	}
	if a := netip.MustParseAddr("198.51.100.250"); !d.Lookup(a) {
		t.Errorf("%v is within what was rolled up, and is no member", a)
	}
}
