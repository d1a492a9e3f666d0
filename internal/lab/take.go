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
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Taking is one end of a lab whose wire is real: the other end is on another machine. Both have the
// addresses of the first pair of Standard.
type Taking struct {
	// Device of the calling thread's network namespace, which carries nothing else.
	Device string
	// End is Server or World: which of both this machine is.
	End string
	// Peer is the Ethernet address of the other end.
	Peer MAC
	// CPU runs the threads that receive.
	CPU int
}

// taken is the state of a device before a lab took it.
type taken struct {
	Home     uint64 // inode of the network namespace that it came from
	Cookie   uint64 `json:",omitempty"` // of that namespace
	Up       bool
	Addrs    []string        `json:",omitempty"` // with their prefix lengths
	Details  []details       `json:",omitempty"` // of each
	At       int64           `json:",omitempty"` // when they were read, in seconds since boot
	Features map[string]bool // of these that the lab changes
	Threaded bool            // its NAPI ran in threads
	Threads  []thread        `json:",omitempty"` // those, in the order of napiThreads
	// Made are the process ids of threads that the lab has had made, where the kernel cannot tell
	// which are a device's (before 6.8).
	Made     []int  `json:",omitempty"`
	Channels uint32 // that receive and send; 0 where the driver tells none
	// Sysctls are those that are not as a new device has them, which it is after each move.
	Sysctls map[string]string `json:",omitempty"`
}

// ErrInUse says that a device carries something else than a lab.
var ErrInUse = kernel.Refuse(nil, "in use")

// Free tells whether a device of the calling thread's network namespace may be taken: an Ethernet
// device without an XDP program, a master, devices above it, qdiscs or routes that somebody has
// added. The error matches ErrInUse and says what is in the way, or ErrNoDevice.
func Free(device string) (netlink.Link, error) {
	link, err := netlink.LinkByName(device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("there is %w %q in this network namespace; `ip link` lists what "+
			"there is", ErrNoDevice, device)
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", device, err)
	}
	a := link.Attrs()
	used := func(format string, args ...any) error {
		return fmt.Errorf("%s is %w: %s", device, ErrInUse, fmt.Sprintf(format, args...))
	}
	if a.Flags&net.FlagLoopback != 0 || a.EncapType != "ether" {
		return nil, kernel.Refuse(nil, "%s is no Ethernet interface", device)
	}
	if x := a.Xdp; x != nil && x.Attached {
		return nil, used("an XDP program is on it (id %d): take it off first, a policy by `levee "+
			"down --dev %s`", x.ProgId, device)
	}
	if a.MasterIndex != 0 {
		return nil, used("it is a port of another interface (`ip link set %s nomaster` ends that)",
			device)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	for _, l := range links {
		// the index at the other end of a veth pair is that of another namespace
		if l.Type() != "veth" && l.Attrs().ParentIndex == a.Index {
			return nil, used("%s is above it", l.Attrs().Name)
		}
	}
	qdiscs, err := netlink.QdiscList(link)
	if err != nil {
		return nil, fmt.Errorf("listing the qdiscs of %s: %w", device, err)
	}
	for _, q := range qdiscs {
		if h := q.Attrs().Handle; h != 0 { // the kernel's own have none; a move ends all of them
			return nil, used("it has a qdisc, %s %s, whose filters and limits would be gone: "+
				"take it off first (`tc qdisc show dev %s`), a policy by `levee down --dev %[3]s`",
				q.Type(), netlink.HandleStr(h), device)
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: a.Index,
			Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("listing the routes over %s: %w", device, err)
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				return nil, used("there is a route over it (%s): name an interface that has none",
					r)
			}
		}
	}
	return link, nil
}

// Take makes a lab of one host, a network namespace to which a device moves from the calling
// thread's. The device gives up its addresses; it has them again, with all else that the lab
// changes, when the lab is closed, or swept after its owner was killed. A device that carries
// something else is refused (Free). It needs root. The lab is closed when ctx ends.
func Take(ctx context.Context, t Taking) (*Lab, error) {
	top := Topology{Pairs: []Pair{{Inner: Server, Outer: World, Clients: 16}},
		ReceiverCPU: t.CPU, GeneratorCPU: t.CPU}
	if err := top.complete(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("lab %s: taking %s needs root: %w", top.Name, t.Device,
			os.ErrPermission)
	}
	unlock, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return nil, err
	}
	link, err := Free(t.Device)
	if err != nil {
		return nil, err
	}
	rec, err := claim(top.Name)
	if err != nil {
		return nil, err
	}
	if err := take(rec, t, top, link); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", top.Name, err), rec.remove())
	}
	l := open(rec)
	l.owned = true
	l.stop = context.AfterFunc(ctx, func() { l.Close() })
	return l, nil
}

// take makes the namespace, moves the device there and prepares it. What it does is in the record
// before it is done.
func take(rec *record, t Taking, top Topology, link netlink.Link) error {
	was, err := was(link)
	if err != nil {
		return err
	}
	attrs := link.Attrs()
	inner, outer := ends(0, top.Pairs[0], 0, 0, attrs.MTU)
	d, other := inner, outer
	if t.End == World {
		d, other = outer, inner
	}
	copy(d.MAC[:], attrs.HardwareAddr)
	d.Name, d.Taken, d.Index = t.Device, was, attrs.Index
	d.Peer.MAC, d.Peer.Device, other.MAC = t.Peer, "", t.Peer
	h := &Host{Name: t.End, Namespace: prefix + rec.Name + "-" + t.End}
	if err := shareNetnsDir(); err != nil {
		return err
	}
	announce := func(ino uint64) error {
		h.Inode, h.Devices = ino, []Device{d}
		rec.Hosts = append(rec.Hosts, h)
		return rec.save()
	}
	if err := makeNetns(h.Namespace, announce,
		func() error { return sysctls(false) }); err != nil {
		return err
	}
	if err := move(link, filepath.Join(netnsDir, h.Namespace)); err != nil {
		return err
	}
	err = h.inRoutes(func(nl *netlink.Handle) error {
		if was.Channels > 1 {
			if err := setChannels(t.Device, 1); err != nil {
				return err
			}
		}
		d := &h.Devices[0]
		if err := address(nl, d, &other); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if t.End == Server {
			for _, via := range []netip.Addr{d.Peer.IPv4, d.Peer.IPv6} {
				all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				if via.Is6() {
					all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
				if err := route(nl, d, all, via); err != nil {
					return err
				}
			}
		}
		return tune(h, top)
	})
	if err != nil {
		return err
	}
	return rec.save()
}

// was reads what the lab will change of a device.
func was(link netlink.Link) (*taken, error) {
	a := link.Attrs()
	t := &taken{Up: a.Flags&net.FlagUp != 0, Features: map[string]bool{}}
	var err error
	if t.Home, err = inode(threadNetns); err != nil {
		return nil, fmt.Errorf("identifying the network namespace: %w", err)
	}
	if t.Cookie, err = cookieOf(); err != nil {
		return nil, fmt.Errorf("identifying the network namespace: %w", err)
	}
	if t.At, err = sinceBoot(); err != nil {
		return nil, fmt.Errorf("reading the clock: %w", err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", a.Name, err)
	}
	for i := range addrs {
		x := &addrs[i]
		if !x.IP.IsLinkLocalUnicast() { // which the kernel makes
			t.Addrs = append(t.Addrs, x.IPNet.String())
			t.Details = append(t.Details, detailsOf(x))
		}
	}
	features, err := ownFeatures(a.Name)
	if err != nil {
		return nil, err
	}
	t.Features = features
	if t.Channels, err = channels(a.Name); err != nil {
		return nil, err
	}
	t.Sysctls = ownSysctls(a.Name)
	if t.Threaded, err = threadedNAPI(a.Name); t.Threaded && err == nil {
		t.Threads, err = readThreads(a.Index)
	}
	return t, err
}

// ownSysctls returns those of a device of the calling thread's namespace that differ from a new
// one's, by their paths. The secret of its addresses is not among them: the record is for all to
// read.
func ownSysctls(device string) map[string]string {
	out := map[string]string{}
	for _, family := range []string{"ipv4", "ipv6"} {
		dir := filepath.Join(sysctlDir, family, "conf")
		files, _ := os.ReadDir(filepath.Join(dir, device)) // none without that family
		for _, f := range files {
			path := filepath.Join(dir, device, f.Name())
			own, err := os.ReadFile(path)
			usual, wrong := os.ReadFile(filepath.Join(dir, "default", f.Name()))
			if err == nil && wrong == nil && string(own) != string(usual) &&
				f.Name() != "stable_secret" {
				out[path] = string(own)
			}
		}
	}
	return out
}

// setSysctls sets those that are not so.
func setSysctls(values map[string]string) (err error) {
	for path, v := range values {
		if now, wrong := os.ReadFile(path); wrong != nil || string(now) != v {
			err = errors.Join(err, os.WriteFile(path, []byte(v), 0))
		}
	}
	return err
}

// move puts a device into another network namespace.
func move(link netlink.Link, to string) error {
	fd, err := unix.Open(to, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", to, err)
	}
	defer unix.Close(fd)
	if err := netlink.LinkSetNsFd(link, fd); err != nil {
		return fmt.Errorf("moving %s to another network namespace: %w", link.Attrs().Name, err)
	}
	return nil
}

// leave moves what was taken back where it came from, from inside the lab's namespace. A device
// that is not there any more is no error, nor is a home that is gone: the kernel then takes a card
// back itself. told is which settings are not as they were.
func (d *Device) leave() (told, err error) {
	link, err := netlink.LinkByName(d.Name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", d.Name, err)
	}
	home := findNetns(d.Taken.Home, d.Taken.Cookie)
	if home == "" {
		return nil, nil
	}
	// Down before it moves: its addresses here go with it.
	told = errors.Join(restore(d, link.Attrs().Index), netlink.LinkSetDown(link))
	return told, move(link, home)
}

// arrive restores state and addresses of a device in its own namespace. It may be called again.
func (d *Device) arrive() error {
	home := findNetns(d.Taken.Home, d.Taken.Cookie)
	if home == "" {
		return nil
	}
	return insidePath(home, func() error {
		link, err := netlink.LinkByName(d.Name)
		if err != nil {
			return nil
		}
		err = setSysctls(d.Taken.Sysctls)
		if d.Taken.Up {
			err = errors.Join(err, netlink.LinkSetUp(link)) // which may make the threads
		}
		err = errors.Join(err, d.restoreThreads(link.Attrs().Index))
		now, wrong := sinceBoot()
		err = errors.Join(err, wrong)
		for i, text := range d.Taken.Addrs {
			of := details{Valid: forever, Preferred: forever} // in the note of an older levee
			if i < len(d.Taken.Details) {
				of = d.Taken.Details[i]
			}
			err = errors.Join(err, of.put(link, text, uint32(max(now-d.Taken.At, 0))))
		}
		if err != nil {
			return fmt.Errorf("giving %s back: %w", d.Name, err)
		}
		return nil
	})
}

// findNetns returns a path of the network namespace with an inode and a cookie, "" if none is
// found. A namespace that came later may have the inode of one that is gone. A cookie of 0 is any.
func findNetns(ino, cookie uint64) string {
	paths := []string{"/proc/1/ns/net", "/proc/self/ns/net"}
	for _, pattern := range []string{netnsDir + "/*", "/proc/[0-9]*/ns/net"} {
		found, _ := filepath.Glob(pattern) // the pattern is right
		paths = append(paths, found...)
	}
	i := slices.IndexFunc(paths, func(p string) bool {
		n, err := inode(p)
		if err != nil || n != ino || cookie == 0 {
			return err == nil && n == ino
		}
		err = insidePath(p, func() (err error) { n, err = cookieOf(); return err })
		return err == nil && n == cookie
	})
	if i < 0 {
		return ""
	}
	return paths[i]
}
