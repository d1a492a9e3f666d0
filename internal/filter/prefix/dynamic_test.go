package prefix

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
	"levee/internal/kernel"
)

// clock is moved by the test.
type clock struct{ now uint64 }

func (c *clock) read() uint64 { return c.now }

// newDynamic makes a set in memory like that of a mapped map: zeroed, aligned.
func newDynamic(t testing.TB, max int, c *clock) *Dynamic {
	t.Helper()
	mem := make([]byte, geometryOf(max).size)
	if err := Format(mem, max); err != nil {
		t.Fatal(err)
	}
	d, err := Open(mem, c.read)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mapped is a set in a map.
type mapped struct {
	*Dynamic
	m *ebpf.Map
}

// callLookup calls the function lookup, at any place.
func callLookup(b *assembler.Builder) { b.Emit(asm.Call.Label("lookup")) }

// lookups write that function, by the width of addresses.
func lookups(max int) map[int]write {
	return map[int]write{
		32:  func(b *assembler.Builder) { DynamicFunction4(b, "set_x", "lookup", max) },
		128: func(b *assembler.Builder) { DynamicFunction6(b, "set_x", "lookup", max) },
	}
}

// jiffies is the kernel's clock.
func jiffies(t testing.TB) uint64 {
	t.Helper()
	now, _, err := kernel.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// inKernel makes a set whose map programs can read, and one program for each family.
func inKernel(t testing.TB, max int, c *clock) (mapped, map[int]*runner) {
	t.Helper()
	needRoot(t)
	spec, err := DynamicSpec("set_x", max)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outer.Close() })
	sets := map[string]any{"set_x": outer}
	in := mapped{m: outer}
	in.swap(t, max, c, nil)
	return in, map[int]*runner{
		32:  newRunner(t, callLookup, sets, 1024, lookups(max)[32]),
		128: newRunner(t, callLookup, sets, 1024, lookups(max)[128]),
	}
}

// swap puts a new set with these entries in the place of what programs read.
func (in *mapped) swap(t testing.TB, max int, c *clock, entries []Entry) {
	t.Helper()
	in.swapFor(t, max, c, func(next *Dynamic) { addEntries(t, next, entries) })
}

// swapFor puts a new set that fill has filled in the place of what programs read.
func (in *mapped) swapFor(t testing.TB, max int, c *clock, fill func(next *Dynamic)) {
	t.Helper()
	spec, err := DynamicSpec("set_x", max)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.InnerMap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	mem, err := unix.Mmap(m.FD(), 0, int(m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	if err := Format(mem, max); err != nil {
		t.Fatal(err)
	}
	d, err := Open(mem, c.read)
	if err != nil {
		t.Fatal(err)
	}
	in.Dynamic = d
	fill(d)
	if err := in.m.Put(uint32(0), m); err != nil {
		t.Fatal(err)
	}
}

func addEntries(t testing.TB, d *Dynamic, entries []Entry) {
	t.Helper()
	for _, e := range entries {
		if err := d.Add(e.Prefix, e.Expires); err != nil {
			t.Fatal(err)
		}
	}
}

// sound says whether the counts agree with each other.
func sound(d *Dynamic) bool {
	total, ok := index{d}.Sound()
	return ok && int(total) == d.Len() && d.Len() <= d.Max()
}

// model is the naive set.
type model map[netip.Prefix]uint64

func (m model) inUse(now uint64) []netip.Prefix {
	var out []netip.Prefix
	for p, e := range m {
		if e == 0 || now < e {
			out = append(out, p)
		}
	}
	return out
}

// check compares the set with the model on addresses around the given prefixes; with programs,
// these too.
func check(t *testing.T, r *rand.Rand, d *Dynamic, m model, now uint64, around []netip.Prefix,
	programs map[int]*runner) {
	t.Helper()
	alive := m.inUse(now)
	for _, width := range []int{32, 128} {
		var near []netip.Prefix
		for _, p := range around {
			if p.Addr().BitLen() == width {
				near = append(near, p)
			}
		}
		addrs := probes(r, near, width, 5)
		var answers []bool
		if programs != nil {
			answers = programs[width].judge(t, addrs)
		}
		for i, a := range addrs {
			want := naive(alive, a)
			if got := d.Lookup(a); got != want {
				t.Fatalf("Lookup(%v) = %v, want %v", a, got, want)
			}
			if programs != nil && answers[i] != want {
				t.Fatalf("eBPF says %v for %v, want %v", answers[i], a, want)
			}
		}
	}
	n := 0
	for e := range d.All() {
		if got, ok := m[e.Prefix]; !ok || got != e.Expires {
			t.Fatalf("All has %v, the model %d, %v", e, got, ok)
		}
		n++
	}
	if n != len(alive) {
		t.Fatalf("All has %d entries, want %d", n, len(alive))
	}
	if d.Len() < n || !sound(d) {
		t.Fatalf("Len is %d of %d in use; bookkeeping sound: %v", d.Len(), n, sound(d))
	}
}

// TestDynamicFollowsAModel applies random changes to the set and to a map, and compares after each.
// Leases are an hour around the kernel's clock, so that both clocks agree on what has ended.
func TestDynamicFollowsAModel(t *testing.T) {
	const hour = 3600 * 1200 // at the highest rate
	for name, lengths := range map[string]map[int][]int{
		"any length": {32: span(0, 32), 128: span(0, 128)},
		"usual":      {32: {24, 32}, 128: {48, 64, 128}},
		"nested":     {32: {8, 16, 24, 25, 32}, 128: {16, 32, 33, 64, 65}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRand(t)
			c := &clock{now: 1 << 33}
			const max = 300
			var d *Dynamic
			var in mapped
			var programs map[int]*runner
			if os.Geteuid() == 0 {
				c.now = jiffies(t)
				in, programs = inKernel(t, max, c)
				d = in.Dynamic
			} else {
				d = newDynamic(t, max, c)
			}
			start := c.now
			m := model{}
			var known []netip.Prefix
			draw := func() netip.Prefix {
				if len(known) > 0 && r.IntN(3) == 0 {
					return known[r.IntN(len(known))]
				}
				width := []int{32, 128}[r.IntN(2)]
				p := randomPrefix(r, width, lengths[width], 4)
				known = append(known, p)
				return p
			}
			lease := func() uint64 {
				return []uint64{0, start + hour, start + hour + r.Uint64N(hour), start - 1,
					start - r.Uint64N(hour/2)}[r.IntN(5)]
			}
			for step := range 600 {
				p := draw()
				around := []netip.Prefix{p}
				c.now = start - hour // nothing has ended yet
				switch op := r.IntN(20); {
				case op < 12:
					e := lease()
					err := d.Add(p, e)
					if _, ok := m[p]; !ok && len(m) >= max {
						if !errors.Is(err, ErrFull) {
							t.Fatalf("step %d: add to a full set: %v", step, err)
						}
						break
					}
					if err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					m[p] = e
				case op < 17:
					_, was := m[p]
					if got := d.Delete(p); got != was {
						t.Fatalf("step %d: Delete(%v) = %v, want %v", step, p, got, was)
					}
					delete(m, p)
				case op < 18:
					c.now = start
					n := 0
					for p, e := range m {
						if e != 0 && e <= start {
							delete(m, p)
							n++
						}
					}
					if got := d.Expire(start); got != n {
						t.Fatalf("step %d: expired %d, want %d", step, got, n)
					}
				default:
					if r.IntN(4) > 0 {
						break
					}
					m = model{}
					var list []Entry
					for range r.IntN(200) {
						p, e := draw(), lease()
						list = append(list, Entry{p, e})
						around = append(around, p)
						m[p] = e
					}
					if programs != nil {
						in.swap(t, max, c, list)
						d = in.Dynamic
					} else {
						d = newDynamic(t, max, c)
						addEntries(t, d, list)
					}
				}
				c.now = start
				if step%20 == 0 {
					check(t, r, d, m, start, known, programs)
				} else {
					check(t, r, d, m, start, around, nil)
				}
			}
		})
	}
}

func TestDynamicIsFull(t *testing.T) {
	c := &clock{now: 1000}
	d := newDynamic(t, 3, c)
	for i, p := range parse("192.0.2.1/32", "2001:db8::/64", "198.51.100.0/24") {
		if err := d.Add(p, 2000+uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	extra := netip.MustParsePrefix("203.0.113.0/24")
	if err := d.Add(extra, 0); !errors.Is(err, ErrFull) {
		t.Fatalf("a fourth entry: %v", err)
	}
	if err := d.Add(netip.MustParsePrefix("192.0.2.1/32"), 2000); err != nil {
		t.Fatalf("a new lease in a full set: %v", err)
	}
	c.now = 2000
	if err := d.Add(extra, 0); err != nil {
		t.Fatalf("in place of an ended lease: %v", err)
	}
	if d.Len() != 3 || d.Lookup(netip.MustParseAddr("192.0.2.1")) ||
		!d.Lookup(netip.MustParseAddr("203.0.113.9")) {
		t.Errorf("the ended lease is still there, or the new entry is not: %d entries", d.Len())
	}
}

// TestDynamicHoldsMax fills sets of one family with entries of all kinds to the last one.
func TestDynamicHoldsMax(t *testing.T) {
	r := newRand(t)
	for _, max := range []int{1, 10, 1000, 50_000} {
		for width, lengths := range map[int][]int{32: {32}, 128: {128}} {
			c := &clock{now: 1}
			d := newDynamic(t, max, c)
			for d.Len() < max {
				p := netip.PrefixFrom(join(r.Uint64(), r.Uint64(), width), lengths[0])
				if err := d.Add(p, 0); err != nil {
					t.Fatalf("max %d, %d bits: after %d entries: %v", max, width, d.Len(), err)
				}
			}
			if !sound(d) {
				t.Errorf("max %d: bookkeeping is wrong", max)
			}
		}
	}
}

func TestOpenRefusesForeignMemory(t *testing.T) {
	c := &clock{}
	good := newDynamic(t, 100, c).mem
	change := func(off int, b byte) []byte {
		m := append([]byte(nil), good...)
		m[off] ^= b
		return m
	}
	for name, mem := range map[string][]byte{
		"nothing":       nil,
		"zeros":         make([]byte, len(good)),
		"short":         good[:100],
		"a page less":   good[:len(good)-4096],
		"magic":         change(hashtable.AtMagic, 1),
		"version":       change(hashtable.AtVersion, 2),
		"max":           change(hashtable.AtMax, 0x80),
		"max, huge":     change(hashtable.AtMax+7, 0x80),
		"size":          change(hashtable.AtSize, 0x10),
		"mask of a /64": change(hashtable.AtMasks+16*65, 1),
	} {
		if _, err := Open(mem, c.read); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DynamicSpec("x", MaxEntries+1); err == nil {
		t.Error("max is not bounded")
	}
	if err := Format(make([]byte, 4096), 100); !errors.Is(err, ErrLayout) {
		t.Errorf("format too little memory: %v", err)
	}
}

// TestDynamicIsMended kills a writer, in effect, at each kind of half-done change, and opens again.
func TestDynamicIsMended(t *testing.T) {
	r := newRand(t)
	c := &clock{now: 5}
	d := newDynamic(t, 200, c)
	m := model{}
	for range 150 {
		p := randomPrefix(r, []int{32, 128}[r.IntN(2)], []int{8, 24, 32}, 300)
		if err := d.Add(p, 0); err != nil {
			t.Fatal(err)
		}
		m[p] = 0
	}
	var all []netip.Prefix
	for p := range m {
		all = append(all, p)
	}
	for name, harm := range map[string]func(){
		"counted, not written": func() { index{d}.Count(d.v4.table, hashtable.Key{Code: 32}, 1) },
		"total":                func() { *d.mem.U32(hashtable.AtTotal) += 3 },
		"length not in use": func() {
			*d.mem.U64(d.v4.lengths + lengthsUsed) &= *d.mem.U64(d.v4.lengths + lengthsUsed) - 1
		},
		"lengths are noise": func() { *d.mem.U64(d.v6.lengths + lengthsUsed + 8) = 0x5555 },
		"number is noise":   func() { *d.mem.U64(d.v6.lengths) = 1 << 60 },
		"filter is empty":   func() { clear(d.mem[d.v4.filter : d.v6.filter+16<<d.v6.bits]) },
		"short is empty":    func() { clear(d.mem[d.v6.lengths+lengthsShort:][:16]) },
		"slot is noise": func() {
			*d.mem.U64(d.v4.At + 3*d.v4.Bytes + d.v4.Metas + 8*4) = 200
			*d.mem.U32(hashtable.AtTotal) += 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			harm()
			*d.mem.U32(hashtable.AtDirty) = 1
			var err error
			if d, err = Open(d.mem, c.read); err != nil {
				t.Fatal(err)
			}
			if d.Len() != len(m) {
				t.Errorf("%d entries, want %d", d.Len(), len(m))
			}
			check(t, r, d, m, c.now, all, nil)
		})
	}
}

// TestVerifierWalksTheFunctionOnce calls the look-up more often than inline code could stand in a
// program.
func TestVerifierWalksTheFunctionOnce(t *testing.T) {
	needRoot(t)
	const max, calls = 1000, 40
	c := &clock{now: 1}
	for width, fn := range lookups(max) {
		d, _ := inKernel(t, max, c)
		in := netip.PrefixFrom(join(0x0a01<<48, 0, width), 16)
		if err := d.Add(in, 0); err != nil {
			t.Fatal(err)
		}
		body := func(b *assembler.Builder) {
			b.Emit(asm.Mov.Reg(asm.R6, asm.R1), asm.And.Imm(asm.R6, 1023), asm.Mov.Imm(asm.R7, 0))
			for range calls {
				b.Emit(asm.Mov.Reg(asm.R1, asm.R6))
				b.Emit(loadAddress()...)
				b.Emit(asm.Call.Label("lookup"), asm.Add.Reg(asm.R7, asm.R0))
			}
			b.Emit(
				asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
				asm.Add.Reg(asm.R3, asm.R6),
				asm.StoreMem(asm.R3, 0, asm.R7, asm.Byte),
			)
		}
		r := loadRunner(t, body, map[string]any{"set_x": d.m}, 1024, 1024, fn)
		r.fill(t, []netip.Addr{in.Addr(), join(0x0a02<<48, 0, width)})
		if got := r.run(t); got[0] != calls || got[1] != 0 {
			t.Errorf("%d bits: %d calls say yes to a member, %d to another", width, got[0], got[1])
		}
		info, err := r.prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok && n > 10_000 {
			t.Errorf("%d bits: the verifier walked %d instructions", width, n)
		}
	}
}
