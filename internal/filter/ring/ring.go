// Package ring hands packets to who reads a ring: the functions by which programs redirect packets
// to AF_XDP sockets, and the layout of the maps between them. It takes the names of rings; it
// returns instructions. It opens, pins and loads nothing.
//
// A ring has three maps. One is of sockets, by the receive queue that a packet came by: the kernel
// hands packets of a queue to a socket of that queue alone (Documentation/networking/af_xdp.rst).
// In one each CPU counts what it redirected and what it did not. In one readers count what they
// have got, so that what is lost between both is known also of a reader that was killed.
package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	reader "levee/ring"
)

// Queues is the largest number of receive queues from which a ring can be read. Packets of others
// have no reader.
const Queues = 1024

// SocketBytes is the length of an entry of the map of sockets.
const SocketBytes = 4

// SocketsMap returns the name of the map of a ring's sockets.
func SocketsMap(ring string) string { return "ring_" + ring }

// CountsMap returns the name of the map in which programs count.
func CountsMap(ring string) string { return "ringcounts_" + ring }

// ReadersMap returns the name of the map in which readers count.
func ReadersMap(ring string) string { return "ringreaders_" + ring }

// SocketsSpec describes the map of a ring's sockets.
func SocketsSpec(ring string) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: SocketsMap(ring), Type: ebpf.XSKMap, KeySize: 4,
		ValueSize: SocketBytes, MaxEntries: Queues}
}

// A CPU's row of counts: a cache line with packets that were redirected, and those that were not
// since nobody read their queue, u64 each in the order of the machine.
const (
	rowLog     = 6
	redirected = 0
	bypassed   = 8
)

// CountsBytes returns the size of the rows of so many CPUs, a power of two.
func CountsBytes(cpus int) int { return cpus << rowLog }

// ReadersBytes is the size of what readers count, a reader.Tally.
const ReadersBytes = reader.TallyBytes

// MaxInstructions limits the instructions of the function of a ring.
const MaxInstructions = 40

// Label returns the function of the ring of an index. It is given the context, an xdp_md. It
// returns Redirected, or 0 where nobody reads the queue: the packet is where it was then.
func Label(i int) string { return fmt.Sprintf("ring_%d", i) }

// Redirected is the function's return value for a packet of which the program has to return this
// code: XDP_REDIRECT of include/uapi/linux/bpf.h.
const Redirected = 4

// rxQueue is the offset of rx_queue_index in struct xdp_md.
const rxQueue = 16

// Emit emits the functions of rings, on a machine of so many CPUs, a power of two.
func Emit(b *assembler.Builder, context assembler.Param, cpus int, rings []string) {
	for i, ring := range rings {
		if !b.Referenced(Label(i)) {
			continue // no packet comes to a rule of it
		}
		emit(b, context, cpus, i, ring)
	}
}

func emit(b *assembler.Builder, context assembler.Param, cpus, i int, ring string) {
	nobody := b.Fresh("nobody_reads")
	count := func(at int16) {
		b.Emit(
			asm.LoadMem(asm.R1, asm.R7, at, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R7, at, asm.R1, asm.DWord),
		)
	}
	b.Global(Label(i), context)
	b.Emit(
		asm.LoadMem(asm.R2, asm.R1, rxQueue, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(SocketsMap(ring)),
		asm.Mov.Imm(asm.R3, 0), // what it returns if there is no socket
		asm.FnRedirectMap.Call(),
		asm.Mov.Reg32(asm.R6, asm.R0),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(cpus-1)),
		asm.LSh.Imm(asm.R0, rowLog),
		asm.LoadMapValue(asm.R7, 0, 0).WithReference(CountsMap(ring)),
		asm.Add.Reg(asm.R7, asm.R0),
		asm.JNE.Imm(asm.R6, Redirected, nobody),
	)
	count(redirected)
	b.Emit(asm.Mov.Imm(asm.R0, Redirected), asm.Return())
	b.Label(nobody)
	count(bypassed)
	b.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// Counts holds the packets of a ring that programs have counted.
type Counts struct {
	Redirected uint64 `json:"redirected"` // packets that were given to a reader's socket
	Bypassed   uint64 `json:"bypassed"`   // packets whose queue nobody read
}

// ReadCounts adds the rows of all CPUs, which programs may be writing.
func ReadCounts(memory []byte) (c Counts) {
	for row := memory; len(row) >= 1<<rowLog; row = row[1<<rowLog:] {
		c.Redirected += atomic.LoadUint64((*uint64)(unsafe.Pointer(&row[redirected])))
		c.Bypassed += atomic.LoadUint64((*uint64)(unsafe.Pointer(&row[bypassed])))
	}
	return c
}

// ReadReceived returns what readers have got, of a memory in which they count.
func ReadReceived(memory []byte) uint64 {
	return atomic.LoadUint64(&(*reader.Tally)(unsafe.Pointer(&memory[0])).Received)
}
