package codegen_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/lang/pattern"
)

// pairsOf makes a table of an automaton that steps over two bytes at once: the classes of first
// bytes and of second ones, each times the bytes of an entry, then a row for each state. It is nil
// where that is more than a program can address.
func pairsOf(m *pattern.Machine) (table []byte, start uint32) {
	classes := 0
	for c := range 256 {
		classes = max(classes, int(m.Table[c])+1)
	}
	const head, entry = 4096, 4
	stride := entry * classes * classes
	if m.States*stride > 1<<28 {
		return nil, 0
	}
	row := func(state uint32) uint32 {
		return uint32(head + int((state-m.Accept)/m.Stride())*stride)
	}
	table = make([]byte, head+m.States*stride)
	bytes := make([]byte, classes) // one of each class
	for c := range 256 {
		k := int(m.Table[c])
		bytes[k] = byte(c)
		binary.LittleEndian.PutUint32(table[4*c:], uint32(entry*classes*k))
		binary.LittleEndian.PutUint32(table[1024+4*c:], uint32(entry*k))
	}
	for i := range m.States {
		state := m.Accept + uint32(i)*m.Stride()
		for a := range classes {
			for b := range classes {
				next := m.Run(state, []byte{bytes[a], bytes[b]})
				at := head + i*stride + entry*(a*classes+b)
				binary.LittleEndian.PutUint32(table[at:], row(next))
			}
		}
	}
	return table, row(m.Start)
}

// searches is a program that steps over a text by a table, by one byte or two, and returns its last
// state below 2^32.
func searches(b *testing.B, table, text []byte, start uint32, pairs bool) *ebpf.Program {
	b.Helper()
	array := func(contents []byte) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, MaxEntries: 1,
			ValueSize: uint32(len(contents)+7) &^ 7, Contents: []ebpf.MapKV{{Key: uint32(0),
				Value: slices.Concat(contents, make([]byte, (8-len(contents)%8)%8))}}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { m.Close() })
		return m
	}
	tab, in := array(table), array(text)
	step := int32(1)
	if pairs {
		step = 2
	}
	class := func(to asm.Register, behind int16, at int32) asm.Instructions {
		out := asm.Instructions{asm.LoadMem(to, asm.R1, behind, asm.Byte)}
		size := asm.Byte
		if pairs {
			out, size = append(out, asm.LSh.Imm(to, 2)), asm.Word
		}
		return append(out, asm.Add.Reg(to, asm.R9), asm.LoadMem(to, to, int16(at), size))
	}
	code := assembler.New()
	code.Emit(
		asm.LoadMapValue(asm.R9, tab.FD(), 0),
		asm.LoadMapValue(asm.R6, in.FD(), 0),
		asm.Mov.Imm(asm.R7, int32(start)),
		asm.Mov.Imm(asm.R8, 0),
	)
	code.Label("loop")
	code.Emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Reg(asm.R1, asm.R8))
	code.Emit(class(asm.R2, 0, 0)...)
	if pairs {
		code.Emit(class(asm.R3, 1, 1024)...)
		code.Emit(
			asm.Add.Reg(asm.R2, asm.R3),
			asm.Add.Reg(asm.R7, asm.R2),
			asm.JGT.Imm(asm.R7, int32(len(table)-4), "out"), // for the verifier
			asm.Add.Reg(asm.R7, asm.R9),
			asm.LoadMem(asm.R7, asm.R7, 0, asm.Word),
		)
	} else { // as the program of a policy has it: one addition between two loads
		code.Emit(
			asm.LSh.Imm(asm.R2, 2),
			asm.JGT.Imm(asm.R7, int32(len(table)-pattern.Slack), "out"),
			asm.Add.Reg(asm.R2, asm.R9),
			asm.Add.Reg(asm.R2, asm.R7),
			asm.LoadMem(asm.R7, asm.R2, 0, asm.Word),
		)
	}
	code.Emit(
		asm.Add.Imm(asm.R8, step),
		asm.JLT.Imm(asm.R8, int32(len(text)), "loop"),
	)
	code.Label("out")
	code.Emit(asm.Mov.Reg(asm.R0, asm.R7), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: code.MustFinish(),
		License: "Dual BSD/GPL"})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// BenchmarkBytesInPairs measures what a byte costs in a search of 1,472 bytes by the table of
// `payload contains`, and by one with a column for each pair of classes, which has half as many
// loads that wait for each other: decision 0138. Texts are of small letters, and so is the payload.
func BenchmarkBytesInPairs(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) []byte {
		w := make([]byte, n)
		for i := range w {
			w[i] = "etaoinshrdlucmfwypvbgkjqxz"[min(r.IntN(26), r.IntN(26))]
		}
		return w
	}
	text := word(1472)
	for _, texts := range []int{1, 10, 100, 1000} {
		var items []pattern.Item
		for range texts {
			items = append(items, pattern.Item{Text: word(8 + r.IntN(8))})
		}
		m, err := pattern.Compile(items, false)
		if err != nil {
			b.Fatal(err)
		}
		pairs, start := pairsOf(m)
		for _, c := range []struct {
			name  string
			table []byte
			start uint32
			pairs bool
		}{{"bytes", m.Table, m.Start, false}, {"pairs", pairs, start, true}} {
			b.Run(fmt.Sprintf("texts=%d/%s", texts, c.name), func(b *testing.B) {
				if c.table == nil {
					b.Skip("the table would have more than 256 MB")
				}
				p := searches(b, c.table, text, c.start, c.pairs)
				var ns []float64
				for b.Loop() {
					_, d, err := p.Benchmark(make([]byte, 64), 2000, nil)
					if err != nil {
						b.Fatal(err)
					}
					ns = append(ns, float64(d.Nanoseconds())/float64(len(text)))
				}
				slices.Sort(ns)
				b.ReportMetric(ns[0], "ns/byte")
				b.ReportMetric(float64(len(c.table))/1024, "KB")
				b.ReportMetric(float64(m.States), "states")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
