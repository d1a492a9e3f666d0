package dataplane

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/assembler"
)

// BenchmarkConnectionFloor measures the least that a look-up can cost above an empty program, ns a
// packet: it only reads a line of memory that the packet's source names. 100,000 sources have a
// line each, spread over the memory. In pieces the memory is many small maps, which the kernel
// takes from its direct map of large pages.
func BenchmarkConnectionFloor(b *testing.B) {
	needRoot(b)
	for _, mb := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d MB", mb), func(b *testing.B) {
			size := uint32(mb) << 20
			memory := newMap(b, &ebpf.MapSpec{Name: "lines", Type: ebpf.Array, KeySize: 4,
				ValueSize: size, MaxEntries: 1, Flags: 1 << 10}) // BPF_F_MMAPABLE
			benchLine(b,
				asm.RSh.Imm(asm.R2, 8),
				asm.And.Imm(asm.R2, int32(size/64-1)),
				asm.LSh.Imm(asm.R2, 6),
				asm.LoadMapValue(asm.R0, memory.FD(), 0),
				asm.Add.Reg(asm.R0, asm.R2),
			)
		})
	}
	b.Run("64 MB in pieces", func(b *testing.B) {
		const pieces, lines = 2048, 256 // of 480 lines; 32 KiB with what the kernel puts before it
		piece := &ebpf.MapSpec{Name: "piece", Type: ebpf.Array, KeySize: 4, ValueSize: 480 * 64,
			MaxEntries: 1}
		outer := newMap(b, &ebpf.MapSpec{Name: "pieces", Type: ebpf.ArrayOfMaps, KeySize: 4,
			ValueSize: 4, MaxEntries: pieces, InnerMap: piece})
		for i := range uint32(pieces) {
			m, err := ebpf.NewMap(piece)
			if err != nil {
				b.Fatal(err)
			}
			err = outer.Put(i, m)
			m.Close()
			if err != nil {
				b.Fatal(err)
			}
		}
		key := func(at int32) asm.Instructions {
			return asm.Instructions{asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, at),
				asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "drop")}
		}
		program := asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R2),
			asm.RSh.Imm(asm.R2, 8),
			asm.And.Imm(asm.R2, pieces-1),
			asm.StoreMem(asm.R10, -4, asm.R2, asm.Word),
			asm.StoreImm(asm.R10, -8, 0, asm.Word),
			asm.RSh.Imm(asm.R6, 19),
			asm.And.Imm(asm.R6, lines-1),
			asm.LSh.Imm(asm.R6, 6),
			asm.LoadMapPtr(asm.R1, outer.FD()),
		}
		program = append(append(program, key(-4)...), asm.Mov.Reg(asm.R1, asm.R0))
		benchLine(b, append(append(program, key(-8)...), asm.Add.Reg(asm.R0, asm.R6))...)
	})
}

func newMap(b *testing.B, spec *ebpf.MapSpec) *ebpf.Map {
	b.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}

// benchLine measures a program that reads the line to which these instructions leave a pointer in
// R0: of R2, the source times a factor that spreads neighbours. They go to "drop" in vain.
func benchLine(b *testing.B, line ...asm.Instruction) {
	const many = 100_000
	frames := make([][]byte, many)
	for i := range frames {
		frames[i] = make([]byte, 64)
		binary.BigEndian.PutUint32(frames[i][30:], uint32(uint64(i)*7919%many))
	}
	trace, err := loader.NewTrace(frames)
	if err != nil {
		b.Fatal(err)
	}
	defer trace.Close()
	a := assembler.New()
	a.Emit(
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 64),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
		asm.LoadMem(asm.R2, asm.R2, 30, asm.Word),
		asm.Mul.Imm(asm.R2, 0x2545f491),
	)
	a.Emit(line...)
	a.Emit(
		asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord),
		asm.JEq.Imm(asm.R0, 0, "drop"), // always, but only the line tells
		asm.Mov.Imm(asm.R0, 2),
		asm.Return(),
	)
	a.Label("drop")
	a.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "touch", Type: ebpf.XDP,
		Instructions: a.MustFinish(), License: "Dual BSD/GPL"})
	if err != nil {
		b.Fatal(err)
	}
	defer prog.Close()
	f, err := trace.Feed(prog, ebpf.AttachNone)
	if err != nil {
		b.Fatal(err)
	}
	reportRounds(b, &loader.TraceRun{Trace: trace, Feeder: f, Frame: make([]byte, trace.Stride)})
}
