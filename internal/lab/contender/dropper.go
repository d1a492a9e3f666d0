package contender

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/kernel"
)

// What a program returns for a packet that is to be dropped.
const (
	xdpDropped    = 1 // XDP_DROP, include/uapi/linux/bpf.h
	tcxDropped    = 2 // TCX_DROP, likewise
	socketDropped = 0 // bytes to keep of the packet: sk_filter(9)
)

// dropper is an eBPF program that counts a packet and drops it, at one of the places where such
// programs run.
type dropper struct {
	name, what string
	hook       Hook
	typ        ebpf.ProgramType
	verdict    int32
	attach     func(p *ebpf.Program, s Site) (detach func() error, err error)

	counter *ebpf.Map
	detach  func() error
}

// XDPGenericDrop returns the empty XDP program where drivers without XDP run it.
func XDPGenericDrop() Defence {
	return &dropper{
		name: "xdp generic", hook: XDPGeneric, typ: ebpf.XDP, verdict: xdpDropped,
		what: "an XDP program that counts and drops, in generic mode: behind the driver, as for " +
			"drivers without XDP",
		attach: func(p *ebpf.Program, s Site) (func() error, error) {
			l, err := attachXDP(p, s, link.XDPGenericMode)
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		},
	}
}

// TCDrop returns a program at tc ingress.
func TCDrop() Defence {
	return &dropper{
		name: "tc ingress", hook: TC, typ: ebpf.SchedCLS, verdict: tcxDropped,
		what:   "an eBPF program that counts and drops at tc ingress (TCX)",
		attach: attachTCX,
	}
}

func attachTCX(p *ebpf.Program, s Site) (func() error, error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	var l link.Link
	err = s.Host.Do(func() error {
		l, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: index,
			Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		return nil, kernel.Refuse(err, "attach a program at tc ingress of %s (TCX needs Linux 6.6)",
			s.Device)
	}
	return l.Close, nil
}

// SocketFilter returns a program on the application's socket.
func SocketFilter() Defence {
	return &dropper{
		name: "socket filter", hook: Socket, typ: ebpf.SocketFilter, verdict: socketDropped,
		what: "an eBPF program that counts and drops on the application's socket, before its queue",
		attach: func(p *ebpf.Program, s Site) (func() error, error) {
			if s.Application == nil {
				return nil, errNoApplication
			}
			if err := s.Application.Attach(p.FD()); err != nil {
				return nil, err
			}
			return s.Application.Detach, nil
		},
	}
}

var errNoApplication = errors.New("no application runs here")

func (d *dropper) Name() string     { return d.name }
func (d *dropper) Describe() string { return d.what }
func (d *dropper) Hook() Hook       { return d.hook }
func (d *dropper) Rules() string    { return "" }

func (d *dropper) Install(_ context.Context, s Site) error {
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Name: "levee_drops", Type: ebpf.Array, KeySize: 4,
		ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return kernel.LoadError("make the counter of "+d.name, err)
	}
	d.counter = counter
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "levee_drop", Type: d.typ, License: "GPL",
		Instructions: asm.Instructions{
			// All packets of a device come by one thread, so nobody else writes.
			asm.LoadMapValue(asm.R1, counter.FD(), 0),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
			asm.Add.Imm(asm.R2, 1),
			asm.StoreMem(asm.R1, 0, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, d.verdict),
			asm.Return(),
		},
	})
	if err != nil {
		return kernel.LoadError("load the program of "+d.name, err)
	}
	defer p.Close()
	d.detach, err = d.attach(p, s)
	return err
}

func (d *dropper) Dropped(context.Context) (n uint64, err error) {
	if d.counter == nil {
		return 0, fmt.Errorf("%s is not installed", d.name)
	}
	if err := d.counter.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("reading the counter of %s: %w", d.name, err)
	}
	return n, nil
}

func (d *dropper) Remove(context.Context) error {
	var errs []error
	if d.detach != nil {
		errs = append(errs, d.detach())
		d.detach = nil
	}
	if d.counter != nil {
		errs = append(errs, d.counter.Close())
		d.counter = nil
	}
	return errors.Join(errs...)
}
