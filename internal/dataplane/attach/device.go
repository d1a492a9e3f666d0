package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/host/card"
	"levee/internal/host/linklayer"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// Device is an interface that gets a policy.
type Device struct {
	Name   string
	Index  int
	MTU    int
	Up     bool       // it carries packets
	Driver string     // "driver veth", or "interface lo" where the kernel does not tell
	tells  *card.Card // what it tells of itself, once somebody asked
	XDP    uint32     // id of the XDP program on it, 0 if none
	XDPOff string     // the word of ip-link(8) that takes it off
	Netns  uint64     // cookie of its network namespace
	Link   packet.Link
	layer  error // why its packets cannot be judged, nil if they can
}

// FindDevice looks an interface up in the network namespace of this thread.
func FindDevice(name string) (*Device, error) {
	netns, err := NetnsCookie()
	if err != nil {
		return nil, err
	}
	l, err := netlink.LinkByName(name)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil, NoInterface(name)
	}
	if err != nil {
		return nil, kernel.Refuse(err, "look up interface %q", name)
	}
	attrs := l.Attrs()
	d := &Device{Name: attrs.Name, Index: attrs.Index, MTU: attrs.MTU, Driver: Driver(attrs.Name),
		Netns: netns}
	d.Up = IsUp(l)
	d.Link, d.layer = linklayer.Of(l)
	if attrs.Xdp != nil && attrs.Xdp.Attached {
		d.XDP, d.XDPOff = attrs.Xdp.ProgId, "xdp"
		switch attrs.Xdp.AttachMode { // what `xdp off` does not find
		case nl.XDP_ATTACHED_SKB:
			d.XDPOff = "xdpgeneric"
		case nl.XDP_ATTACHED_HW:
			d.XDPOff = "xdpoffload"
		}
	}
	return d, nil
}

// Card returns what the interface tells of itself.
func (d *Device) Card() *card.Card {
	if d.tells == nil {
		d.tells = card.Read(d.Name)
	}
	return d.tells
}

func (d *Device) Key() string { return fmt.Sprintf("%d-%d", d.Netns, d.Index) }

// NetnsCookie is SO_NETNS_COOKIE of this thread's network namespace: never used twice until the
// next boot.
func NetnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, kernel.Refuse(err, "open a socket")
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, kernel.LoadError("ask for the cookie of this network namespace", err)
	}
	return cookie, nil
}

// LinkLayer returns that of an interface of this network namespace. Errors match kernel.ErrRefused.
func LinkLayer(dev string) (packet.Link, error) {
	d, err := FindDevice(dev)
	if err != nil {
		return 0, err
	}
	return d.Link, RefuseLayer(d)
}

// Driver names an interface's driver, for a sentence.
func Driver(name string) string {
	driver, err := ethtool.DriverName(name)
	if err != nil {
		return "interface " + name
	}
	return "driver " + driver
}

// RefuseLayer returns an error if packets of the interface begin with a header that programs do not
// know.
func RefuseLayer(d *Device) error {
	if d.layer == nil {
		return nil
	}
	return fmt.Errorf("%w; put the policy on the interface that carries them, or filter here "+
		"with nftables", d.layer)
}

func NoInterface(name string) error {
	return kernel.RefuseAs(unix.ENODEV,
		"there is no interface %q in this network namespace; `ip link` lists what there is", name)
}

func programID(p *ebpf.Program) (uint32, error) {
	info, err := p.Info()
	if err != nil {
		return 0, kernel.Refuse(err, "ask the kernel about the program")
	}
	id, _ := info.ID()
	return uint32(id), nil
}

// IsUp reports whether a link has a carrier, at once: what IFF_RUNNING says comes later.
func IsUp(l netlink.Link) bool {
	const both = unix.IFF_UP | unix.IFF_LOWER_UP
	return l.Attrs().RawFlags&both == both
}
