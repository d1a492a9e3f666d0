package local

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// made makes a device, unless the kernel has none of its kind.
func made(t *testing.T, command string) bool {
	t.Helper()
	b, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil && !strings.Contains(string(b), "Unknown device type") {
		t.Fatalf("ip %s: %v: %s", command, err, b)
	}
	return err == nil
}

// moveUp brings a device up in another network namespace.
func moveUp(t *testing.T, dev string) {
	t.Helper()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	link, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	there, err := netns.New() // and goes there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, int(there)); err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	ip(t, "link set "+dev+" up")
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
}

// TestWhomAFrameIsFor: what stands on an interface has frames of its own, and ports of bridges have
// those of everybody.
func TestWhomAFrameIsFor(t *testing.T) {
	enter(t)
	mac := func(dev string) [6]byte {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			t.Fatal(err)
		}
		return [6]byte(i.HardwareAddr)
	}
	of := func(dev string) *Own {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			t.Fatal(err)
		}
		o, err := OwnOf(i.Index)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var want [][6]byte
	is := func(what, dev string) {
		t.Helper()
		if got := of(dev).MACs; !slices.Equal(got, want) {
			t.Errorf("%s: frames for %x, want %x", what, got, want)
		}
	}
	want = [][6]byte{mac("eth0")}
	is("alone", "eth0")
	if made(t, "link add link eth0 name vlan7 type vlan id 7") {
		is("a VLAN with the same address", "eth0")
		ip(t, "link set vlan7 address 02:00:00:00:00:07")
		want = append(want, mac("vlan7"))
		is("a VLAN with another", "eth0")
	}

	ip(t, "link add link eth0 name mv0 address 02:00:00:00:00:08 type macvlan")
	moveUp(t, "mv0")
	want = append(want, [6]byte{2, 0, 0, 0, 0, 8})
	is("a macvlan in another network namespace", "eth0")

	ip(t, "link add br0 type bridge")
	top := "far0"
	if made(t, "link add bond0 type bond") {
		ip(t, "link set far0 down")
		ip(t, "link set far0 master bond0")
		want, top = [][6]byte{mac("far0")}, "bond0"
		is("a port of a bond", "far0")
	}
	if made(t, "link add link "+top+" name on9 type vlan id 9") {
		top = "on9"
	}
	ip(t, "link set "+top+" master br0")
	want = nil
	is("the port of a bridge", top)
	is("what is below it", "far0")
	want = [][6]byte{mac("br0")}
	if mac("br0") != mac(top) {
		want = append(want, mac(top))
	}
	is("the bridge", "br0")

	ip(t, "link add pass0 type veth peer name pass1")
	ip(t, "link add link pass0 name through0 type macvlan mode passthru")
	want = nil
	is("a macvlan that passes all through", "pass0")
}

// TestWhatIsNoSingleHost: the broadcast addresses of networks are no hosts.
func TestWhatIsNoSingleHost(t *testing.T) {
	enter(t)
	ip(t, "addr add 203.0.113.1/25 brd + dev eth0")
	ip(t, "route add broadcast 203.0.113.200 dev eth0 table local")
	ip(t, "route add broadcast 203.0.113.201 dev eth0 table 4711") // that no rule reaches
	ip(t, "-6 route add anycast 2001:db8::77 dev eth0")
	got, err := none()
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(got, netip.Addr.IsLoopback)
	got = slices.DeleteFunc(got, netip.Addr.IsLinkLocalUnicast)
	var want []netip.Addr
	for _, a := range []string{"192.0.2.255", "203.0.113.127", "203.0.113.200", "2001:db8::77"} {
		want = append(want, netip.MustParseAddr(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
