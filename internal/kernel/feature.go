package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Feature is something of the kernel that levee uses.
type Feature struct {
	Name     string
	Since    string // the first Linux version that has it, for the reader
	For      string // what levee uses it for, or does without it
	Required bool   // nothing can be attached without it
	probe    func() error
}

// Features of the kernel that levee uses. Each Check tries the feature itself.
var (
	MappedArrays = Feature{"arrays in user memory", "5.5", "counters and dynamic sets", true,
		probeMapped}
	Jiffies64 = Feature{"bpf_jiffies64", "5.6", "leases and --confirm", true, probeJiffies}
	XDPLink   = Feature{"XDP links", "5.9", "replacing a policy in one step", true, probeXDPLink}
	ProgRun   = Feature{"test runs of XDP programs", "4.12",
		"eval, test and cost with the compiled program", false, probeRun}
	Frags = Feature{"XDP with fragments", "5.18", "MTUs above a page", false, probeFrags}
	TCX   = Feature{"TCX", "6.6", "interfaces without native XDP; a filter of tc instead",
		false, probeTCX}
	BPFFS = Feature{"bpf file system", "4.4", "policies that outlive the command", true,
		probeBPFFS}
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

// tryProgram loads a program that returns ret after the given instructions.
func tryProgram(spec ebpf.ProgramSpec, insns ...asm.Instruction) error {
	p, err := probeProgram(spec, insns...)
	if err != nil {
		return err
	}
	return p.Close()
}

func probeProgram(spec ebpf.ProgramSpec, insns ...asm.Instruction) (*ebpf.Program, error) {
	spec.Name, spec.License = "levee_probe", "GPL"
	spec.Instructions = append(insns, asm.Mov.Imm(asm.R0, 2), asm.Return())
	return ebpf.NewProgram(&spec)
}

func probeMapped() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "levee_probe", Type: ebpf.Array, KeySize: 4,
		ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return err
	}
	return m.Close()
}

func probeJiffies() error {
	return tryProgram(ebpf.ProgramSpec{Type: ebpf.XDP}, asm.FnJiffies64.Call())
}

func probeFrags() error {
	return tryProgram(ebpf.ProgramSpec{Type: ebpf.XDP, Flags: unix.BPF_F_XDP_HAS_FRAGS})
}

func probeRun() error {
	p, err := probeProgram(ebpf.ProgramSpec{Type: ebpf.XDP})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	return err
}

// noInterface is an interface index that none has: the kernel looks for it after it has found that
// it knows the kind of link.
const noInterface = 1<<31 - 1

func probeXDPLink() error {
	p, err := probeProgram(ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: noInterface})
	return linkProbe(l, err)
}

func probeTCX() error {
	p, err := probeProgram(ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: noInterface,
		Attach: ebpf.AttachTCXIngress})
	return linkProbe(l, err)
}

func linkProbe(l link.Link, err error) error {
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EPERM):
		return err
	}
	return nil // it looked for the interface
}

func probeBPFFS() error {
	b, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimSpace(line), "bpf") {
			return nil
		}
	}
	return errors.New("not in /proc/filesystems; CONFIG_BPF_SYSCALL is off")
}
