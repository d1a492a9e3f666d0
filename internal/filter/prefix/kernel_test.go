package prefix

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// runner is an XDP program around one look-up: it takes addresses from one map and writes the
// answers to another, by bpf_loop, so that thousands of addresses are judged in one run.
type runner struct {
	prog          *ebpf.Program
	addrs, result *ebpf.Map
	size          int // addresses in the maps, a power of two
	sets          map[string]*ebpf.Map
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs the emitted code in the kernel")
	}
}

// array is a map with one entry.
func array(name string, size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size),
		MaxEntries: 1}
}

// newRunner loads code, which reads sets and calls functions, into a program that answers for size
// addresses a run. A set given as *ebpf.Map is used as it is.
func newRunner(t testing.TB, code write, sets map[string]any, size int,
	functions ...write) *runner {
	t.Helper()
	each := func(b *assembler.Builder) {
		b.Emit(
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.And.Imm(asm.R6, int32(size-1)),
			asm.Mov.Reg(asm.R1, asm.R6),
		)
		b.Emit(loadAddress()...)
		code(b)
		b.Emit(
			asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
			asm.Add.Reg(asm.R3, asm.R6),
			asm.StoreMem(asm.R3, 0, asm.R0, asm.Byte),
		)
	}
	return loadRunner(t, each, sets, size, size, functions...)
}

// write writes a part of a program.
type write func(*assembler.Builder)

// loadAddress puts address number R1 into R1 and R2.
func loadAddress() asm.Instructions {
	return asm.Instructions{
		asm.LSh.Imm(asm.R1, 4),
		asm.LoadMapValue(asm.R3, 0, 0).WithReference("addrs"),
		asm.Add.Reg(asm.R3, asm.R1),
		asm.LoadMem(asm.R1, asm.R3, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R3, 8, asm.DWord),
	}
}

// loadRunner loads a program that runs the body a number of times, with the index in R1, and
// contains the functions that it calls.
func loadRunner(t testing.TB, body write, sets map[string]any, size, times int,
	functions ...write) *runner {
	t.Helper()
	needRoot(t)
	prog := assembler.New()
	prog.Global("entry", assembler.Pointer("ctx"))
	prog.Loop(int32(times), "each", 0)
	prog.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return())
	prog.Static("each", assembler.Number("i"), assembler.Pointer("ctx"))
	body(prog)
	prog.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	for _, function := range functions {
		function(prog)
	}
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"addrs": array("addrs", 16*size),
			"result": array("result", size)},
		Programs: map[string]*ebpf.ProgramSpec{
			"entry": {Name: "entry", Type: ebpf.XDP, Instructions: prog.MustFinish(),
				License: "Dual BSD/GPL"},
		},
	}
	opts := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for name, set := range sets {
		switch m := set.(type) {
		case *ebpf.MapSpec:
			if m != nil {
				spec.Maps[name] = m
			}
		case *ebpf.Map:
			info, err := m.Info()
			if err != nil {
				t.Fatal(err)
			}
			spec.Maps[name] = &ebpf.MapSpec{Name: name, Type: info.Type, KeySize: info.KeySize,
				ValueSize: info.ValueSize, MaxEntries: info.MaxEntries, Flags: info.Flags}
			if info.Type == ebpf.ArrayOfMaps {
				spec.Maps[name].InnerMap = array(name, 8) // not used: the map is replaced
			}
			opts.MapReplacements[name] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, opts)
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	return &runner{prog: coll.Programs["entry"], addrs: coll.Maps["addrs"],
		result: coll.Maps["result"], size: size, sets: coll.Maps}
}

// words are an address as the registers carry it.
func words(a netip.Addr) (r1, r2 uint64) {
	hi, lo := split(a)
	if a.Is4() {
		return hi>>32 | 0xdead<<32, 0 // the upper bits must not matter
	}
	return hi, lo
}

// fill puts the addresses into the map, repeating them to fill it.
func (r *runner) fill(t testing.TB, addrs []netip.Addr) {
	t.Helper()
	value := make([]byte, 16*r.size)
	for i := range r.size {
		r1, r2 := words(addrs[i%len(addrs)])
		binary.NativeEndian.PutUint64(value[16*i:], r1)
		binary.NativeEndian.PutUint64(value[16*i+8:], r2)
	}
	if err := r.addrs.Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
}

// run judges what fill put there.
func (r *runner) run(t testing.TB) []byte {
	t.Helper()
	if ret, err := r.prog.Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil || ret != 2 {
		t.Fatalf("test run: %d, %v", ret, err)
	}
	var out []byte
	if err := r.result.Lookup(uint32(0), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// judge answers for any number of addresses.
func (r *runner) judge(t testing.TB, addrs []netip.Addr) []bool {
	t.Helper()
	var out []bool
	for len(addrs) > 0 {
		n := min(len(addrs), r.size)
		r.fill(t, addrs[:n])
		for _, b := range r.run(t)[:n] {
			if b > 1 {
				t.Fatalf("R0 = %d", b)
			}
			out = append(out, b == 1)
		}
		addrs = addrs[n:]
	}
	return out
}
