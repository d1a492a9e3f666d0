package dataplane

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// BenchmarkConnectionFloor is what a packet costs above an empty program where the program only
// reads a line of memory that the packet's source names: each of 100,000 sources another line,
// spread over so much memory. A look-up that reads one line of a table costs no less.
func BenchmarkConnectionFloor(b *testing.B) {
	needRoot(b)
	const many = 100_000
	frames := make([][]byte, many)
	for i := range frames {
		frames[i] = make([]byte, 64)
		binary.BigEndian.PutUint32(frames[i][30:], uint32(uint64(i)*7919%many))
	}
	for _, mb := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d MB", mb), func(b *testing.B) {
			trace, err := NewTrace(frames)
			if err != nil {
				b.Fatal(err)
			}
			defer trace.Close()
			size := uint32(mb) << 20
			memory, err := ebpf.NewMap(&ebpf.MapSpec{Name: "lines", Type: ebpf.Array, KeySize: 4,
				ValueSize: size, MaxEntries: 1, Flags: 1 << 10}) // BPF_F_MMAPABLE
			if err != nil {
				b.Fatal(err)
			}
			defer memory.Close()
			a := assembler.New()
			a.Emit(
				asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
				asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
				asm.Mov.Reg(asm.R4, asm.R2),
				asm.Add.Imm(asm.R4, 64),
				asm.JGT.Reg(asm.R4, asm.R3, "drop"),
				asm.LoadMem(asm.R2, asm.R2, 30, asm.Word),
				asm.Mul.Imm(asm.R2, 0x2545f491), // spreads neighbours
				asm.RSh.Imm(asm.R2, 8),
				asm.And.Imm(asm.R2, int32(size/64-1)),
				asm.LSh.Imm(asm.R2, 6),
				asm.LoadMapValue(asm.R1, memory.FD(), 0),
				asm.Add.Reg(asm.R1, asm.R2),
				asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord),
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
			f, err := trace.feed(prog, ebpf.AttachNone)
			if err != nil {
				b.Fatal(err)
			}
			reportRounds(b, &TraceRun{trace, f, make([]byte, trace.stride)})
		})
	}
}
