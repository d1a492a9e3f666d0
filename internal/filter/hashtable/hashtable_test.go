package hashtable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// atCount is the place in which the tests' sets count their entries besides.
const atCount = AtOwn + 8

// layouts are one of each sort.
var layouts = map[string]Layout{
	"narrow": {Bytes: 64, Slots: 5, Narrow: true, Spilled: 0, Metas: 24, Keys: 4, Codes: 33},
	"wide":   {Bytes: 128, Slots: 5, Spilled: 0, Metas: 8, Keys: 48, Codes: 129},
	"with services": {Bytes: 128, Slots: 4, Spilled: 112, Metas: 0, Keys: 32, Services: 96,
		Codes: 129},
}

// kindOf makes a kind of sets with two tables of one layout, as full as those of package prefix.
func kindOf(l Layout) *Kind {
	k := &Kind{Of: "of a set of tests", Magic: 7, Version: 3, MaxEntries: 1 << 20, AtRoom: AtOwn}
	for n := range 129 {
		k.Lengths = append(k.Lengths, n)
	}
	k.Layout = func(room int) ([]Layout, int) {
		a := l
		a.At, a.Buckets = AtRest, room*100/(55*l.Slots)+8
		b := a
		b.At += a.Buckets * a.Bytes
		return []Layout{a, b}, (b.At + b.Buckets*b.Bytes + 4095) &^ 4095
	}
	return k
}

// memory is aligned as mapped memory is.
func memory(size int) Memory {
	words := make([]uint64, size/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
}

// set is a set with the clock that a test moves; as its own index it checks what it is told.
type set struct {
	*Set
	t       testing.TB
	kind    *Kind
	jiffies uint64
	refuse  error
}

func newSet(t testing.TB, l Layout, max int) *set {
	t.Helper()
	s := &set{t: t, kind: kindOf(l), jiffies: 1000}
	_, size := s.kind.Layout(max)
	mem := memory(size)
	if err := s.kind.Format(mem, max, max); err != nil {
		t.Fatal(err)
	}
	s.open(mem)
	return s
}

func (s *set) open(mem Memory) {
	s.t.Helper()
	opened, err := s.kind.Open(mem, func() uint64 { return s.jiffies }, func(o *Set) Index {
		s.Set = o
		return s
	})
	if err != nil || opened != s.Set {
		s.t.Fatal(err)
	}
}

func (s *set) Admit(*Table, *Key, uint64) error { return s.refuse }

func (s *set) Dismiss(Key) {}

func (s *set) Count(t *Table, k Key, by int) {
	if _, there := t.Find(k); there {
		s.t.Errorf("%v can be found when it is counted by %d", k, by)
	}
	if *s.mem.U32(AtDirty) == 0 {
		s.t.Errorf("a change of %v while the set is marked clean", k)
	}
	*s.mem.U32(atCount) += uint32(by)
}

func (s *set) Settle()                        {}
func (s *set) Possible(_ *Table, k Key) bool  { return k.Hi%2 == 0 }
func (s *set) Sound() (total uint32, ok bool) { return *s.mem.U32(atCount), true }

func (s *set) Recount() (total uint32) {
	for i := range s.Tables {
		for range s.Tables[i].Entries() {
			total++
		}
	}
	*s.mem.U32(atCount) = total
	return total
}

// key makes the i-th key of a table.
func (s *set) key(i int) Key {
	k := Key{Hi: uint64(i+1) * 0x9e37_79b1 << 1 & 0xffff_ffff, Code: 1 + i%33}
	if t := s.Tables[0]; !t.Narrow {
		k.Hi, k.Lo, k.Code = k.Hi<<32|uint64(i)<<1, uint64(i)*0x9e37_79b9_7f4a_7c15, 1+i%129
		if t.Services != 0 {
			k.Service = uint32(i) * 0x85eb_ca6b
		}
	}
	return k
}

// Random changes, killed writers among them, leave what a map says, after each step.
func TestASetFollowsAModel(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			for seed, max := range []int{1, 12, 300} {
				t.Logf("seed %d", seed)
				r := rand.New(rand.NewPCG(uint64(seed), 1))
				s := newSet(t, l, max)
				type place struct{ table, i int }
				model := map[place]uint64{}
				for step := range 5000 {
					s.jiffies += uint64(r.IntN(2))
					for at, end := range model {
						if end != 0 && end <= s.jiffies {
							delete(model, at)
						}
					}
					at := place{r.IntN(2), r.IntN(2 * max)}
					tab, k := &s.Tables[at.table], s.key(at.i)
					_, there := model[at]
					switch op := r.IntN(20); {
					case op < 12:
						end := []uint64{0, s.jiffies + uint64(r.IntN(2*max+9)),
							s.jiffies - 1}[r.IntN(3)]
						err := tab.Add(k, end)
						if end != 0 && end <= s.jiffies {
							delete(model, at)
						} else if there || len(model) < max {
							model[at] = end
						} else if !errors.Is(err, ErrFull) {
							t.Fatalf("step %d: add to a full set: %v", step, err)
						} else {
							err = nil
						}
						if err != nil {
							t.Fatalf("step %d: %v", step, err)
						}
					case op < 18:
						if got := tab.Delete(k); got != there {
							t.Fatalf("step %d: delete: %v, want %v", step, got, there)
						}
						delete(model, at)
					case op == 18:
						s.Expire(s.jiffies)
					default:
						*s.mem.U32(AtDirty) = 1
						s.open(s.mem)
					}
					tab = &s.Tables[at.table]
					end, there := model[at]
					if got, ok := tab.Get(k); ok != there || got != end || tab.Holds(k) != there {
						t.Fatalf("step %d: %v, %v, want %v, %v", step, got, ok, end, there)
					}
				}
				for i := range s.Tables {
					n := 0
					for range s.Tables[i].Alive() {
						n++
					}
					for at := range model {
						if at.table == i {
							n--
						}
					}
					if n != 0 {
						t.Errorf("table %d has %d entries more than the model", i, n)
					}
				}
				if s.Expire(s.jiffies); s.Len() != len(model) || !s.sound() {
					t.Errorf("%d entries, want %d; sound: %v", s.Len(), len(model), s.sound())
				}
			}
		})
	}
}

// What stays is found by every look-up while other entries come, go, and push it into its second
// bucket.
func TestWhatMovesIsNeverMissed(t *testing.T) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			const max, stay = 600, 150
			s := newSet(t, l, max)
			tab := &s.Tables[0]
			for i := range stay {
				if err := tab.Add(s.key(i), 0); err != nil {
					t.Fatal(err)
				}
			}
			places := func() (out [stay]Slot) {
				for i := range stay {
					out[i], _ = tab.Find(s.key(i))
				}
				return out
			}
			before := places()
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				r := rand.New(rand.NewPCG(1, 1))
				for !stop.Load() {
					if k := s.key(stay + r.IntN(3*max)); r.IntN(3) == 0 {
						tab.Delete(k)
					} else if err := tab.Add(k, 0); err != nil && !errors.Is(err, ErrFull) {
						t.Error(err)
						return
					}
				}
			}()
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) &&
				!t.Failed(); {
				for i := range stay {
					if !tab.Holds(s.key(i)) {
						t.Errorf("entry %d was not found", i)
					}
					if tab.Holds(s.key(100_000 + i)) {
						t.Errorf("what was never there was found")
					}
				}
			}
			stop.Store(true)
			<-done
			if before == places() {
				t.Error("no entry was moved: the test does not show what it should")
			}
			if !s.sound() {
				t.Error("the bookkeeping is wrong")
			}
		})
	}
}

// A writer may be killed anywhere; what it leaves is mended, and nothing that was there is lost.
func TestAKilledWritersChangeIsMended(t *testing.T) {
	for name, l := range layouts {
		s := newSet(t, l, 200)
		for i := range 150 {
			if err := s.Tables[i%2].Add(s.key(i), 0); err != nil {
				t.Fatal(err)
			}
		}
		copied := func(tab *Table) {
			for at, k := range tab.Entries() {
				first, second, tag := tab.hash(k)
				if to, ok := tab.free(second, 0); ok && first == at.bucket && second != first {
					*tab.spilled(first)++
					tab.write(to, k, tag, 0)
					return
				}
			}
			t.Fatal("no entry to copy")
		}
		for what, harm := range map[string]func(tab *Table){
			"total":                func(*Table) { *s.mem.U32(AtTotal) += 3 },
			"count":                func(*Table) { *s.mem.U32(atCount)++ },
			"spilled, not written": func(tab *Table) { *tab.spilled(1)++ },
			"copied, not removed":  copied,
			"slot is noise": func(tab *Table) {
				for b := range tab.Buckets {
					if at, ok := tab.free(b, 0); ok {
						*tab.meta(at) |= 200
						return
					}
				}
			},
			"impossible key": func(tab *Table) {
				k := Key{Hi: 1, Code: 5}
				first, _, tag := tab.hash(k)
				if at, ok := tab.free(first, 0); ok {
					tab.write(at, k, tag, 0)
				}
			},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				want := s.Len()
				harm(&s.Tables[1])
				*s.mem.U32(AtDirty) = 1
				s.open(s.mem)
				if s.Len() != want || !s.sound() || *s.mem.U32(AtDirty) != 0 {
					t.Errorf("%d entries, want %d; sound: %v", s.Len(), want, s.sound())
				}
				for i := range 150 {
					if k := s.key(i); !s.Tables[i%2].Holds(k) {
						t.Errorf("entry %d is lost", i)
					}
				}
				for i := range s.Tables {
					tab := &s.Tables[i]
					spilled := make([]uint32, tab.Buckets)
					for at, k := range tab.Entries() {
						if first, _, _ := tab.hash(k); first != at.bucket {
							spilled[first]++
						}
					}
					for b, n := range spilled {
						if *tab.spilled(b) != n {
							t.Errorf("bucket %d says that %d have spilled, want %d", b,
								*tab.spilled(b), n)
						}
					}
				}
			})
		}
	}
}

// A search for ended leases within an addition leaves the set marked as being changed: that Count
// checks.
func TestASetStaysDirtyUntilTheEndOfAChange(t *testing.T) {
	s := newSet(t, layouts["wide"], 50)
	for i := range 50 {
		if err := s.Tables[0].Add(s.key(i), 1010); err != nil {
			t.Fatal(err)
		}
	}
	s.jiffies = 1010
	if err := s.Tables[1].Add(s.key(100), 0); err != nil || s.Len() != 1 {
		t.Errorf("%d entries, %v", s.Len(), err)
	}
}

// Who floods a large full set with additions makes it search for ended leases now and then only.
func TestALargeSetIsNotSearchedForEachAddition(t *testing.T) {
	s := newSet(t, layouts["wide"], 60_000)
	for i := range uint64(3) {
		if err := s.Tables[0].Add(s.key(int(i)), 1010+i); err != nil {
			t.Fatal(err)
		}
	}
	wait := uint64(s.Tables[0].Buckets >> 12)
	if wait < 2 {
		t.Fatal("the set is too small to show it")
	}
	for _, c := range []struct {
		jiffies uint64
		want    bool
	}{{1010, true}, {1011, false}, {1010 + wait, true}, {1010 + wait, false}} {
		s.jiffies = c.jiffies
		s.Change(func(now uint64) {
			if got := s.Reclaim(now); got != c.want {
				t.Errorf("at %d: %v, want %v", c.jiffies, got, c.want)
			}
		})
	}
}

func TestAKindMayRefuseWhatIsNotThere(t *testing.T) {
	s := newSet(t, layouts["wide"], 5)
	tab := &s.Tables[0]
	if err := tab.Add(s.key(1), 2000); err != nil {
		t.Fatal(err)
	}
	s.refuse = errors.New("not this one")
	if err := tab.Add(s.key(2), 0); !errors.Is(err, s.refuse) || s.Len() != 1 {
		t.Errorf("%v, %d entries", err, s.Len())
	}
	if err := tab.Add(s.key(1), 3000); err != nil {
		t.Errorf("a new lease: %v", err)
	}
	if err := tab.Add(s.key(2), 999); err != nil {
		t.Errorf("a lease that has ended: %v", err)
	}
}

func TestMaxAndRoomAreBounded(t *testing.T) {
	k := kindOf(layouts["wide"])
	_, size := k.Layout(10)
	for _, c := range []struct{ max, room, size int }{{0, 10, size}, {11, 10, size},
		{10, 1<<20 + 1, size}, {10, 10, size - 4096}} {
		if err := k.Format(memory(c.size), c.max, c.room); err == nil {
			t.Errorf("%+v is formatted", c)
		}
	}
	for _, room := range []int{0, -1, 1<<20 + 1} {
		if _, err := k.Spec("x", room); err == nil {
			t.Errorf("a map for %d entries", room)
		}
	}
	if spec, err := k.Spec("x", 10); err != nil || int(spec.InnerMap.ValueSize) != size {
		t.Errorf("%v, %v", spec, err)
	}
}

// An entry moves to its second bucket by three stores: it is counted as spilled, written there, and
// leaves its slot. Whoever reads the count first and the slot last finds neither.
func TestSlotsAreReadBeforeWhatHasSpilled(t *testing.T) {
	for name, l := range layouts {
		l.At, l.Buckets = AtRest, 100
		c := &Code{Builder: assembler.New(), Layout: l}
		c.Search("no")
		slotsRead, bucket := 0, false
		for _, in := range c.MustFinish() {
			switch {
			case in.OpCode.Class() == asm.ALU64Class && in.OpCode.ALUOp() == asm.Add &&
				in.Dst == asm.R5 && in.Src == asm.R3:
				slotsRead, bucket = 0, true
			case !bucket || in.OpCode.Class() != asm.LdXClass || in.Src != asm.R5:
			case in.Offset != int16(l.Spilled):
				slotsRead++
			case slotsRead < l.Slots:
				t.Fatalf("%s: spilled is read after %d of %d slots", name, slotsRead, l.Slots)
			}
		}
		if !bucket {
			t.Fatalf("%s: no bucket is read: the test shows nothing", name)
		}
	}
}

func ExampleKind_Spec() {
	_, err := (&Kind{Of: "of a set of services", MaxEntries: 10}).Spec("dns", 11)
	fmt.Println(err)
	// Output: dynamic set "dns": max of a set of services is 1 to 10 entries, not 11
}
