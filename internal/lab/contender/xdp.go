package contender

import (
	"context"
	"fmt"
	"regexp"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// XDPDrop returns an XDP program that does nothing but drop: what nobody can beat on the same path.
func XDPDrop() Defence {
	return &xdpDrop{name: "xdp drop",
		what: "an empty XDP program that drops, in the driver; counted by the driver",
		body: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDropped), asm.Return()}}
}

// XDPRead returns an XDP program that reads the first 64 bytes of a packet and drops it: what
// nobody can beat who looks at packets. The bytes come to its core as the sender's core has left
// them.
func XDPRead() Defence {
	return &xdpDrop{name: "xdp read",
		what: "an XDP program that reads the first 64 bytes, or what a shorter packet has in " +
			"whole words, and drops, in the driver; counted by the driver",
		body: reading()}
}

// XDPProgram returns an XDP program that drops each packet, in the driver, which counts them;
// loading does what loads it.
func XDPProgram(name, what string, body asm.Instructions,
	loading func(load func() error) error) Defence {
	return &xdpDrop{name: name, what: what, body: body, loading: loading}
}

// reading is XDPRead's program: words as long as the packet has them, whose sum goes into the
// verdict and is taken out of it again.
func reading() asm.Instructions {
	const word, block = 8, 5 // bytes, and instructions for each
	body := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data of struct xdp_md
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, 0),
	}
	for at := int16(0); at < readBytes; at += word {
		toEnd := (readBytes-at)/word*block - 3
		body = append(body,
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, int32(at)+word),
			asm.Instruction{OpCode: asm.JGT.Op(asm.RegSource), Dst: asm.R4, Src: asm.R3,
				Offset: toEnd},
			asm.LoadMem(asm.R5, asm.R2, at, asm.DWord),
			asm.Or.Reg(asm.R0, asm.R5))
	}
	return append(body, asm.And.Imm(asm.R0, 0), asm.Or.Imm(asm.R0, xdpDropped), asm.Return())
}

const readBytes = 64

type xdpDrop struct {
	counted
	name, what string
	body       asm.Instructions
	loading    func(load func() error) error // nil: as the machine does
	link       link.Link
}

func (x *xdpDrop) Name() string     { return x.name }
func (*xdpDrop) Hook() Hook         { return XDP }
func (*xdpDrop) Rules() string      { return "" }
func (x *xdpDrop) Describe() string { return x.what }

func (x *xdpDrop) Install(_ context.Context, s Site) error {
	var p *ebpf.Program
	load := func() (err error) {
		p, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Name:         "levee_drop",
			Type:         ebpf.XDP,
			Instructions: x.body,
			License:      "GPL",
		})
		return err
	}
	var err error
	if x.loading != nil {
		err = x.loading(load)
	} else {
		err = load()
	}
	if err != nil {
		return kernel.LoadError("load the program of "+x.name, err)
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
		v, ok := xdpDrops(m)
		if !ok {
			return kernel.Refuse(nil, "the driver of %s does not count what XDP programs drop",
				c.site.Device)
		}
		n = v - c.before
		return nil
	})
	return n, err
}

// xdpDrops returns what XDP programs have dropped, of the receive queues together; false where the
// driver does not count that. Drivers call it rx_queue_0_xdp_drops (veth), rx0_xdp_drops (virtio)
// and rx0_xdp_drop (mlx5, which adds rx_xdp_drop, the sum).
func xdpDrops(counters map[string]uint64) (sum uint64, ok bool) {
	for name, n := range counters {
		if dropsOfQueue.MatchString(name) {
			sum, ok = sum+n, true
		}
	}
	return sum, ok
}

var dropsOfQueue = regexp.MustCompile(`^rx(_queue_)?_?[0-9]+_xdp_drops?$`)

// Counters of veth (drivers/net/veth.c) for its only queue.
const (
	Received = "rx_queue_0_xdp_packets"     // taken from the ring by the receiver
	Refused  = "tx_queue_0_xdp_xmit_errors" // at the sender: no room in the receiver's ring
)
