package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// build makes namespaces, links, addresses, neighbours and routes, and tunes them. What it made
// is in the record at every moment.
func build(ctx context.Context, rec *record, t Topology) error {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	for _, name := range t.hosts() {
		h := &Host{Name: name, Namespace: prefix + rec.Name + "-" + name}
		announce := func(ino uint64) error {
			h.Inode = ino
			rec.Hosts = append(rec.Hosts, h)
			return rec.save()
		}
		setup := func() error { return sysctls(slices.Contains(t.Forward, name)) }
		if err := makeNetns(h.Namespace, announce, setup); err != nil {
			return err
		}
	}
	host := func(name string) *Host {
		return rec.Hosts[slices.IndexFunc(rec.Hosts, func(h *Host) bool { return h.Name == name })]
	}
	for i, k := range t.Pairs {
		if err := ctx.Err(); err != nil {
			return err
		}
		inner, outer := host(k.Inner), host(k.Outer)
		a, b := ends(i, k, len(inner.Devices), len(outer.Devices), t.MTU)
		inner.Devices = append(inner.Devices, a)
		outer.Devices = append(outer.Devices, b)
		if err := rec.save(); err != nil {
			return err
		}
		if err := join(inner, outer); err != nil {
			return fmt.Errorf("link %s to %s: %w", k.Inner, k.Outer, err)
		}
	}
	for _, h := range rec.Hosts {
		if err := configure(h, t, host); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return rec.save()
}

// ends describes both ends of link i.
func ends(i int, k Pair, nInner, nOuter, mtu int) (inner, outer Device) {
	v4 := func(host int) netip.Addr {
		return netip.AddrFrom4([4]byte{198, 18, byte(i),
			byte(host)})
	}
	v6 := func(host int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, byte(i), 15: byte(host)})
	}
	end := func(n, host int) Device {
		return Device{
			Name: fmt.Sprintf("eth%d", n),
			MAC:  MAC{0x02, 0, 0, 0, byte(i), byte(host)}, // locally administered
			IPv4: netip.PrefixFrom(v4(host), 24),
			IPv6: netip.PrefixFrom(v6(host), 64),
			MTU:  mtu,
			CPU:  -1,
		}
	}
	inner, outer = end(nInner, 1), end(nOuter, 2)
	for c := range k.Clients {
		host := byte(10 + c)
		outer.Clients4 = append(outer.Clients4, v4(10+c))
		// a network of its own, as a client's home is: what counts by /64 tells them apart
		outer.Clients6 = append(outer.Clients6, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8,
			5: byte(i), 7: host, 15: host}))
	}
	inner.Peer = Peer{k.Outer, outer.Name, outer.MAC, outer.IPv4.Addr(), outer.IPv6.Addr()}
	outer.Peer = Peer{k.Inner, inner.Name, inner.MAC, inner.IPv4.Addr(), inner.IPv6.Addr()}
	return inner, outer
}

// join makes the veth pair of the newest devices of both hosts, one queue each.
func join(inner, outer *Host) error {
	a, b := &inner.Devices[len(inner.Devices)-1], &outer.Devices[len(outer.Devices)-1]
	fd, err := unix.Open(filepath.Join(netnsDir, outer.Namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", outer.Namespace, err)
	}
	defer unix.Close(fd)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = a.Name, a.MTU, net.HardwareAddr(a.MAC[:])
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = b.Name, uint32(b.MTU),
		net.HardwareAddr(b.MAC[:])
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = 1, 1
	veth.PeerNamespace = netlink.NsFd(fd)
	return inner.Do(func() error {
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making the veth pair: %w", err)
		}
		return nil
	})
}

// configure brings the devices of a host up.
func configure(h *Host, t Topology, host func(string) *Host) error {
	return h.inRoutes(func(nl *netlink.Handle) error {
		for i := range h.Devices {
			d := &h.Devices[i]
			if err := address(nl, d, host(d.Peer.Host).Device(d.Peer.Device)); err != nil {
				return fmt.Errorf("%s: %w", d.Name, err)
			}
		}
		if err := routes(nl, h, t, host); err != nil {
			return err
		}
		return tune(h, t)
	})
}

// inRoutes runs f inside the namespace, whose loopback interface is up, with rtnetlink.
func (h *Host) inRoutes(f func(nl *netlink.Handle) error) error {
	return h.Do(func() error {
		// The handle's sockets are bound to the namespace of this thread.
		nl, err := netlink.NewHandleAt(netns.None(), unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("opening rtnetlink: %w", err)
		}
		defer nl.Close()
		lo, err := nl.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("finding lo: %w", err)
		}
		if err := nl.LinkSetUp(lo); err != nil {
			return fmt.Errorf("setting lo up: %w", err)
		}
		return f(nl)
	})
}

// address sets a device up with its addresses and permanent neighbours for all of its peer's.
func address(nl *netlink.Handle, d, peer *Device) error {
	link, err := nl.LinkByName(d.Name)
	if err != nil {
		return fmt.Errorf("finding the device: %w", err)
	}
	d.Index = link.Attrs().Index
	own := []netip.Prefix{d.IPv4, d.IPv6}
	for _, a := range slices.Concat(d.Clients4, d.Clients6) {
		own = append(own, netip.PrefixFrom(a, subnetBits(a)))
	}
	for _, p := range own {
		if p.Addr().Is6() && !HaveIPv6() {
			continue
		}
		a := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if err := nl.AddrAdd(link, a); err != nil {
			return fmt.Errorf("adding address %s: %w", p, err)
		}
	}
	if err := nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting the device up: %w", err)
	}
	for _, a := range slices.Concat([]netip.Addr{peer.IPv4.Addr(), peer.IPv6.Addr()}, peer.Clients4,
		peer.Clients6) {
		if a.Is6() && !HaveIPv6() {
			continue
		}
		n := &netlink.Neigh{LinkIndex: d.Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(),
			HardwareAddr: net.HardwareAddr(peer.MAC[:])}
		if err := nl.NeighSet(n); err != nil {
			return fmt.Errorf("adding neighbour %s: %w", a, err)
		}
	}
	return nil
}

// routes gives a host its default route, by the first link of which it is the inner end, and routes
// to the links behind its inner neighbours.
func routes(nl *netlink.Handle, h *Host, t Topology, host func(string) *Host) error {
	haveDefault := false
	for i := range h.Devices {
		d := &h.Devices[i]
		inner := d.IPv4.Addr().As4()[3] == 1
		if inner && !haveDefault {
			haveDefault = true
			if err := route(nl, d, netip.PrefixFrom(netip.IPv4Unspecified(), 0),
				d.Peer.IPv4); err != nil {
				return err
			}
			if err := route(nl, d, netip.PrefixFrom(netip.IPv6Unspecified(), 0),
				d.Peer.IPv6); err != nil {
				return err
			}
		}
		if inner || !slices.Contains(t.Forward, d.Peer.Host) {
			continue
		}
		for _, further := range host(d.Peer.Host).Devices {
			if further.IPv4.Addr().As4()[3] != 2 || further.Peer.Host == h.Name {
				continue
			}
			if err := route(nl, d, further.IPv4.Masked(), d.Peer.IPv4); err != nil {
				return err
			}
			if err := route(nl, d, further.IPv6.Masked(), d.Peer.IPv6); err != nil {
				return err
			}
		}
	}
	return nil
}

func route(nl *netlink.Handle, d *Device, to netip.Prefix, via netip.Addr) error {
	if to.Addr().Is6() && !HaveIPv6() {
		return nil
	}
	r := &netlink.Route{LinkIndex: d.Index, Dst: ipNet(to), Gw: via.AsSlice()}
	if err := nl.RouteAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the route to %s via %s: %w", to, via, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func subnetBits(a netip.Addr) int {
	if a.Is4() {
		return 24
	}
	return 64
}

// HaveIPv6 tells whether the kernel runs IPv6 at all.
func HaveIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/all")
	return err == nil
}
