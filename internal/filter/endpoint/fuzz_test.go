package endpoint

import (
	"testing"

	"levee/internal/filter/hashtable"
)

// FuzzOpen changes bytes of a set's memory, as a hostile or broken writer might, and uses what
// opens: it may give wrong answers, but must neither panic nor loop.
func FuzzOpen(f *testing.F) {
	f.Add(uint32(hashtable.AtTotal), []byte{9}, uint8(1))
	f.Add(uint32(offNumber4), []byte{200, 0, 0, 0, 200}, uint8(0))
	f.Add(uint32(offShapes4), []byte{255, 255, 255, 255, 1, 17}, uint8(1))
	f.Add(uint32(offCounts), []byte{1, 0, 0, 0, 1}, uint8(0))
	f.Add(uint32(offBuckets), []byte{255, 1, 2, 0, 0, 200, 7, 0, 163}, uint8(1))
	f.Fuzz(func(t *testing.T, at uint32, change []byte, dirty uint8) {
		c := &clock{10}
		table := newTable(t, 20, c)
		entries := []Entry{entry("10.0.0.0/8", 6, 80, 16), entry("0.0.0.0/0", 47, 0, 0),
			entry("192.0.2.1/32", 17, 4000, 8),
			entry("::/0", 58, 0, 0), entry("2001:db8::/32", 132, 5000, 12), entry("2001:db8::1/128",
				6, 443, 16)}
		for _, e := range entries {
			e.Expires = 20
			if err := table.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		copy(table.mem[int(at)%len(table.mem):], change)
		if dirty%2 == 1 {
			table.mem[hashtable.AtDirty] = 1
		}
		table, err := Open(table.mem, c.now)
		if err != nil {
			return
		}
		for _, e := range entries {
			table.Lookup(e.Prefix.Addr(), e.Proto, e.Port)
			table.Get(e)
			_ = table.Add(e) // may be refused
			e.Bits = 3
			_ = table.Add(e)
			table.Delete(e)
		}
		for range table.All() {
		}
		c.jiffies = 1000
		table.Expire(c.jiffies)
		if _, err := Open(table.mem, c.now); err != nil {
			t.Errorf("what was opened does not open again: %v", err)
		}
	})
}
