package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Feature is something of the kernel that levee uses.
type Feature struct {
	Name  string
	Since string // the first Linux version that has it, for the reader
	probe func() error
}

// Features that levee does without where the kernel has none. Each Check tries the feature itself.
var (
	// Frags is for MTUs above a page.
	Frags = Feature{"XDP with fragments", "5.18", probeFrags}
	// TCX is for interfaces without native XDP; a filter of tc is what else they have.
	TCX = Feature{"TCX", "6.6", probeTCX}
)

// Check tries the feature. The error, nil if it is there, matches ErrRefused; it also matches
// ebpf.ErrNotSupported if the kernel does not have it, as opposed to forbidding the try.
func (f Feature) Check() error {
	if err := Privileged(); err != nil {
		return err
	}
	err := f.probe()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return LoadError("try "+f.Name, err)
	}
	return Refuse(fmt.Errorf("%w (%v)", ebpf.ErrNotSupported, err),
		"this kernel has no %s (Linux %s or newer)", f.Name, f.Since)
}

// probeProgram loads a program that does nothing.
func probeProgram(spec ebpf.ProgramSpec) (*ebpf.Program, error) {
	spec.Name, spec.License = "levee_probe", "GPL"
	spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}
	return ebpf.NewProgram(&spec)
}

func probeFrags() error {
	p, err := probeProgram(ebpf.ProgramSpec{Type: ebpf.XDP, Flags: unix.BPF_F_XDP_HAS_FRAGS})
	if err != nil {
		return err
	}
	return p.Close()
}

// noInterface is an interface index that none has: the kernel looks for it after it has found that
// it knows the kind of link.
const noInterface = 1<<31 - 1

func probeTCX() error {
	p, err := probeProgram(ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: noInterface,
		Attach: ebpf.AttachTCXIngress})
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EPERM):
		return err
	}
	return nil // it looked for the interface
}
