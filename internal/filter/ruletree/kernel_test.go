package ruletree

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
)

// kernel is programs that look up the fields of their frame, in the order of the stack: one with
// walks in place, one without.
type kernel struct {
	width int
	progs [2]*ebpf.Program
}

func load(t testing.TB, table *Table) *kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load eBPF")
	}
	maps, memory := Maps{"trees", "ports"}, map[string]*ebpf.Map{}
	for name, value := range map[string][]byte{maps.Trees: memoryOf(table.pool),
		maps.Ports: portsOf(table.pool)} {
		if len(value) == 0 {
			continue
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{
			Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1,
			Flags:    unix.BPF_F_RDONLY_PROG,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		memory[name] = m
	}
	k := &kernel{width: table.pool.bits}
	for i, inPlace := range []bool{false, true} {
		b := assembler.New()
		b.Global("main", assembler.Pointer("ctx"))
		b.Emit(
			asm.LoadMem(asm.R7, asm.R1, 0, asm.Word),
			asm.LoadMem(asm.R8, asm.R1, 4, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R7),
			asm.Add.Imm(asm.R2, 16+PacketBytes),
			asm.JGT.Reg(asm.R2, asm.R8, "out"),
		)
		if table.pool.bits == 32 {
			b.Emit(
				asm.LoadMem(RegAddresses, asm.R7, 16, asm.DWord),
				asm.LoadMem(asm.R2, asm.R7, 24, asm.DWord),
				asm.Mov.Reg(RegPort0, asm.R2),
				asm.RSh.Imm(RegPort0, 16),
				asm.Mov.Reg(RegPort1, asm.R2),
				asm.And.Imm(RegPort1, 0xffff),
			)
		} else {
			for at := int16(0); at < PacketBytes; at += 8 {
				b.Emit(asm.LoadMem(asm.R2, asm.R7, 16+at, asm.DWord),
					asm.StoreMem(asm.R10, at-PacketBytes, asm.R2, asm.DWord))
			}
		}
		table.Emit(b, maps, "following", -PacketBytes, inPlace)
		b.Emit(asm.Return())
		b.Label("out")
		b.Emit(asm.Mov.Imm(asm.R0, -1), asm.Return())
		table.pool.Following(b, maps, "following")
		ins := b.MustFinish()
		for name, m := range memory {
			if err := ins.AssociateMap(name, m); err != nil &&
				!errors.Is(err, asm.ErrUnreferencedSymbol) {
				t.Fatal(err)
			}
		}
		p, err := ebpf.NewProgramWithOptions(
			&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: ins, License: "GPL"},
			ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats, LogSizeStart: 1 << 20},
		)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		t.Log(p.VerifierLog)
		t.Cleanup(func() { p.Close() })
		k.progs[i] = p
	}
	return k
}

func (k *kernel) lookup(t testing.TB, p *Packet) (answers [2]uint32) {
	t.Helper()
	frame := make([]byte, 16+PacketBytes)
	for i, v := range p.keys(k.width) {
		binary.LittleEndian.PutUint64(frame[16+8*i:], v)
	}
	for i, prog := range k.progs {
		var err error
		if answers[i], _, err = prog.Test(frame); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}
