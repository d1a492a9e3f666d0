package tap

import (
	"encoding/binary"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/filter/assembler"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Taken returns the places of a map of the policy in force, of sockets or programs, that have one.
func Taken(s *store.Store, a *attach.Attachment, of state.Identity) (all []int, err error) {
	m, err := openLike(s, a, of)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.Close()
	if m.Type() == ebpf.XSKMap {
		return queuesRead(m, a)
	}
	for at := range m.MaxEntries() {
		is, err := m.LookupBytes(at)
		if err != nil {
			return nil, kernel.Refuse(err, "look into the map %s", of.What)
		}
		if is != nil {
			all = append(all, int(at))
		}
	}
	return all, nil
}

// queuesRead returns the receive queues of an interface for which a map has an AF_XDP socket. Only
// programs may look into such a map (kernel/bpf/xskmap.c, xsk_map_lookup_elem_sys_only).
func queuesRead(m *ebpf.Map, a *attach.Attachment) (all []int, err error) {
	queues := m.MaxEntries()
	if l, err := a.Here(); err != nil {
		return nil, err
	} else if l != nil { // else the interface is in another namespace
		queues = min(queues, uint32(l.Attrs().NumRxQueues))
	}
	b := assembler.New()
	b.Emit(
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md: data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 4),
		asm.Mov.Imm(asm.R0, 0),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
		asm.StoreMem(asm.R10, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R0, 1),
	)
	b.Label("end")
	b.Emit(asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "who_reads", Type: ebpf.XDP,
		License: "Dual BSD/GPL", Instructions: b.MustFinish()})
	if err != nil {
		return nil, kernel.LoadError("load what looks for readers of a ring", err)
	}
	defer p.Close()
	frame := make([]byte, 64)
	for at := range queues {
		binary.NativeEndian.PutUint32(frame, at)
		is, err := p.Run(&ebpf.RunOptions{Data: frame, Repeat: 1})
		if err != nil {
			return nil, kernel.Refuse(err, "look for readers of a ring")
		}
		if is == 1 {
			all = append(all, int(at))
		}
	}
	return all, nil
}

// openHolding opens the map of the policy in force that holds something, nil if there is none.
func openHolding(s *store.Store, a *attach.Attachment, what state.Contents) (*ebpf.Map, error) {
	return openLike(s, a, state.Identity{What: what})
}

// openLike opens the map of the policy in force of an identity, nil if there is none.
func openLike(s *store.Store, a *attach.Attachment, of state.Identity) (*ebpf.Map, error) {
	g := a.Current()
	name, ok := codegen.MapLike(g.Maps, of)
	if !ok {
		return nil, nil
	}
	return s.OpenPinned(a.Key, g.Generation, name)
}
