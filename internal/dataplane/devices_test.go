package dataplane

import (
	"errors"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/action"
)

// addLink makes a device. A kind that the kernel does not have skips the test; anything else that
// goes wrong fails it.
func addLink(t *testing.T, l netlink.Link) {
	t.Helper()
	err := netlink.LinkAdd(l)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("a kernel with %s devices is not at hand: %v", l.Type(), err)
	}
	if err != nil {
		t.Fatalf("make a %s device: %v", l.Type(), err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(l) })
}

// openDriver opens the character device that makes devices of a kind. It skips the test where the
// kernel has no driver behind it.
func openDriver(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		t.Skipf("a kernel with %s is not at hand: %v", path, err)
	}
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// addTun makes a device of /dev/net/tun that lives until the test ends; flags are unix.IFF_TUN or
// unix.IFF_TAP. What it returns changes the link type.
func addTun(t *testing.T, name string, flags uint16) (retype func(arphrd int)) {
	t.Helper()
	fd := openTun(t, name, flags)
	return func(arphrd int) {
		t.Helper()
		if err := unix.IoctlSetInt(fd, unix.TUNSETLINK, arphrd); err != nil {
			t.Fatal(err)
		}
	}
}

// openTun makes a device of /dev/net/tun, whose packets are those of the file.
func openTun(t *testing.T, name string, flags uint16) (fd int) {
	t.Helper()
	fd = openDriver(t, "/dev/net/tun")
	req := must2(unix.NewIfreq(name))
	req.SetUint16(flags | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Fatal(err)
	}
	return fd
}

// addPPP makes a PPP device that lives until the test ends.
func addPPP(t *testing.T, name string) {
	t.Helper()
	fd := openDriver(t, "/dev/ppp")
	unit := must2(unix.IoctlGetInt(fd, unix.PPPIOCNEWUNIT))
	l := must2(netlink.LinkByName("ppp" + strconv.Itoa(unit)))
	if err := netlink.LinkSetName(l, name); err != nil {
		t.Fatal(err)
	}
}

// deviceKinds are all kinds of device that policies may be put on, or may not.
//
//	dk0  the device
//	lv0  what it stands on, if it stands on one (newTestNet)
var deviceKinds = []struct {
	name    string
	make    func(t *testing.T, a netlink.LinkAttrs, under int)
	refused string // in the message; "" for those whose packets begin with Ethernet or IP
}{
	{"veth", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Veth{LinkAttrs: a, PeerName: "dk1"})
	}, ""},
	{"bridge", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Bridge{LinkAttrs: a})
	}, ""},
	{"bond", func(t *testing.T, a netlink.LinkAttrs, _ int) { addLink(t, netlink.NewLinkBond(a)) },
		""},
	{"dummy", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Dummy{LinkAttrs: a})
	}, ""},
	{"ifb", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Ifb{LinkAttrs: a})
	}, ""},
	{"vlan", func(t *testing.T, a netlink.LinkAttrs, under int) {
		a.ParentIndex = under
		addLink(t, &netlink.Vlan{LinkAttrs: a, VlanId: 7,
			VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	}, ""},
	{"macvlan", func(t *testing.T, a netlink.LinkAttrs, under int) {
		a.ParentIndex = under
		addLink(t, &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE})
	}, ""},
	{"macvtap", func(t *testing.T, a netlink.LinkAttrs, under int) {
		a.ParentIndex = under
		addLink(t,
			&netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: a,
				Mode: netlink.MACVLAN_MODE_BRIDGE}})
	}, ""},
	{"ipvlan", func(t *testing.T, a netlink.LinkAttrs, under int) {
		a.ParentIndex = under
		addLink(t, &netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2})
	}, ""},
	{"vxlan", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Vxlan{LinkAttrs: a, VxlanId: 7, SrcAddr: here4, Port: 4789})
	}, ""},
	{"geneve", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Geneve{LinkAttrs: a, ID: 7, Remote: there4, Dport: 6081})
	}, ""},
	{"gretap", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Gretap{LinkAttrs: a, Local: here4, Remote: there4})
	}, ""},
	{"tap", func(t *testing.T, _ netlink.LinkAttrs, _ int) { addTun(t, "dk0", unix.IFF_TAP) }, ""},

	{"tun", func(t *testing.T, _ netlink.LinkAttrs, _ int) { addTun(t, "dk0", unix.IFF_TUN) }, ""},
	{"tun that calls itself Ethernet", func(t *testing.T, _ netlink.LinkAttrs, _ int) {
		addTun(t, "dk0", unix.IFF_TUN)(unix.ARPHRD_ETHER)
	}, ""},
	{"tap that calls itself none", func(t *testing.T, _ netlink.LinkAttrs, _ int) {
		addTun(t, "dk0", unix.IFF_TAP)(unix.ARPHRD_NONE)
	}, "a tap device (link type none)"},
	{"wireguard", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Wireguard{LinkAttrs: a})
	}, ""},
	{"gre", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Gretun{LinkAttrs: a, Local: here4, Remote: there4})
	}, ""},
	{"gre without a remote", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Gretun{LinkAttrs: a, Local: here4})
	}, "a GRE tunnel (link type gre)"},
	{"ip6gre", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Gretun{LinkAttrs: a, Local: here6, Remote: there6})
	}, ""},
	{"ipip", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Iptun{LinkAttrs: a, Local: here4, Remote: there4})
	}, ""},
	{"ip6tnl", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Ip6tnl{LinkAttrs: a, Local: here6, Remote: there6})
	}, ""},
	{"sit", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Sittun{LinkAttrs: a, Local: here4, Remote: there4})
	}, ""},
	{"vti", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Vti{LinkAttrs: a, Local: here4, Remote: there4})
	}, "an IPsec tunnel (link type ipip)"},
	{"xfrm", func(t *testing.T, a netlink.LinkAttrs, _ int) {
		addLink(t, &netlink.Xfrmi{LinkAttrs: a, Ifid: 7})
	}, "an IPsec tunnel (link type none)"},
	{"ppp", func(t *testing.T, a netlink.LinkAttrs, _ int) { addPPP(t, a.Name) }, ""},
}

var (
	here4, there4 = net.IPv4(192, 0, 2, 1).To4(), net.IPv4(192, 0, 2, 2).To4()
	here6, there6 = net.ParseIP("2001:db8::1"), net.ParseIP("2001:db8::2")
)

// Programs look for an Ethernet or an IP header at the first byte. Where packets have neither, any
// verdict is wrong: no mode, no trial and no `on error` may put a policy there.
func TestDevicesThatBeginWithSomethingElseAreRefused(t *testing.T) {
	n := newTestNet(t)
	for _, k := range deviceKinds {
		n.run(t, k.name, func(t *testing.T) {
			a := netlink.NewLinkAttrs()
			a.Name = "dk0"
			k.make(t, a, must2(netlink.LinkByName("lv0")).Attrs().Index)
			if k.refused == "" {
				takesPolicy(t, "dk0")
				return
			}
			before := kernelObjects(t)
			for _, mode := range append(allModes(t), "", store.Auto) {
				for _, trial := range []time.Duration{0, time.Minute} {
					refusedLink(t, UpOptions{Dev: "dk0", Mode: mode, Confirm: trial}, k.refused)
				}
			}
			if err := nothingAdded(t, before); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
		})
	}
	n.run(t, "lo", func(t *testing.T) { takesPolicy(t, "lo") })
}

// takesPolicy puts a policy on a device in each mode that every device has, and in native XDP where
// the driver has it.
func takesPolicy(t *testing.T, dev string) {
	t.Helper()
	for _, mode := range append(allModes(t), store.Auto) {
		_, err := Up(t.Context(), UpOptions{Dev: dev, Mode: mode},
			compileHand(handPolicy("odd", action.Pass)))
		if mode == store.XDPNative && err != nil && strings.Contains(err.Error(), "native XDP") {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		if _, err := Down(t.Context(), dev); err != nil {
			t.Error(err)
		}
	}
}

// refusedLink wants a refusal in one line, before anything is compiled, that `on error` does not
// turn into a fallback.
func refusedLink(t *testing.T, o UpOptions, saying string) {
	t.Helper()
	fallback := compileHand(handPolicy("fallback", action.Pass))
	o.Fallbacks = fallbacks(fallback, fallback)
	r, err := Up(t.Context(), o, compileHand(handPolicy("odd", action.Pass)))
	if r != nil {
		t.Errorf("%q, trial %v: in force: %+v", o.Mode, o.Confirm, r)
		_, _ = Down(t.Context(), o.Dev)
		return
	}
	if !errors.Is(err, kernel.ErrRefused) || errors.Is(err, attach.ErrUnable) {
		t.Errorf("%q, trial %v: no refusal of the machine, or one that falls back: %v", o.Mode,
			o.Confirm, err)
	}
	for _, part := range []string{o.Dev + " is " + saying, "put the policy on"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q, trial %v: %q lacks %q", o.Mode, o.Confirm, err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
}

// A device may lose its Ethernet headers under a policy: a tap, or a bond that gets its first
// InfiniBand slave. No new policy comes, the old one can be taken off.
func TestReplaceIsRefusedOnceTheEthernetHeadersAreGone(t *testing.T) {
	n := newTestNet(t)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			retype := addTun(t, "dk0", unix.IFF_TAP)
			first := bring(t, "dk0", mode, named("old.levee", "odd"))
			retype(unix.ARPHRD_NONE)
			refusedLink(t, UpOptions{Dev: "dk0"}, "a tap device (link type none)")
			if a := status(t); a.Policy != "/etc/old.levee" || a.Program.ID != first.Program {
				t.Errorf("in force is %s, program %d", a.Policy, a.Program.ID)
			}
			if _, err := Down(t.Context(), "dk0"); err != nil {
				t.Error(err)
			}
			runDirIsGone(t)
		})
	}
}
