package dispatcher

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
)

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2

// function returns the one that a program replaces: by the protocol a sole program replaces the
// dispatcher itself.
func function(i, of int) string {
	if of == 1 {
		return Name
	}
	return fmt.Sprintf("prog%d", i)
}

// build loads a dispatcher with a function for each of the programs.
func build(version uint8, programs []Program) (*ebpf.Program, error) {
	return load(version, programs, true)
}

// load is build of functions that may change packets, or may not.
func load(version uint8, programs []Program, changes bool) (*ebpf.Program, error) {
	c := config{Magic: magic, Version: version, Programs: uint8(len(programs)), Frags: 1}
	for i, p := range programs {
		c.Actions[i], c.Priorities[i] = p.Actions|1<<unused, p.Priority
		if p.Frags {
			c.Flags[i] = unix.BPF_F_XDP_HAS_FRAGS
		} else {
			c.Frags = 0
		}
	}
	value, err := binary.Append(nil, binary.NativeEndian, &c)
	if err != nil {
		return nil, err
	}
	if version == newest {
		value = append(value, make([]byte, boundBytes)...)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "xdp_disp.rodata", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(len(value)), MaxEntries: 1, Flags: unix.BPF_F_RDONLY_PROG,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}}})
	if err != nil {
		return nil, fmt.Errorf("make the map of a dispatcher: %w", err)
	}
	defer m.Close() // the program holds it
	if err := m.Freeze(); err != nil {
		return nil, fmt.Errorf("freeze the map of a dispatcher: %w", err)
	}
	spec := &ebpf.ProgramSpec{Name: Name, Type: ebpf.XDP, AttachType: ebpf.AttachXDP,
		License: "GPL", Instructions: instructions(&c, m, changes)}
	if c.Frags != 0 {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load a dispatcher: %w", err)
	}
	return p, nil
}

// instructions returns code that calls each function and returns its result, unless the result is a
// code that goes on to the next function. They name the map for others to find it: what it says is
// in them.
func instructions(c *config, m *ebpf.Map, changes bool) asm.Instructions {
	b := assembler.New()
	b.Replaceable(Name)
	b.Emit(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMapValue(asm.R1, m.FD(), 0))
	for i := range int(c.Programs) {
		b.Emit(
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Call.Label(fmt.Sprintf("prog%d", i)),
			asm.Mov.Imm32(asm.R1, 1),
			asm.LSh.Reg32(asm.R1, asm.R0),
			asm.Mov.Imm32(asm.R2, int32(c.Actions[i])),
			asm.And.Reg32(asm.R1, asm.R2),
			asm.JEq.Imm32(asm.R1, 0, "return"),
		)
	}
	b.Emit(asm.Mov.Imm(asm.R0, xdpPass))
	b.Label("return")
	b.Emit(asm.Return())
	for i := range int(c.Programs) {
		b.Replaceable(fmt.Sprintf("prog%d", i))
		b.Emit(asm.Mov.Imm(asm.R2, 0))
		if changes {
			// From Linux 6.13 on, and in later ones of 6.12, only a function that may change
			// packets is replaced by a program that may (bpf_check_attach_target,
			// kernel/bpf/verifier.c).
			b.Emit(asm.FnXdpAdjustTail.Call())
		}
		b.Emit(asm.Mov.Imm(asm.R0, unused), asm.Return())
	}
	return b.MustFinish()
}

// NewJumpTable makes an array for one XDP program, to which NewCaller's program goes.
func NewJumpTable() (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: "jumps", Type: ebpf.ProgramArray, KeySize: 4,
		ValueSize: 4, MaxEntries: 1})
}

// NewCaller loads a program for a dispatcher that only goes to the one in a jump table, or passes
// packets where that is empty. The table then takes programs that are loaded without an attach
// type, and that take frames in several buffers or not, as frags says.
func NewCaller(name string, jumps *ebpf.Map, frags bool) (*ebpf.Program, error) {
	// To be loaded, it takes a function that it could replace.
	some, err := build(newest, []Program{{Frags: frags}})
	if err != nil {
		return nil, err
	}
	defer some.Close()
	b := assembler.New()
	b.Replaceable(name)
	b.Emit(
		asm.LoadMapPtr(asm.R2, jumps.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, xdpPass),
		asm.Return(),
	)
	spec := &ebpf.ProgramSpec{Name: name, Type: ebpf.Extension, License: "GPL",
		AttachTarget: some, AttachTo: Name, Instructions: b.MustFinish()}
	if frags {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load a program that replaces a function: %w", err)
	}
	return p, nil
}

// Check reports whether this kernel lets this process replace a function.
func Check() error {
	jumps, err := NewJumpTable()
	if err != nil {
		return err
	}
	defer jumps.Close()
	p, err := NewCaller("levee_probe", jumps, false)
	if err != nil {
		return err
	}
	defer p.Close()
	return replaces(p, true)
}

// replaces returns an error if a program cannot replace a function that may change packets, or may
// not.
func replaces(p *ebpf.Program, changes bool) error {
	d, err := load(newest, []Program{{}}, changes)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := link.AttachFreplace(d, Name, p)
	if err != nil {
		return fmt.Errorf("replace a function: %w", err)
	}
	return l.Close()
}

// Holds reports whether some tools cannot build another dispatcher that calls a caller too: those
// of libxdp before 1.5.5, whose dispatchers have functions that do not change packets, where the
// kernel minds. They then change nothing.
func (d *Dispatcher) Holds(caller *ebpf.Program) bool {
	return d.Version < newest && replaces(caller, false) != nil
}
