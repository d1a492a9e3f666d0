// Package shadow counts what a policy would have done with the packets that another has judged: a
// function for the program of the shadow, which clang makes of bpf/shadow.bpf.c, and the layout of
// its memory.
//
// Each CPU has a part of the memory of its own. In it are cells, one for each pair of a rule that
// decided and a rule that would have; and samples of flows whose verdicts differ. Samples lie in
// sets by their pair, so that a flood of one pair does not take the places of another's. In a set
// the flow gives way whose packet was longest ago.
//
// The package opens, pins and loads nothing.
package shadow

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

//go:generate ../../../bpf/compile -type shadow_cell -type shadow_sample -type shadow_cpu -type shadow_verdict note ../../../bpf/shadow.bpf.c

// Names of maps in the specs of programs: the memory, and the counters of the program that judges.
const (
	Map       = "pairs"
	JudgedMap = "judged"
)

// CPUBytes is the part of a CPU.
const CPUBytes = int(unsafe.Sizeof(noteShadowCpu{}))

// Flows is the number of flows that a CPU samples.
const Flows = len(noteShadowCpu{}.Samples) * len(noteShadowCpu{}.Samples[0])

// Spec describes the map, of an entry for each of so many CPUs.
func Spec(cpus int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: Map, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(CPUBytes),
		MaxEntries: uint32(cpus), Flags: mmapable}
}

// mmapable is BPF_F_MMAPABLE of include/uapi/linux/bpf.h.
const mmapable = 1 << 10

// MaxInstructions limits the instructions of the function and its call.
const MaxInstructions = 1_000

// Label is the function, which is given the context, slot and code (above 32 bits) of the policy in
// force and of the shadow, and the bytes of the frame.
const Label = "shadow"

var load = sync.OnceValues(loadNote)

// Emit emits the function.
func Emit(b *assembler.Builder, context assembler.Param, tcx bool, link packet.Link) error {
	function, entry := "shadow_xdp", noteProgEntryXdp
	switch {
	case tcx && link == packet.L3:
		function, entry = "shadow_tcx_ip", noteProgEntryTcxIp
	case tcx:
		function, entry = "shadow_tcx", noteProgEntryTcx
	case link == packet.L3:
		function, entry = "shadow_xdp_ip", noteProgEntryXdpIp
	}
	return b.Function(load, "note what a shadow would do", assembler.Function{Label: Label,
		Name: function, Entry: entry, Params: []assembler.Param{context,
			assembler.Number("judged"), assembler.Number("would"), assembler.Number("bytes")}})
}

// A Verdict is what a policy does with a packet.
type Verdict uint8

const (
	None     Verdict = 0 // of a shadow that was not asked
	Pass             = Verdict(noteShadowVerdictSHADOW_PASS)
	Drop             = Verdict(noteShadowVerdictSHADOW_DROP)
	Answer           = Verdict(noteShadowVerdictSHADOW_ANSWER)
	Redirect Verdict = 4 // SHADOW_REDIRECT of a slot
)

func (v Verdict) String() string {
	return [...]string{"none", "pass", "drop", "answer", "redirect"}[min(v, Redirect)]
}

// Decision is a rule's slot, and its verdict.
type Decision struct {
	Slot    int
	Verdict Verdict
}

func decision(half uint32) Decision {
	v := Verdict(half & 3)
	if half != 0 && v == Verdict(noteShadowVerdictSHADOW_REDIRECT) {
		v = Redirect
	}
	return Decision{int(half >> 2), v}
}

// Key is a pair of decisions: of the policy in force, and of the shadow.
type Key struct{ Judged, Would Decision }

// Differs reports whether the shadow would have done otherwise.
func (k Key) Differs() bool {
	return k.Would.Verdict != None && k.Would.Verdict != k.Judged.Verdict
}

func keyOf(key uint64) Key { return Key{decision(uint32(key)), decision(uint32(key >> 32))} }

// Pair holds the packets and bytes of a pair of decisions.
type Pair struct {
	Key
	Packets, Bytes uint64
}

// Sample is the newest flow of a pair.
type Sample struct {
	Key
	Flow    uint32 // a hash
	Last    uint64 // jiffies, of its last packet
	Packets uint64 // since it is a sample
	Bytes   int    // of the frame of its first packet
	Packet  []byte // the first of them
}

// Contents holds a memory's pairs and samples.
type Contents struct {
	Pairs   []Pair
	Samples []Sample
	// packets of pairs that found no cell
	Untold, UntoldBytes uint64
}

// Read reads a memory, which programs may be writing: of a CPU after the other, of each a part of
// CPUBytes.
func Read(memory []byte) (out Contents) {
	sums := map[Key]*Pair{}
	var order []Key
	for ; len(memory) >= CPUBytes; memory = memory[CPUBytes:] {
		cpu := (*noteShadowCpu)(unsafe.Pointer(unsafe.SliceData(memory)))
		out.Untold += atomic.LoadUint64(&cpu.Untold)
		out.UntoldBytes += atomic.LoadUint64(&cpu.UntoldBytes)
		for i := range cpu.Cells {
			c := &cpu.Cells[i]
			key := atomic.LoadUint64(&c.Key)
			if key == 0 {
				continue
			}
			k := keyOf(key)
			if sums[k] == nil {
				sums[k] = &Pair{Key: k}
				order = append(order, k)
			}
			sums[k].Packets += atomic.LoadUint64(&c.Packets)
			sums[k].Bytes += atomic.LoadUint64(&c.Bytes)
		}
		for i := range cpu.Samples {
			for j := range cpu.Samples[i] {
				if s, ok := readSample(&cpu.Samples[i][j]); ok {
					out.Samples = append(out.Samples, s)
				}
			}
		}
	}
	for _, k := range order {
		out.Pairs = append(out.Pairs, *sums[k])
	}
	return out
}

// readSample copies a sample that stays the same meanwhile.
func readSample(s *noteShadowSample) (Sample, bool) {
	key := atomic.LoadUint64(&s.Key)
	out := Sample{Key: keyOf(key), Flow: s.Flow, Last: atomic.LoadUint64(&s.Last),
		Packets: atomic.LoadUint64(&s.Packets), Bytes: int(s.Bytes)}
	out.Packet = append(out.Packet, s.Packet[:min(out.Bytes, len(s.Packet))]...)
	return out, key != 0 && atomic.LoadUint64(&s.Key) == key
}

// Call emits the call: the shadow's slot is in R6 and its code in R7. The others load into a
// register the program's context, slot and code of the policy in force, and the bytes of the frame.
func Call(b *assembler.Builder, context, judged, bytes func(asm.Register)) {
	context(asm.R1)
	bytes(asm.R4)
	judged(asm.R2)
	b.Emit(
		asm.Mov.Reg32(asm.R3, asm.R7),
		asm.LSh.Imm(asm.R3, 32),
		asm.Or.Reg(asm.R3, asm.R6),
		asm.Call.Label(Label),
	)
}
