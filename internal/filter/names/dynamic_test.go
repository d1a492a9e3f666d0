package names

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/filter/hashtable"
	"levee/internal/kernel"
	"levee/internal/lang/dnsname"
)

// clock is one that tests turn.
type clock struct{ jiffies uint64 }

func (c *clock) now() uint64 { return c.jiffies }

func newDynamic(t testing.TB, max int, c *clock) *Dynamic {
	t.Helper()
	words := make([]uint64, sizeFor(max)/8) // aligned
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), sizeFor(max))
	return format(t, mem, max, c)
}

func format(t testing.TB, mem []byte, max int, c *clock) *Dynamic {
	t.Helper()
	if err := FormatRoom(mem, max, max, Secret{7, 8}); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDynamic(mem, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pattern(t testing.TB, text string) dnsname.Pattern {
	t.Helper()
	p, err := dnsname.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// asker says whether a set has a name.
type asker func(n dnsname.Name) bool

// model is the plainest form of a set: its names as strings, and their ends.
type model map[dnsname.Pattern]uint64

func (m model) alive(p dnsname.Pattern, now uint64) bool {
	until, there := m[p]
	return there && (until == 0 || now < until)
}

func (m model) lookup(n dnsname.Name, now uint64) bool {
	if m.alive(dnsname.Pattern{Name: n}, now) {
		return true
	}
	for n != "" {
		n = n.Parent()
		if m.alive(dnsname.Pattern{Name: n}, now) ||
			m.alive(dnsname.Pattern{Name: n, Below: true}, now) {
			return true
		}
	}
	return false
}

// draw is a name of a small tree, with labels of all lengths, so that names meet.
func draw(r *rand.Rand) dnsname.Name {
	var n dnsname.Name
	for range r.IntN(5) {
		label := []string{"\x01a", "\x01b", "\x07example", "\x08examples", "\x03\x00\x01\xff",
			"\x10aaaaaaaaaaaaaaaa", "\x3f" + string(bytes.Repeat([]byte{'x'}, 63))}[r.IntN(7)]
		if len(label)+len(n) < dnsname.MaxName {
			n = dnsname.Name(label) + n
		}
	}
	return n
}

// sequence changes a set and its model at random, and compares them.
func sequence(t *testing.T, seed uint64, steps int, d *Dynamic, c *clock, ask asker) {
	t.Helper()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	m := model{}
	for step := range steps {
		p := dnsname.Pattern{Name: draw(r), Below: r.IntN(3) == 0}
		now := c.jiffies
		switch k := r.IntN(10); {
		case k < 5:
			until := uint64(0)
			if r.IntN(2) == 0 {
				until = now + uint64(r.IntN(20))
			}
			err := d.Add(p, until)
			switch {
			case errors.Is(err, ErrFull):
			case err != nil:
				t.Fatal(err)
			case until != 0 && until <= now:
				delete(m, p)
			default:
				m[p] = until
			}
		case k < 7:
			if d.Delete(p) != m.alive(p, now) {
				t.Fatalf("step %d: delete of %v", step, p)
			}
			delete(m, p)
		case k < 8:
			c.jiffies += uint64(r.IntN(8))
		default:
			until, ok := d.Get(p)
			if ok != m.alive(p, now) || ok && until != m[p] {
				t.Fatalf("step %d: get of %v: %d, %v", step, p, until, ok)
			}
		}
		n := draw(r)
		if got, want := ask(n), m.lookup(n, c.jiffies); got != want {
			t.Fatalf("step %d: %v: %v, want %v", step, n, got, want)
		}
		if step%100 == 0 {
			compareAll(t, d, m, c.jiffies)
		}
	}
}

func compareAll(t *testing.T, d *Dynamic, m model, now uint64) {
	t.Helper()
	there := 0
	for e := range d.All() {
		if !m.alive(e.Pattern, now) || m[e.Pattern] != e.Expires {
			t.Fatalf("%v until %d is listed, want %d", e.Pattern, e.Expires, m[e.Pattern])
		}
		there++
	}
	for p := range m {
		if m.alive(p, now) {
			there--
		}
	}
	if there != 0 {
		t.Fatalf("%d entries are listed too many", there)
	}
	if taken := d.most - d.left(); d.Len() == 0 && taken != 0 {
		t.Fatalf("%d pieces are taken by no entry", taken)
	}
}

func TestASetAgreesWithItsModel(t *testing.T) {
	for seed := range uint64(4) {
		c := &clock{100}
		d := newDynamic(t, 100+int(seed)*200, c)
		sequence(t, seed, 5000, d, c, d.Lookup)
	}
}

// All entries leave, and what they took is there again for others.
func TestASetIsFilledToItsMaxAgainAndAgain(t *testing.T) {
	for _, max := range []int{1, 10, 1000, 50_000} {
		c := &clock{1}
		d := newDynamic(t, max, c)
		for round := range 3 {
			for i := range max {
				p := pattern(t, fmt.Sprintf("h%d-%d.of-some-length.example", i, round))
				if err := d.Add(p, c.jiffies+10); err != nil {
					t.Fatalf("max %d, round %d, entry %d: %v", max, round, i, err)
				}
			}
			if err := d.Add(pattern(t, "one.more"), 0); !errors.Is(err, ErrFull) {
				t.Fatalf("max %d: one more: %v", max, err)
			}
			if d.Len() != max {
				t.Fatalf("%d entries, want %d", d.Len(), max)
			}
			c.jiffies += 20
		}
		d.Expire(c.jiffies)
		if d.Len() != 0 || d.left() != d.most {
			t.Errorf("max %d: %d entries and %d pieces are left", max, d.Len(), d.most-d.left())
		}
	}
}

// Long names share the room for letters: the set is full when that is.
func TestLettersAreBounded(t *testing.T) {
	c := &clock{1}
	d := newDynamic(t, 100, c)
	long := string(bytes.Repeat([]byte{'x'}, 60))
	for i := 0; ; i++ {
		err := d.Add(pattern(t, fmt.Sprintf("%d.%s.%[2]s.%[2]s", i, long)), 5)
		if err == nil && i < 100 {
			continue
		}
		if !errors.Is(err, ErrFull) || i < 20 {
			t.Fatalf("entry %d: %v", i, err)
		}
		break
	}
	c.jiffies = 10
	if err := d.Add(pattern(t, long+"."+long), 0); err != nil {
		t.Errorf("ended entries still have their letters: %v", err)
	}
	// Nothing was written for what was refused.
	d.Delete(pattern(t, long+"."+long))
	d.Expire(c.jiffies)
	if d.left() != d.most {
		t.Errorf("%d pieces are lost", d.most-d.left())
	}
}

func TestNumbersOfLabelsAreBounded(t *testing.T) {
	c := &clock{1}
	d := newDynamic(t, 1000, c)
	n := dnsname.Name("")
	for i := range MaxCodes + 1 {
		err := d.Add(dnsname.Pattern{Name: n}, 5)
		if refused := errors.Is(err, ErrLabels); refused != (i == MaxCodes) {
			t.Fatalf("%d labels: %v", i, err)
		}
		n = "\x01a" + n
	}
	c.jiffies = 10
	if err := d.Add(dnsname.Pattern{Name: n}, 0); err != nil {
		t.Errorf("ended entries still have their number of labels: %v", err)
	}
	deep := n
	for deep.Labels() < dnsname.MaxLabels {
		deep = "\x01a" + deep
	}
	if err := d.Add(dnsname.Pattern{Name: deep, Below: true}, 0); err == nil {
		t.Error("a wildcard below which there can be no name was taken")
	}
	if err := d.Add(dnsname.Pattern{Name: deep}, 0); err != nil || !d.Lookup(deep) {
		t.Errorf("127 labels: %v", err)
	}
}

// A writer is killed at any of its stores: the next one finds all that was there before, and
// nothing is lost for ever.
func TestAKilledWriterLosesNothing(t *testing.T) {
	c := &clock{1}
	d := newDynamic(t, 20, c)
	var all []dnsname.Pattern
	for i := range 10 {
		p := pattern(t, fmt.Sprintf("host-%d.with-a-name-of-three-pieces.example", i))
		all = append(all, p)
		if err := d.Add(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	broken := slices.Clone(d.mem)
	// It had taken pieces, counted, and written no entry.
	words := make([]uint64, len(broken)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(broken))
	copy(mem, broken)
	half := hashtable.Memory(mem)
	*half.U32(hashtable.AtDirty) = 1
	*half.U32(offUsed) += 5
	*half.U32(offCounts + 4*7)++
	again, err := OpenDynamic(mem, c.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if _, ok := again.Get(p); !ok {
			t.Errorf("%v is lost", p)
		}
	}
	if again.Len() != len(all) || again.left() != d.left() {
		t.Errorf("%d entries, %d pieces free, want %d", again.Len(), again.left(), d.left())
	}
}

// FuzzOpenDynamic changes bytes of a set's memory, as a hostile or broken writer might, and uses
// what opens: it may give wrong answers, but must neither panic nor loop.
func FuzzOpenDynamic(f *testing.F) {
	f.Add(uint32(hashtable.AtTotal), []byte{9}, uint8(1))
	f.Add(uint32(offNumber), []byte{200, 0, 0, 0, 200}, uint8(0))
	f.Add(uint32(offUsed), []byte{255, 255, 255, 255, 1, 17}, uint8(1))
	f.Add(uint32(offFree), []byte{1, 0, 0, 0, 1}, uint8(0))
	f.Add(uint32(offTable+48), []byte{255, 1, 2, 0}, uint8(1))
	f.Add(uint32(tableEnd(20)), []byte{1, 0, 0, 0, 255}, uint8(0))
	f.Fuzz(func(t *testing.T, at uint32, change []byte, dirty uint8) {
		c := &clock{10}
		d := newDynamic(t, 20, c)
		var all []dnsname.Pattern
		for _, text := range []string{".", "*.", "example", "*.example",
			"a-long-name-of-more-than-one-piece.example"} {
			all = append(all, pattern(t, text))
			if err := d.Add(all[len(all)-1], 20); err != nil {
				t.Fatal(err)
			}
		}
		copy(d.mem[int(at)%len(d.mem):], change)
		if dirty%2 == 1 {
			d.mem[hashtable.AtDirty] = 1
		}
		d, err := OpenDynamic(d.mem, c.now)
		if err != nil {
			return
		}
		for _, p := range all {
			d.Lookup(p.Name)
			d.Get(p)
			_ = d.Add(p, 0) // may be refused
			d.Delete(p)
		}
		for range d.All() {
		}
		c.jiffies = 1000
		d.Expire(c.jiffies)
		if _, err := OpenDynamic(d.mem, c.now); err != nil {
			t.Errorf("what was opened does not open again: %v", err)
		}
	})
}

// program is an XDP program around the look-up: it takes the number of labels from the frame.
type program struct {
	*ebpf.Program
	outer, work *ebpf.Map
}

func loadProgram(t testing.TB, max int) *program {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs the emitted code in the kernel")
	}
	spec, err := Spec("set", max)
	if err != nil {
		t.Fatal(err)
	}
	code := assembler.New()
	code.Global("entry", assembler.Pointer("ctx"))
	code.Emit(
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R0, asm.R6),
		asm.Add.Imm(asm.R0, 8),
		asm.JGT.Reg(asm.R0, asm.R7, "short"),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.Call.Label("has"),
		asm.Return(),
	)
	code.Label("short")
	code.Emit(asm.Mov.Imm(asm.R0, 9), asm.Return())
	DynamicFunction(code, "set", "has", max)
	insns := code.MustFinish()
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"set": spec, WorkMap: WorkSpec()},
		Programs: map[string]*ebpf.ProgramSpec{"entry": {Name: "entry", Type: ebpf.XDP,
			Instructions: insns, License: "Dual BSD/GPL"}},
	})
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	return &program{coll.Programs["entry"], coll.Maps["set"], coll.Maps[WorkMap]}
}

// fresh makes empty memory and puts it into the map.
func (p *program) fresh(t testing.TB, max int) []byte {
	t.Helper()
	spec, err := Spec("set", max)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.InnerMap)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mem, err := unix.Mmap(m.FD(), 0, sizeFor(max), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := p.outer.Put(uint32(0), m); err != nil {
		t.Fatal(err)
	}
	return mem
}

// ask has the program look a name up as if it had read it.
func (p *program) ask(t testing.TB, d *Dynamic) asker {
	cpus := ebpf.MustPossibleCPU()
	return func(n dnsname.Name) bool {
		t.Helper()
		var work readNameWork
		for i := range n.Labels() {
			s := d.keys.digest(n.Last(i + 1))
			work.Suffixes[i].A, work.Suffixes[i].B = s.a, s.b
		}
		all := make([]readNameWork, cpus)
		for i := range all {
			all[i] = work
		}
		if err := p.work.Put(uint32(0), all); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 64)
		frame[0] = byte(n.Labels())
		ret, err := p.Run(&ebpf.RunOptions{Data: frame})
		if err != nil || ret > 1 {
			t.Fatalf("run: %d, %v", ret, err)
		}
		return ret == 1
	}
}

// The program answers as the model after each step of a random sequence.
func TestAProgramAgreesWithTheModel(t *testing.T) {
	const max = 200
	p := loadProgram(t, max)
	jiffies, err := kernel.JiffiesClock()
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(2) {
		c := &clock{jiffies.Now() + 1_000_000}
		d := format(t, p.fresh(t, max), max, c)
		ask := p.ask(t, d)
		// The kernel's clock is far behind the test's: it knows no ended lease that Expire has not
		// removed.
		sequence(t, 100+seed, 1500, d, c, func(n dnsname.Name) bool {
			d.Expire(c.now())
			return ask(n)
		})
	}
}
