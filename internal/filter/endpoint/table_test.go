package endpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"levee/internal/filter/hashtable"
)

// clock is a time that tests set.
type clock struct{ jiffies uint64 }

func (c *clock) now() uint64 { return c.jiffies }

// memory is aligned as mapped memory is.
func memory(size int) []byte {
	words := make([]uint64, (size+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
}

func newTable(t testing.TB, max int, c *clock) *Table {
	t.Helper()
	mem := memory(sizeFor(max))
	if err := FormatRoom(mem, max, max); err != nil {
		t.Fatal(err)
	}
	table, err := Open(mem, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// entry makes an entry of text; bits is the length of the port block.
func entry(prefix string, proto uint8, port uint16, bits uint8) Entry {
	return Entry{Prefix: netip.MustParsePrefix(prefix), Proto: proto, Port: port, Bits: bits}
}

func TestLookupAsksForAllThreeOfOneEntry(t *testing.T) {
	c := &clock{1000}
	table := newTable(t, 100, c)
	for _, e := range []Entry{
		entry("192.0.2.10/32", 6, 443, 16), entry("192.0.2.0/24", 17, 8000, 13),
		entry("2001:db8::/48", 132, 0, 0), entry("198.51.100.1/32", 47, 0, 0),
		entry("0.0.0.0/0", 6, 25, 16),
	} {
		if err := table.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		addr  string
		proto uint8
		port  uint16
		want  bool
	}{
		{"192.0.2.10", 6, 443, true}, {"192.0.2.10", 17, 443, false}, {"192.0.2.11", 6, 443, false},
		{"192.0.2.10", 6, 442, false},
		{"192.0.2.77", 17, 8000, true}, {"192.0.2.77", 17, 8007, true},
		{"192.0.2.77", 17, 7999, false}, {"192.0.2.77", 17, 8008, false},
		{"192.0.3.0", 17, 8000, false}, {"191.255.255.255", 17, 8000, false},
		{"2001:db8::1", 132, 9, true}, {"2001:db8:1::1", 132, 9, false},
		{"2001:db8::1", 6, 9, false},
		{"198.51.100.1", 47, 0, true}, {"198.51.100.1", 50, 0, false},
		{"203.0.113.1", 6, 25, true}, {"2001:db8::1", 6, 25, false},
		{"::ffff:203.0.113.1", 6, 25, false},
	} {
		if got := table.Lookup(netip.MustParseAddr(tt.addr), tt.proto, tt.port); got != tt.want {
			t.Errorf("%s %d/%d: %v", tt.addr, tt.proto, tt.port, got)
		}
	}
}

func TestLeasesEnd(t *testing.T) {
	c := &clock{1000}
	table := newTable(t, 2, c)
	e := entry("192.0.2.1/32", 6, 80, 16)
	e.Expires = 1010
	if err := table.Add(e); err != nil {
		t.Fatal(err)
	}
	c.jiffies = 1009
	if !table.Lookup(e.Prefix.Addr(), 6, 80) {
		t.Error("gone before its time")
	}
	c.jiffies = 1010
	if table.Lookup(e.Prefix.Addr(), 6, 80) || table.Delete(e) {
		t.Error("there after its time")
	}
	e.Expires = 1009
	if err := table.Add(e); err != nil || table.Len() != 0 {
		t.Errorf("a lease that has ended: %v, %d entries", err, table.Len())
	}
}

func TestFullSetsRefuseAndMakeRoomForTheEnded(t *testing.T) {
	c := &clock{1000}
	table := newTable(t, 3, c)
	for i := range 3 {
		e := entry("192.0.2.1/32", 6, uint16(i), 16)
		e.Expires = 1000 + uint64(10*i+10)
		if err := table.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	more := entry("192.0.2.1/32", 6, 99, 16)
	if err := table.Add(more); !errors.Is(err, ErrFull) || table.Len() != 3 {
		t.Fatalf("%v, %d entries", err, table.Len())
	}
	c.jiffies = 1010
	if err := table.Add(more); err != nil || table.Len() != 3 {
		t.Fatalf("%v, %d entries", err, table.Len())
	}
}

func TestShapesAreBounded(t *testing.T) {
	c := &clock{1000}
	table := newTable(t, 1000, c)
	added := 0
	for length := 1; length <= 32; length++ {
		for bits := range 17 {
			e := Entry{Prefix: netip.PrefixFrom(netip.MustParseAddr("192.0.2.0"), length).Masked(),
				Proto: 6, Bits: uint8(bits), Expires: 2000}
			err := table.Add(e)
			if added == MaxShapes {
				if !errors.Is(err, ErrShapes) {
					t.Fatalf("shape %d: %v", added+1, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			added++
		}
	}
	if table.Len() != MaxShapes {
		t.Errorf("%d entries", table.Len())
	}
	c.jiffies = 2000 // those whose lease has ended make room
	if err := table.Add(entry("192.0.2.1/32", 6, 5, 16)); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesForeignMemory(t *testing.T) {
	mem := memory(sizeFor(10))
	if _, err := Open(mem, new(clock).now); !errors.Is(err, ErrLayout) {
		t.Error(err)
	}
	if err := FormatRoom(mem, 10, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(mem[:len(mem)-4096], new(clock).now); !errors.Is(err, ErrLayout) {
		t.Error(err)
	}
	if err := FormatRoom(mem, 3000, 3000); !errors.Is(err, ErrLayout) {
		t.Error(err)
	}
}

// model is the plain reference of a set.
type model struct {
	entries map[Entry]uint64 // with Expires 0: end of the lease
	max     int
}

func (m *model) expire(now uint64) {
	for e, end := range m.entries {
		if end != 0 && end <= now {
			delete(m.entries, e)
		}
	}
}

func (m *model) holds(a netip.Addr, proto uint8, port uint16) bool {
	for e := range m.entries {
		if e.Proto == proto && e.Prefix.Contains(a) && port>>(16-e.Bits) == e.Port>>(16-e.Bits) {
			return true
		}
	}
	return false
}

// random is an entry of a small space, so that entries meet; v6 too.
func random(r *rand.Rand) Entry {
	port := uint16(8000 + r.IntN(20))
	bits := []uint8{16, 16, 16, 15, 13, 0}[r.IntN(6)]
	port = uint16(uint32(port) >> (16 - bits) << (16 - bits))
	a := netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(8))})
	length := []int{32, 32, 32, 31, 24, 0}[r.IntN(6)]
	if r.IntN(3) == 0 {
		a = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x:0:%x", r.IntN(3), r.IntN(8)))
		length = []int{128, 128, 126, 96, 48, 0}[r.IntN(6)]
	}
	return Entry{Prefix: netip.PrefixFrom(a, length).Masked(),
		Proto: []uint8{6, 17, 132}[r.IntN(3)], Port: port, Bits: bits}
}

// asker is a table, or the program that reads its memory.
type asker func(a netip.Addr, proto uint8, port uint16) bool

// sequence changes the table and the model alike and compares them after each step. With replace,
// which gives the empty memory that takes the place of what there is, it does that too.
func sequence(t *testing.T, seed uint64, steps, max int, table *Table, c *clock,
	replace func() *Table, ask ...asker) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	m := &model{map[Entry]uint64{}, max}
	for i := range steps {
		c.jiffies += uint64(r.IntN(3))
		m.expire(c.jiffies)
		e := random(r)
		if replace != nil && r.IntN(50) == 0 {
			*table, m.entries = *replace(), map[Entry]uint64{}
		}
		switch r.IntN(8) {
		case 0, 1:
			_, there := m.entries[e]
			if got := table.Delete(e); got != there {
				t.Fatalf("step %d: delete %v: %v, want %v", i, e, got, there)
			}
			delete(m.entries, e)
		case 2:
			if r.IntN(10) == 0 {
				table.Expire(c.jiffies)
			} else {
				*table.mem.U32(hashtable.AtDirty) = 1 // as a killed writer leaves it
				again, err := Open(table.mem, c.now)
				if err != nil {
					t.Fatal(err)
				}
				*table = *again
			}
		default:
			end := uint64(0)
			if r.IntN(2) == 0 {
				end = c.jiffies + uint64(1+r.IntN(60))
			}
			_, there := m.entries[e]
			fits := there || len(m.entries) < m.max
			add := e
			add.Expires = end
			if err := table.Add(add); (err == nil) != fits {
				t.Fatalf("step %d: add %v to %d: %v", i, e, len(m.entries), err)
			}
			if fits {
				m.entries[e] = end
			}
		}
		for range 4 {
			q := random(r)
			a, port := q.Prefix.Addr(), q.Port+uint16(r.IntN(3))-1
			want := m.holds(a, q.Proto, port)
			for n, f := range append(ask, table.Lookup) {
				if got := f(a, q.Proto, port); got != want {
					t.Fatalf("step %d, asker %d: %v %d/%d: %v, want %v", i, n, a, q.Proto, port,
						got, want)
				}
			}
		}
	}
	n := 0
	for e := range table.All() {
		end, ok := m.entries[Entry{e.Prefix, e.Proto, e.Port, e.Bits, 0}]
		if !ok || end != e.Expires {
			t.Fatalf("the table lists %v; in the model: %v, %d", e, ok, end)
		}
		n++
	}
	if n != len(m.entries) {
		t.Fatalf("the table lists %d entries, the model %d", n, len(m.entries))
	}
}

func TestRandomSequencesAgreeWithTheModel(t *testing.T) {
	for seed := range uint64(6) {
		c := &clock{1000}
		max := []int{1, 10, 60, 300}[seed%4]
		sequence(t, seed, 20_000, max, newTable(t, max, c), c, nil)
	}
}

// A table takes as many entries as it says, whatever they are, filled and emptied again and again.
func TestATableTakesMaxEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, max := range []int{1, 7, 1000, 200_000} {
		table := newTable(t, max, &clock{1})
		var in []Entry
		for range 2 {
			for len(in) < max {
				e := Entry{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(r.Uint32()),
					byte(r.Uint32()), byte(r.Uint32()),
					byte(r.Uint32())}), 32), Proto: 6, Port: uint16(r.Uint32()), Bits: 16}
				if _, ok := table.Get(e); ok {
					continue
				}
				if err := table.Add(e); err != nil {
					t.Fatalf("entry %d of %d: %v", len(in), max, err)
				}
				in = append(in, e)
			}
			for _, e := range in[max/2:] {
				if !table.Delete(e) {
					t.Fatalf("%v is not there", e)
				}
			}
			in = in[:max/2]
		}
	}
}

// A look-up is stopped where it reads the clock, at an entry whose lease has ended, while the list
// of shapes changes.
func TestLookupFindsAShapeThatMovesMeanwhile(t *testing.T) {
	for ended := range 3 {
		mem := memory(sizeFor(100))
		if err := FormatRoom(mem, 100, 100); err != nil {
			t.Fatal(err)
		}
		c := &clock{1}
		writer, err := Open(mem, c.now)
		if err != nil {
			t.Fatal(err)
		}
		entries := []Entry{entry("192.0.2.0/24", 6, 0, 0), entry("192.0.2.0/25", 6, 0, 0),
			entry("192.0.2.0/26", 6, 0, 0), entry("192.0.2.9/32", 6, 443, 16)}
		entries[ended].Expires = 5
		for i, e := range entries {
			if i != ended && i != 3 {
				// elsewhere
				e.Prefix = netip.PrefixFrom(netip.MustParseAddr("198.51.100.0"), e.Prefix.Bits())
				entries[i] = e
			}
			if err := writer.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		reader, err := Open(mem, func() uint64 {
			if c.jiffies == 1 {
				c.jiffies = 5
				// the last shape takes its place ...
				writer.Delete(entries[0])
				// ... and leaves its own to another
				if err := writer.Add(entry("203.0.113.0/27", 6, 0, 0)); err != nil {
					t.Error(err)
				}
			}
			return 5
		})
		if err != nil {
			t.Fatal(err)
		}
		if !reader.Lookup(netip.MustParseAddr("192.0.2.9"), 6, 443) {
			t.Errorf("the lease of shape %d has ended: what is always there is not found", ended)
		}
	}
}

// A writer killed between the two steps by which the last shape takes the place of one that goes
// leaves it in the list twice. Mending must not take it out for the time of the mending: programs
// are reading.
func TestMendingKeepsShapesInTheList(t *testing.T) {
	table := newTable(t, 100, &clock{1})
	for _, e := range []Entry{entry("192.0.2.0/24", 6, 0, 0), entry("192.0.2.0/25", 6, 0, 0),
		entry("192.0.2.9/32", 6, 443, 16)} {
		if err := table.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	*table.mem.U32(offShapes4) = *table.mem.U32(offShapes4 + 8)
	*table.mem.U32(hashtable.AtDirty) = 1
	var least atomic.Uint32
	least.Store(MaxShapes)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				least.Store(min(least.Load(), atomic.LoadUint32(table.mem.U32(offNumber4))))
			}
		}
	}()
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until); {
		*table.mem.U32(offShapes4) = *table.mem.U32(offShapes4 + 8)
		table.relist(true, table.shapes())
	}
	close(stop)
	<-done
	if n := least.Load(); n < 3 {
		t.Errorf("programs saw %d shapes of 3", n)
	}
	if _, ok := (index{table}).Sound(); !ok ||
		!table.Lookup(netip.MustParseAddr("192.0.2.9"), 6, 443) {
		t.Error("the set is not mended")
	}
}
