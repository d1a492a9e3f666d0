package endpoint

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
	"levee/internal/kernel"
)

// program is an XDP program around the look-ups of both families: it takes address and service from
// the frame and returns the answer.
type program struct {
	*ebpf.Program
	outer *ebpf.Map
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
		asm.Add.Imm(asm.R0, 32),
		asm.JGT.Reg(asm.R0, asm.R7, "short"),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, 8, asm.DWord),
		asm.LoadMem(asm.R3, asm.R6, 16, asm.DWord),
		asm.LoadMem(asm.R4, asm.R6, 24, asm.DWord),
		asm.JEq.Imm(asm.R4, 4, "four"),
		asm.Call.Label("six"),
		asm.Return(),
	)
	code.Label("four")
	code.Emit(asm.Call.Label("four_is"), asm.Return())
	code.Label("short")
	code.Emit(asm.Mov.Imm(asm.R0, 9), asm.Return())
	Function(code, "set", "six", max, false)
	Function(code, "set", "four_is", max, true)
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"set": spec},
		Programs: map[string]*ebpf.ProgramSpec{"entry": {Name: "entry", Type: ebpf.XDP,
			Instructions: code.MustFinish(), License: "Dual BSD/GPL"}},
	})
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	return &program{coll.Programs["entry"], coll.Maps["set"]}
}

func (p *program) ask(t testing.TB) asker {
	frame := make([]byte, 64)
	return func(a netip.Addr, proto uint8, port uint16) bool {
		t.Helper()
		hi, lo, _ := split(a)
		binary.NativeEndian.PutUint64(frame, hi)
		binary.NativeEndian.PutUint64(frame[8:], lo)
		binary.NativeEndian.PutUint64(frame[16:], uint64(proto)<<16|uint64(port))
		binary.NativeEndian.PutUint64(frame[24:], map[bool]uint64{true: 4, false: 6}[a.Is4()])
		ret, err := p.Run(&ebpf.RunOptions{Data: frame})
		if err != nil || ret > 1 {
			t.Fatalf("run: %d, %v", ret, err)
		}
		return ret == 1
	}
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
	if err := FormatRoom(mem, max, max); err != nil {
		t.Fatal(err)
	}
	if err := p.outer.Put(uint32(0), m); err != nil {
		t.Fatal(err)
	}
	return mem
}

// The program answers as the model after each step of a random sequence, and over a replace of the
// whole contents.
func TestProgramAgreesWithTheModel(t *testing.T) {
	const max = 80
	p := loadProgram(t, max)
	if p.ask(t)(netip.MustParseAddr("192.0.2.1"), 6, 80) {
		t.Fatal("a set without memory has entries")
	}
	jiffies, err := kernel.JiffiesClock()
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3) {
		c := &clock{jiffies.Now() + 1_000_000}
		table, err := Open(p.fresh(t, max), c.now)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel's clock is far behind the test's: it knows no ended lease that Expire has not
		// removed.
		replace := func() *Table {
			fresh, err := Open(p.fresh(t, max), c.now)
			if err != nil {
				t.Fatal(err)
			}
			return fresh
		}
		sequence(t, 100+seed, 1500, max, table, c, replace, jiffiesLater(p.ask(t), table, c))
	}
}

// jiffiesLater leaves the entries out whose lease has ended by the test's clock, before it asks.
func jiffiesLater(ask asker, table *Table, c *clock) asker {
	return func(a netip.Addr, proto uint8, port uint16) bool {
		table.Expire(c.now())
		return ask(a, proto, port)
	}
}

func TestProgramHonoursLeases(t *testing.T) {
	p := loadProgram(t, 10)
	jiffies, err := kernel.JiffiesClock()
	if err != nil {
		t.Fatal(err)
	}
	table, err := Open(p.fresh(t, 10), func() uint64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		expires uint64
		want    bool
	}{{jiffies.Now() + 1_000_000, true}, {jiffies.Now() - 1, false}, {1, false}, {0, true}} {
		e := entry("192.0.2.1/32", 6, 80, 16)
		e.Expires = tt.expires
		if err := table.Add(e); err != nil {
			t.Fatal(err)
		}
		if got := p.ask(t)(e.Prefix.Addr(), 6, 80); got != tt.want {
			t.Errorf("a lease until %d: %v", tt.expires, got)
		}
	}
}
