package difftest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/packet"
)

// arrival is a way in which frames come to a program: behind one that has left something on all of
// the stack, and at tc as the stack hands them on, with the outermost tag beside them.
type arrival struct {
	program *ebpf.Program
	behind  *ebpf.Map
	takes   bool   // the outermost tag off
	tag     []byte // that of the last frame
}

// Offsets in struct __sk_buff of include/uapi/linux/bpf.h, and its size.
const (
	skbMark  = 8
	skbBytes = 192
)

// arriveAt has frames arrive so at a program; of what is on the stack only the number says more.
func arriveAt(r *loader.Runner, p *codegen.Program, seed uint64) (*arrival, error) {
	word := int64(rand.New(rand.NewPCG(seed, 1)).Uint64() | 1<<63)
	if seed/4%2 == 0 { // one in four is of tc
		word = -1
	}
	judge := p.Spec.Programs[codegen.ProgramName]
	a := &arrival{takes: judge.Type == ebpf.SchedCLS && p.Link == packet.Ethernet}
	return a, r.EnterBy(func(judges *ebpf.Program) (out *ebpf.Program, err error) {
		a.behind, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4,
			ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return nil, err
		}
		a.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: judge.Type,
			AttachType: judge.AttachType, Flags: judge.Flags, License: "Dual BSD/GPL",
			Instructions: poisoning(a.takes, word, a.behind)})
		if err == nil {
			err = a.behind.Put(uint32(0), judges)
		}
		return a.program, err
	})
}

// poisoning is the program, which leaves a word on the stack: as one that says what a tunnel
// carries, one that matches.
func poisoning(tags bool, word int64, behind *ebpf.Map) asm.Instructions {
	b := assembler.New()
	b.Emit(asm.Mov.Reg(asm.R6, asm.R1))
	if tags {
		b.Emit(
			asm.LoadMem(asm.R3, asm.R6, skbMark, asm.Word),
			asm.JEq.Imm(asm.R3, 0, "poison"),
			asm.Mov.Imm(asm.R2, 0),
			asm.StoreMem(asm.R6, skbMark, asm.R2, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R2, asm.R3),
			asm.RSh.Imm(asm.R2, 16),
			asm.And.Imm(asm.R3, 0xffff),
			asm.FnSkbVlanPush.Call(),
		)
	}
	b.Label("poison")
	b.Emit(asm.LoadImm(asm.R2, word, asm.DWord))
	for at := int16(-512); at < 0; at += 8 {
		b.Emit(asm.StoreMem(asm.R10, at, asm.R2, asm.DWord))
	}
	b.Emit(
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, behind.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	return b.MustFinish()
}

// split gives a frame as the stack hands it on at tc: without its outermost tag, with the context
// that has it put beside the frame.
func (a *arrival) split(frame []byte) (rest, context []byte) {
	const end = 12 + 4
	a.tag = nil
	if !a.takes || len(frame) < end+2 {
		return frame, nil
	}
	switch tpid := binary.BigEndian.Uint16(frame[12:]); tpid {
	case packet.EtherCTag, packet.EtherSTag:
		a.tag = frame[12:end]
		context = make([]byte, skbBytes)
		binary.NativeEndian.PutUint32(context[skbMark:],
			uint32(binary.NativeEndian.Uint16(frame[12:]))<<16|
				uint32(binary.BigEndian.Uint16(frame[14:])))
		return slices.Concat(frame[:12], frame[end:]), context
	}
	return frame, nil
}

// whole puts the tag of the last frame back into an answer to it.
func (a *arrival) whole(answer []byte) []byte {
	if answer == nil || a.tag == nil {
		return answer
	}
	return slices.Concat(answer[:12], a.tag, answer[12:])
}

func (a *arrival) close() error { return errors.Join(a.program.Close(), a.behind.Close()) }
