package prefix

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"levee/internal/filter/hashtable"
)

// TestReadersNeverSeeAHalfWrittenEntry changes a nearly full set as fast as it can, so that entries
// spill and move, while programs and Go readers ask for what is always there and for what never is:
// addresses that have the upper half of one changing entry and the lower half of another, or the
// address of one and the length of another.
func TestReadersNeverSeeAHalfWrittenEntry(t *testing.T) {
	for name, width := range map[string]int{"IPv4": 32, "IPv6": 128} {
		t.Run(name, func(t *testing.T) { readWhileChanging(t, width) })
	}
}

func readWhileChanging(t *testing.T, width int) {
	r := newRand(t)
	const max = 2000
	c := &clock{now: 1000}
	var d *Dynamic
	var program *runner
	if os.Geteuid() == 0 {
		m, programs := inKernel(t, max, c)
		d, program = m.Dynamic, programs[width]
	} else {
		d = newDynamic(t, max, c)
	}
	var always, never []netip.Addr
	var changing []netip.Prefix
	for i := range uint64(600) {
		host := join(0x2a00<<48|i<<33, i, width)
		if err := d.Add(netip.PrefixFrom(host, width), 0); err != nil {
			t.Fatal(err)
		}
		always = append(always, host)
	}
	for i := range uint64(1000) {
		hi := 0x3b00<<48 | i<<40
		if width == 32 {
			other := hi ^ 0x0800<<48
			changing = append(changing, netip.PrefixFrom(join(hi, 0, 32), 24),
				netip.PrefixFrom(join(other, 0, 32), 28))
			// in a /24 of the same bits
			never = append(never, join(other|1<<36, 0, 32), join(other|1<<39, 0, 32))
		} else {
			changing = append(changing, netip.PrefixFrom(join(hi, i, 128), 128),
				netip.PrefixFrom(join(hi, i+1000, 128), 128))
			// halves of two entries
			never = append(never, join(hi, i^1, 128), join(hi, (i^1)+1000, 128))
		}
	}

	// elsewhere, and so many that the filter is asked
	for length := width - 5; length < width; length++ {
		if err := d.Add(netip.PrefixFrom(join(0x3f<<56, 0, width), length), 0); err != nil {
			t.Fatal(err)
		}
	}

	reader, err := Open(d.mem, func() uint64 { return 500 }) // when all that was written was alive
	if err != nil {
		t.Fatal(err)
	}
	at := func() (out []hashtable.Slot) {
		for _, a := range always {
			f, k := reader.locate(netip.PrefixFrom(a, width))
			s, _ := f.table.Find(k)
			out = append(out, s)
		}
		return out
	}
	before := at()
	stop := time.Now().Add(700 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; time.Now().Before(stop); i++ {
			p := changing[r.IntN(len(changing))]
			switch {
			case i%8 == 0:
				d.Delete(p)
			case i%1000 == 1:
				d.Expire(c.now)
			default:
				if err := d.Add(p, []uint64{0, 1001, 1 << 39}[r.IntN(3)]); err != nil &&
					d.Len() < max {
					t.Errorf("add to %d entries: %v", d.Len(), err)
				}
			}
			if i%100 == 0 {
				c.now = 1000 + uint64(i/100%2) // what ends at 1001 is reclaimed
			}
		}
	})
	check := func(yes bool, want bool, a netip.Addr) {
		if yes != want {
			t.Errorf("%v: %v, want %v", a, yes, want)
		}
	}
	wg.Go(func() {
		for time.Now().Before(stop) {
			a, b := always[rand.IntN(len(always))], never[rand.IntN(len(never))]
			check(reader.Lookup(a), true, a)
			check(reader.Lookup(b), false, b)
		}
	})
	for time.Now().Before(stop) && program != nil {
		for i, yes := range program.judge(t, always) {
			check(yes, true, always[i])
		}
		for i, yes := range program.judge(t, never) {
			check(yes, false, never[i])
		}
	}
	wg.Wait()
	if !sound(d) {
		t.Error("bookkeeping is wrong")
	}
	if slices.Equal(before, at()) {
		t.Error("no entry was moved: the test does not show what it should")
	}
}
