package contender

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// XDPDrop is an XDP program that does nothing but drop: what nobody can beat on the same path.
func XDPDrop() Defence { return &xdpDrop{} }

type xdpDrop struct {
	counted
	link link.Link
}

func (*xdpDrop) Name() string  { return "xdp drop" }
func (*xdpDrop) Hook() Hook    { return XDP }
func (*xdpDrop) Rules() string { return "" }
func (*xdpDrop) Describe() string {
	return "an empty XDP program that drops, in the driver; counted by the driver"
}

func (x *xdpDrop) Install(_ context.Context, s Site) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "levee_drop",
		Type:         ebpf.XDP,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDropped), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		return kernel.LoadError("load the empty program", err)
	}
	defer p.Close()
	if x.link, err = attachXDP(p, s, link.XDPDriverMode); err != nil {
		return err
	}
	return x.start(s)
}

// attachXDP puts a program in front of a device.
func attachXDP(p *ebpf.Program, s Site, mode link.XDPAttachFlags) (l link.Link, err error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	err = s.Host.Do(func() error {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: index, Flags: mode})
		return err
	})
	if err != nil {
		return nil, kernel.Refuse(err, "attach the empty program to %s", s.Device)
	}
	return l, nil
}

func (s Site) index() (int, error) {
	d := s.Host.Device(s.Device)
	if d == nil {
		return 0, fmt.Errorf("host %s has no device %s", s.Host.Name, s.Device)
	}
	return d.Index, nil
}

func (x *xdpDrop) Remove(context.Context) error {
	if x.link == nil {
		return nil
	}
	err := x.link.Close()
	x.link = nil
	return err
}

// counted takes the driver's count of packets that an XDP program dropped.
type counted struct {
	site   Site
	before uint64
}

func (c *counted) start(s Site) (err error) {
	c.site, c.before = s, 0
	c.before, err = c.Dropped(context.Background())
	return err
}

func (c *counted) Dropped(context.Context) (uint64, error) {
	var n uint64
	err := c.site.Host.Do(func() error {
		m, err := lab.Counters(c.site.Device)
		if err != nil {
			return err
		}
		v, ok := m[XDPDropped]
		if !ok {
			return fmt.Errorf("the driver of %s does not count %s", c.site.Device, XDPDropped)
		}
		n = v - c.before
		return nil
	})
	return n, err
}

// Counters of veth (drivers/net/veth.c) for its only queue.
const (
	Received   = "rx_queue_0_xdp_packets"     // taken from the ring by the receiver
	XDPDropped = "rx_queue_0_xdp_drops"       // of these, dropped by an XDP program
	Refused    = "tx_queue_0_xdp_xmit_errors" // at the sender: no room in the receiver's ring
)
