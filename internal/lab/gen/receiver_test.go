package gen

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/await"
	"levee/internal/filter/assembler"
	"levee/internal/lab"
)

// aRing is a number of frames for which the ring of a veth device (256) has room: none of them is
// refused, however long the thread that empties the ring waits for its core.
const aRing = 200

// receiver is an XDP program on a device that counts packets of one protocol, notes 4 bytes of
// each of the first ones, and drops them.
type receiver struct {
	count, notes *ebpf.Map
	link         link.Link
}

// detach makes room for another one.
func (r *receiver) detach() { r.link.Close() }

// receive attaches a receiver to the server's device, natively. Frames count whose byte at offset
// at is proto; the 4 bytes at offset note are kept of the first room frames.
func receive(t testing.TB, l *lab.Lab, at int16, proto int32, note int16, room uint32) *receiver {
	t.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { count.Close() })
	notes, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4,
		MaxEntries: max(room, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notes.Close() })
	b := assembler.New()
	b.Emit(
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Add.Imm(asm.R1, 40),
		asm.JGT.Reg(asm.R1, asm.R2, "pass"),
		asm.LoadMem(asm.R1, asm.R6, at, asm.Byte),
		asm.JNE.Imm(asm.R1, proto, "pass"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord), // one NAPI thread: nobody else writes
		asm.StoreMem(asm.RFP, -4, asm.R7, asm.Word),
		asm.LoadMapPtr(asm.R1, notes.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R6, note, asm.Word),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
	)
	b.Label("drop")
	b.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
	b.Label("pass")
	b.Emit(asm.Mov.Imm(asm.R0, 2), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "MIT",
		Instructions: b.MustFinish()})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { prog.Close() })
	server := l.Host(lab.Server)
	var lk link.Link
	err = server.Do(func() (err error) {
		lk, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: server.Devices[0].Index,
			Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { lk.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &receiver{count, notes, lk}
}

// received waits for want packets, and returns how many came.
func (r *receiver) received(t testing.TB, want uint64) uint64 {
	t.Helper()
	var n uint64
	await.OK(t, func() error {
		err := r.count.Lookup(uint32(0), &n)
		if err == nil && n < want {
			err = fmt.Errorf("%d of %d packets came", n, want)
		}
		return err
	})
	return n
}

// noted returns the 4 bytes of the first n packets, as big-endian numbers.
func (r *receiver) noted(t testing.TB, n int) []uint32 {
	t.Helper()
	keys, values := make([]uint32, n), make([]uint32, n)
	var cursor ebpf.MapBatchCursor
	got, err := r.notes.BatchLookup(&cursor, keys, values, nil)
	if got != n {
		t.Fatalf("%d of %d notes: %v", got, n, err)
	}
	for i, v := range values {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], v)
		values[i] = binary.BigEndian.Uint32(b[:])
	}
	return values
}
