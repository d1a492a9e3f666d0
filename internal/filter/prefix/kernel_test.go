package prefix

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// runner is an XDP program around one look-up: it takes addresses from one map and writes the answers to
// another, by bpf_loop, so that thousands of addresses are judged in one run.
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
	return &ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1}
}

// newRunner loads code, which reads sets and calls functions, into a program that answers for size addresses a run.
// A set given as *ebpf.Map is used as it is.
func newRunner(t testing.TB, code asm.Instructions, sets map[string]any, size int, functions ...asm.Instruction) *runner {
	t.Helper()
	each := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.And.Imm(asm.R6, int32(size-1)),
		asm.Mov.Reg(asm.R1, asm.R6),
	}
	each = append(each, loadAddress()...)
	each = append(each, code...)
	each = append(each,
		asm.LoadMapValue(asm.R3, 0, 0).WithReference("result"),
		asm.Add.Reg(asm.R3, asm.R6),
		asm.StoreMem(asm.R3, 0, asm.R0, asm.Byte),
	)
	return loadRunner(t, each, sets, size, size, functions...)
}

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

// loadRunner loads a program that runs the body a number of times, with the index in R1, and contains
// the functions that it calls.
func loadRunner(t testing.TB, body asm.Instructions, sets map[string]any, size, times int, functions ...asm.Instruction) *runner {
	t.Helper()
	needRoot(t)
	num := &btf.Int{Name: "u64", Size: 8}
	proto := func(params ...btf.FuncParam) *btf.FuncProto {
		return &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: params}
	}
	entry := &btf.Func{Name: "entry", Type: proto(btf.FuncParam{Name: "ctx", Type: &btf.Pointer{Target: num}}), Linkage: btf.GlobalFunc}
	each := &btf.Func{Name: "each", Type: proto(btf.FuncParam{Name: "i", Type: num}, btf.FuncParam{Name: "ctx", Type: &btf.Pointer{Target: num}}), Linkage: btf.StaticFunc}

	fn := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}
	prog := asm.Instructions{
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R1, int32(times)).WithSymbol("entry"), entry),
		fn.WithReference("each"),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call(),
		asm.Mov.Imm(asm.R0, 2),
		asm.Return(),
	}
	body[0] = btf.WithFuncMetadata(body[0].WithSymbol("each"), each)
	prog = append(prog, body...)
	prog = append(prog, asm.Mov.Imm(asm.R0, 0), asm.Return())
	prog = append(prog, functions...)
	spec := &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"addrs": array("addrs", 16*size), "result": array("result", size)},
		Programs: map[string]*ebpf.ProgramSpec{
			"entry": {Name: "entry", Type: ebpf.XDP, Instructions: prog, License: "Dual BSD/GPL"},
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
			spec.Maps[name] = &ebpf.MapSpec{Name: name, Type: info.Type, KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries, Flags: info.Flags}
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
	return &runner{prog: coll.Programs["entry"], addrs: coll.Maps["addrs"], result: coll.Maps["result"], size: size, sets: coll.Maps}
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
