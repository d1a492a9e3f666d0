package endpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// questions is the number of look-ups that one run of the benchmark's program makes, a power of
// two.
const questions = 1 << 14

// loop is a program that asks the questions in map "ask" in a loop, or, without a set, only reads
// them.
func loop(b *testing.B, max int, ip4, empty bool) *ebpf.Collection {
	b.Helper()
	spec, err := Spec("set", max)
	if err != nil {
		b.Fatal(err)
	}
	code := assembler.New()
	code.Global("entry", assembler.Pointer("ctx"))
	code.Loop(questions, "each", 0)
	code.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return())
	code.Static("each", assembler.Number("i"), assembler.Pointer("ctx"))
	code.Emit(
		asm.And.Imm(asm.R1, questions-1),
		asm.Mul.Imm(asm.R1, 24),
		asm.LoadMapValue(asm.R4, 0, 0).WithReference("ask"),
		asm.Add.Reg(asm.R4, asm.R1),
		asm.LoadMem(asm.R1, asm.R4, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R4, 8, asm.DWord),
		asm.LoadMem(asm.R3, asm.R4, 16, asm.DWord),
	)
	maps := map[string]*ebpf.MapSpec{"ask": {Name: "ask", Type: ebpf.Array, KeySize: 4,
		ValueSize: 24 * questions, MaxEntries: 1}}
	if !empty {
		maps["set"] = spec
		code.Emit(asm.Call.Label("ask_set"))
	}
	code.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	if !empty {
		Function(code, "set", "ask_set", max, ip4)
	}
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: maps,
		Programs: map[string]*ebpf.ProgramSpec{
			"entry": {Name: "entry", Type: ebpf.XDP, Instructions: code.MustFinish(),
				License: "Dual BSD/GPL"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(coll.Close)
	return coll
}

// ns of a question in the loop.
func ns(b *testing.B, coll *ebpf.Collection) float64 {
	b.Helper()
	best := 0.0
	for i := range 30 {
		_, d, err := coll.Programs["entry"].Benchmark(make([]byte, 64), 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		if v := float64(d.Nanoseconds()) / questions; i == 0 || v < best {
			best = v
		}
	}
	return best
}

// BenchmarkProgram measures look-ups of random entries (hits) and of random endpoints beside them
// (misses), in ns above the loop. The entries are hosts and /24 (/64) with single ports, or any of
// eight shapes.
func BenchmarkProgram(b *testing.B) {
	for _, ip4 := range []bool{true, false} {
		for _, n := range []int{10, 1000, 100_000} {
			for _, shapes := range []int{1, 2, 8} {
				b.Run(fmt.Sprintf("ip4=%v/entries=%d/shapes=%d", ip4, n, shapes),
					func(b *testing.B) {
						p := &program{outer: nil}
						coll := loop(b, n, ip4, false)
						p.outer = coll.Maps["set"]
						table, err := Open(p.fresh(b, n), func() uint64 { return 0 })
						if err != nil {
							b.Fatal(err)
						}
						r := rand.New(rand.NewPCG(1, uint64(n)))
						var in []Entry
						for len(in) < n {
							e := benchEntry(r, ip4, shapes)
							if _, there := table.Get(e); there {
								continue
							}
							if err := table.Add(e); err != nil {
								b.Fatal(err)
							}
							in = append(in, e)
						}
						base := ns(b, loop(b, n, ip4, true))
						for _, kind := range []string{"hits", "misses"} {
							value := make([]byte, 24*questions)
							for i := range questions {
								e := in[r.IntN(n)]
								if kind == "misses" {
									e.Proto = 17
								}
								hi, lo, _ := split(e.Prefix.Addr())
								binary.NativeEndian.PutUint64(value[24*i:], hi)
								binary.NativeEndian.PutUint64(value[24*i+8:], lo)
								binary.NativeEndian.PutUint64(value[24*i+16:],
									uint64(e.Proto)<<16|uint64(e.Port))
							}
							if err := coll.Maps["ask"].Put(uint32(0), value); err != nil {
								b.Fatal(err)
							}
							b.ReportMetric(ns(b, coll)-base, "ns/"+kind)
						}
						b.ReportMetric(float64(sizeFor(n))/float64(n), "bytes/entry")
						b.ReportMetric(0, "ns/op")
					})
			}
		}
	}
}

func benchEntry(r *rand.Rand, ip4 bool, shapes int) Entry {
	var a [16]byte
	for i := range a {
		a[i] = byte(r.Uint32())
	}
	a[0] = 0x20
	addr, long, short := netip.AddrFrom16(a), 128, 64
	if ip4 {
		addr, long, short = netip.AddrFrom4([4]byte(a[1:5])), 32, 24
	}
	shape := r.IntN(shapes)
	length := []int{long, short, long, short, long - 4, short - 4, long - 8, short - 8}[shape]
	bits := []uint8{16, 16, 13, 13, 16, 16, 16, 16}[shape]
	return Entry{Prefix: netip.PrefixFrom(addr, length).Masked(), Proto: 6,
		Port: uint16(r.Uint32()) &^ (1<<(16-bits) - 1), Bits: bits}
}
