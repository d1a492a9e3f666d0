package card

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Offloads by the kernel's names (net/ethtool/common.c).
const (
	RxVLAN = "rx-vlan-hw-parse" // takes VLAN tags off received frames
	GRO    = "rx-gro"           // merges received packets of a connection, in the kernel
	GROHW  = "rx-gro-hw"        // the same, in the card
	LRO    = "rx-lro"           // the same, without keeping what each packet was
)

// Offload says whether the device does it.
type Offload struct {
	On     bool
	Wanted bool // somebody, or the driver, has asked for it
	Fixed  bool // ethtool cannot change it
}

// Card describes an interface and its driver.
type Card struct {
	Name, Driver string
	MTU, MaxMTU  int                // MaxMTU is 0 where the kernel does not tell
	Offloads     map[string]Offload // nil where the driver does not tell
	Virtio       *Virtio            // nil for all others
	Physical     bool               // it is no device that the kernel makes
	// NoFragments: the driver takes programs that want fragments, and hands them none
	NoFragments bool
	Bond        bool
	Ports       []*Card // of a bond: they run its native program, each its own
}

// Read reads an interface of the calling thread's network namespace. What cannot be read is left
// out.
func Read(name string) *Card {
	c := &Card{Name: name}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return c
	}
	defer e.Close()
	c.read(e)
	return c
}

func (c *Card) read(e *ethtool.Ethtool) {
	info, err := e.DriverInfo(c.Name)
	if err == nil {
		c.Driver = info.Driver
	}
	if states, err := e.FeaturesWithState(c.Name); err == nil {
		c.Offloads = map[string]Offload{}
		for name, s := range states {
			c.Offloads[name] = Offload{On: s.Active, Wanted: s.Requested,
				Fixed: !s.Available || s.NeverChanged}
		}
	}
	if c.Driver == virtioNet {
		c.Virtio = readVirtio("/sys", info.BusInfo)
	}
	if d, _ := Known(c.Driver); d.Fragments63 {
		_, err := netlink.GenlFamilyGet("netdev")
		c.NoFragments = err != nil
	}
	l, err := netlink.LinkByName(c.Name)
	if err != nil {
		return
	}
	c.MTU, c.MaxMTU = l.Attrs().MTU, maxMTU(l.Attrs().Index)
	c.Physical = l.Type() == "device" && l.Attrs().Flags&net.FlagLoopback == 0
	if l.Type() != "bond" {
		return
	}
	c.Bond = true
	all, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // others come and go
		return
	}
	for _, port := range all {
		if port.Attrs().MasterIndex == l.Attrs().Index {
			p := &Card{Name: port.Attrs().Name}
			p.read(e)
			c.Ports = append(c.Ports, p)
		}
	}
}

// maxMTU asks for IFLA_MAX_MTU, 0 if the kernel does not tell it.
func maxMTU(index int) int {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	ask := nl.NewIfInfomsg(unix.AF_UNSPEC)
	ask.Index = int32(index)
	req.AddData(ask)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil || len(answers) == 0 || len(answers[0]) < unix.SizeofIfInfomsg {
		return 0
	}
	attrs, err := nl.ParseRouteAttr(answers[0][unix.SizeofIfInfomsg:])
	if err != nil {
		return 0
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_MAX_MTU && len(a.Value) >= 4 {
			return int(nl.NativeEndian().Uint32(a.Value))
		}
	}
	return 0
}

const virtioNet = "virtio_net"

// Virtio holds the features that a virtio device and its host have agreed on, by bits of the virtio
// specification (5.1.3, "Feature bits").
type Virtio struct{ Features uint64 }

// Feature bits.
const (
	guestCSUM         = 1
	ctrlGuestOffloads = 2
	hostMTU           = 3
	mrgRxbuf          = 15
)

// guestMerges are the bits by which the host hands over packets larger than a frame: TSO for IPv4,
// IPv6 and ECN, UFO, USO for IPv4 and IPv6.
var guestMerges = []int{7, 8, 9, 10, 54, 55}

// Has reports whether driver and device have agreed on one of some features.
func (v *Virtio) Has(bits ...int) bool {
	for _, b := range bits {
		if v.Features>>b&1 != 0 {
			return true
		}
	}
	return false
}

// readVirtio reads the features of the device on a bus, which sysfs shows in each network
// namespace. It is nil where that is not told.
func readVirtio(sysfs, bus string) *Virtio {
	if bus == "" || strings.ContainsAny(bus, "*?[\\/") {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(sysfs, "bus/*/devices", bus, "virtio*/features"))
	if err != nil || len(found) == 0 {
		return nil
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		return nil
	}
	return parseVirtio(string(b))
}

// parseVirtio reads "1100...", the first feature first. Older kernels show 64 of them, newer ones
// 128 (VIRTIO_FEATURES_BITS), of which the upper ones decide nothing here.
func parseVirtio(s string) *Virtio {
	v := &Virtio{}
	for i, c := range strings.TrimSpace(s) {
		switch {
		case c != '0' && c != '1':
			return nil
		case c == '1' && i < 64:
			v.Features |= 1 << i
		}
	}
	return v
}

// each returns the card, or the ports of a bond, for which its native program is attached.
func (c *Card) each() []*Card {
	if c.Bond {
		return c.Ports
	}
	return []*Card{c}
}

// Unasked says why the driver takes a native program and never asks it for packets, "" if nothing
// is known of that.
func (c *Card) Unasked() string {
	for _, p := range c.each() {
		v := p.Virtio
		if v == nil || v.Has(mrgRxbuf) {
			continue
		}
		// drivers/net/virtio_net.c, virtnet_set_big_packets and receive_big
		const ethernet = 1500
		large := v.Has(hostMTU) && max(p.MTU, p.MaxMTU) > ethernet
		if large || v.Has(guestMerges...) {
			return fmt.Sprintf("%s receives into chains of pages, past native XDP: its host gives "+
				"it no mergeable buffers (mrg_rxbuf), and %s", p.Name,
				map[bool]string{true: fmt.Sprintf("an MTU of up to %d", max(p.MTU, p.MaxMTU)),
					false: "packets larger than a frame (guest_tso, guest_uso)"}[large])
		}
	}
	return ""
}

// Forgets says when the driver stops asking a native program that is attached still, "" if nothing
// is known of that.
func (c *Card) Forgets() string {
	for _, p := range c.each() {
		if d, _ := Known(p.Driver); d.Forgets != "" {
			return fmt.Sprintf("driver %s: %s", p.Driver, d.Forgets)
		}
	}
	return ""
}

// Refuses says why the driver refuses a native program though it has native XDP, "" if nothing is
// known of that.
func (c *Card) Refuses() string {
	v := c.Virtio
	if v == nil || v.Has(ctrlGuestOffloads) || !v.Has(append([]int{guestCSUM}, guestMerges...)...) {
		return ""
	}
	// drivers/net/virtio_net.c, virtnet_xdp_set
	return "its host merges packets (guest_tso, guest_uso) or leaves out checksums (guest_csum), " +
		"and does not let this machine end that (ctrl_guest_offloads)"
}

// LargestMTU is up to which MTU the driver fills one buffer, above which a program without
// fragments loses packets; usual is where that is not known. It is false for devices whose packets
// have the MTU of another one, as those of veth.
func (c *Card) LargestMTU(usual int) (int, bool) {
	least := 0
	for _, p := range c.each() {
		d, _ := Known(p.Driver)
		if !p.Physical {
			return 0, false
		}
		if mtu := cmp.Or(d.MTU, usual); least == 0 || mtu < least {
			least = mtu
		}
	}
	return least, least > 0
}

// Fragments reports whether a program that wants fragments gets them, as far as is known.
func (c *Card) Fragments() bool {
	return !slices.ContainsFunc(c.each(), func(p *Card) bool {
		d, _ := Known(p.Driver)
		return p.NoFragments || d.Whole
	})
}

// RaisedMTU is up to which MTU the driver lets the card have while a native program without
// fragments is attached; usual is where that is not known. It is false where LargestMTU is.
func (c *Card) RaisedMTU(usual int) (int, bool) {
	least, ok := c.LargestMTU(usual)
	for _, p := range c.each() {
		if d, _ := Known(p.Driver); p.MTU <= d.SmallMTU {
			least = min(least, d.SmallMTU)
		}
	}
	return least, ok
}

// Bounces says what a running card does when its first native program comes, or the last one goes,
// if the link goes down meanwhile; "" if it does not, or nothing is known of that.
func (c *Card) Bounces() string {
	for _, p := range c.each() {
		if d, _ := Known(p.Driver); d.Bounces {
			return fmt.Sprintf("%s (driver %s): %s", p.Name, p.Driver, d.Attach)
		}
	}
	return ""
}

// Merges names the packets that the card merges and that no setting keeps apart, "" if there are
// none.
func (c *Card) Merges() string {
	for _, p := range c.each() {
		for _, o := range []string{GROHW, LRO} {
			if s := p.Offloads[o]; s.On && s.Fixed {
				return fmt.Sprintf("%s merges packets before the kernel sees them (%s, fixed)",
					p.Name, o)
			}
		}
	}
	return ""
}

// Ended lists which of the offloads that merge packets were on, or asked for, and are no more.
func (c *Card) Ended(now *Card) (ended []string) {
	for _, o := range []string{GROHW, LRO} {
		was, is := c.Offloads[o], now.Offloads[o]
		if !was.Fixed && (was.On && !is.On || was.Wanted && !is.Wanted) {
			ended = append(ended, o)
		}
	}
	return ended
}

// TurnOn asks for offloads of an interface of the calling thread's network namespace.
func TurnOn(name string, offloads []string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	on := map[string]bool{}
	for _, o := range offloads {
		on[o] = true
	}
	return e.Change(name, on)
}

// Stacked reports whether frames come to the interface through another one's, with their outermost
// tag beside them (net/core/dev.c, skb_vlan_untag in front of rx_handler).
func (c *Card) Stacked() bool {
	switch c.Driver {
	case "bonding", "bridge", "ipvlan", "macvlan", "openvswitch", "team", "802.1Q VLAN Support":
		return true
	}
	return false
}

// TakesTagsOff says which devices hand frames on with their outermost VLAN tag beside them, so that
// XDP programs see an untagged frame; mend are commands that end it. A device that does not say
// counts as one that leaves frames as they are.
func (c *Card) TakesTagsOff() (devs, mend []string) {
	for _, p := range c.each() {
		o := p.Offloads[RxVLAN]
		switch {
		case p.Driver == "veth":
			// The tag lies beside the frame as its other end has sent it (net/core/dev.c,
			// validate_xmit_vlan); what this end says of receiving changes nothing.
			devs = append(devs, p.Name)
			mend = append(mend, "ethtool -K PEER txvlan off   # PEER: the other end of "+p.Name)
		case o.On:
			devs = append(devs, p.Name)
			if !o.Fixed {
				mend = append(mend, fmt.Sprintf("ethtool -K %s rxvlan off", p.Name))
			}
		}
	}
	return devs, mend
}
