package prefix

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
)

// FuzzStatic builds sets of whatever prefixes the bytes spell and asks around them.
func FuzzStatic(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0, 8, 10, 0, 0, 0, 32, 255, 255, 255, 255, 1, 1, 2, 3, 4, 24}, false)
	f.Add([]byte("\x20\x01\x0d\xb8 0123456789ab@ 0123456789abcdef\x7f"), true)
	f.Fuzz(func(t *testing.T, data []byte, six bool) {
		width, size := 32, 4
		if six {
			width, size = 128, 16
		}
		var prefixes []netip.Prefix
		for ; len(data) > size && len(prefixes) < 200; data = data[size+1:] {
			a, _ := netip.AddrFromSlice(data[:size])
			prefixes = append(prefixes, netip.PrefixFrom(a, int(data[size])%(width+1)))
		}
		s := newStatic(prefixes, width)
		s.Emit(assembler.New(), "set")
		for i, p := range prefixes {
			prefixes[i] = p.Masked()
		}
		for _, a := range probes(rand.New(rand.NewPCG(1, 1)), prefixes, width, 5) {
			if got, want := s.Contains(a), naive(prefixes, a); got != want {
				t.Fatalf("%s: Contains(%v) = %v, want %v", s.Why(), a, got, want)
			}
		}
	})
}

// FuzzOpen changes bytes of a set's memory, as a hostile or broken writer might, and uses what
// opens: it may give wrong answers, but must neither panic nor loop.
func FuzzOpen(f *testing.F) {
	f.Add(uint32(hashtable.AtTotal), []byte{9}, uint8(1))
	f.Add(uint32(offLengths4), []byte{200, 0, 0, 0, 200}, uint8(1))
	f.Add(uint32(offCounts4), []byte{255, 255, 255, 255, 255}, uint8(0))
	f.Add(uint32(geometryOf(20).v4.At+24), []byte{33, 1, 0, 0, 0, 200, 7}, uint8(0))
	f.Fuzz(func(t *testing.T, at uint32, change []byte, dirty uint8) {
		c := &clock{now: 10}
		d := newDynamic(t, 20, c)
		for _, p := range parse("10.0.0.0/8", "10.0.0.0/24", "192.0.2.1/32", "::/0",
			"2001:db8::/32", "2001:db8::1/128") {
			if err := d.Add(p, 20); err != nil {
				t.Fatal(err)
			}
		}
		copy(d.mem[int(at)%len(d.mem):], change)
		if dirty%2 == 1 {
			d.mem[hashtable.AtDirty] = 1
		}
		d, err := Open(d.mem, c.read)
		if err != nil {
			return
		}
		for _, p := range parse("10.0.0.0/8", "10.1.0.0/16", "::/0", "2001:db8::1/128",
			"2001:db8::2/128") {
			d.Lookup(p.Addr())
			d.Get(p)
			_ = d.Add(p, 30) // may be refused
			d.Delete(p)
		}
		for e := range d.All() {
			_ = e.Prefix.String()
		}
		d.Expire(25)
		d.RollUp(func(netip.Prefix) bool { return false })
		if err := d.CopyTo(make([]byte, len(d.mem))); err != nil {
			t.Error(err)
		}
	})
}
