package local

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/host/hosttest"
)

// enter moves the test to a new network namespace with devices.
func enter(t *testing.T) {
	t.Helper()
	hosttest.Enter(t)
	for _, c := range []string{"link add eth0 type veth peer name far0", "link set far0 up",
		"link set eth0 up", "link set lo up",
		"addr add 192.0.2.1/24 brd + dev eth0", "addr add 2001:db8::1/64 dev eth0 nodad"} {
		ip(t, c)
	}
}

func ip(t *testing.T, command string) {
	t.Helper()
	if b, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", command, err, b)
	}
}

func has(t *testing.T, prefix string) bool {
	t.Helper()
	all, err := Prefixes()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(all, netip.MustParsePrefix(prefix))
}

// TestWhatRoutesDeliverIsOfThisMachine: the routes were not looked at, and what came to their
// destinations reached every port of the machine as if it were forwarded.
func TestWhatRoutesDeliverIsOfThisMachine(t *testing.T) {
	enter(t)
	for _, p := range []string{"192.0.2.1/32", "2001:db8::1/128", "192.0.2.255/32", "127.0.0.0/8",
		"255.255.255.255/32"} {
		if !has(t, p) {
			t.Errorf("%s is not of this machine", p)
		}
	}
	for _, p := range []string{"127.0.0.1/32", "::1/128", "192.0.2.0/24", "ff00::/8"} {
		if has(t, p) {
			t.Errorf("%s is of this machine", p)
		}
	}
	for _, c := range []struct {
		name, want string
		commands   []string
	}{
		{"table local", "198.51.100.0/24", []string{"route add local 198.51.100.0/24 dev eth0"}},
		{"IPv6", "64:ff9b::/96", []string{"-6 route add local 64:ff9b::/96 dev lo"}},
		{"anycast", "2001:db8:a::/128", []string{"-6 route add anycast 2001:db8:a::/128 dev eth0"}},
		{"another broadcast address", "203.0.113.0/32",
			[]string{"route add broadcast 203.0.113.0 dev eth0 table local"}},
		{"the main table", "198.51.101.1/32",
			[]string{"route add local 198.51.101.1 dev eth0 table main"}},
		{"a table of a rule", "198.51.102.0/24", []string{"rule add iif eth0 lookup 1000",
			"route add local 198.51.102.0/24 dev lo table 1000"}},
		{"a rule of a destination", "198.51.103.0/25", []string{
			"rule add to 198.51.103.0/25 lookup 1001",
			"route add local default dev lo table 1001"}},
		{"a rule of all but a mark", "198.51.104.0/24", []string{
			"rule add not fwmark 7 lookup 1002",
			"route add local 198.51.104.0/24 dev lo table 1002"}},
	} {
		for _, command := range c.commands {
			ip(t, command)
		}
		if !has(t, c.want) {
			t.Errorf("%s: %s is not of this machine", c.name, c.want)
		}
	}
	// What no rule reaches, what is but proxied, and what is dropped.
	for _, c := range []string{"route add local 198.51.105.0/24 dev lo table 2000",
		"rule add fwmark 1 lookup 2001", "route add local default dev lo table 2001",
		"rule add iif eth0 ipproto 6 dport 80 lookup 2001",
		"route add blackhole 198.51.106.0/24"} {
		ip(t, c)
	}
	for _, p := range []string{"198.51.105.0/24", "0.0.0.0/0", "198.51.106.0/24"} {
		if has(t, p) {
			t.Errorf("%s is of this machine", p)
		}
	}
}

// TestWhatAVRFDeliversIsOfThisMachine: routes of a VRF are in a table of its own.
func TestWhatAVRFDeliversIsOfThisMachine(t *testing.T) {
	enter(t)
	b, err := exec.Command("ip", strings.Fields("link add red type vrf table 10")...).
		CombinedOutput()
	if strings.Contains(string(b), "Unknown device type") {
		t.Skipf("a kernel with VRFs is not at hand: %s", b)
	}
	if err != nil {
		t.Fatalf("make a VRF: %v: %s", err, b)
	}
	for _, c := range []string{"link set red up", "link set eth0 master red",
		"route add local 198.51.100.0/24 dev eth0 table 10"} {
		ip(t, c)
	}
	if !has(t, "198.51.100.0/24") || !has(t, "192.0.2.1/32") {
		t.Error("what the VRF delivers is not of this machine")
	}
}

// TestAChangeOfWhatIsDeliveredIsTold.
func TestAChangeOfWhatIsDeliveredIsTold(t *testing.T) {
	enter(t)
	changes, err := Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := func(command string) {
		t.Helper()
		ip(t, command)
		select {
		case _, ok := <-changes:
			if !ok {
				t.Fatalf("%s: the channel is closed", command)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was not told", command)
		}
	}
	for _, command := range []string{"route add local 198.51.100.0/24 dev eth0",
		"route del local 198.51.100.0/24 dev eth0", "-6 route add local 2001:db8:1::/64 dev lo",
		"addr add 192.0.2.2/32 dev lo", "rule add to 198.51.100.1 lookup 1000",
		"route add local default dev lo table 1000", "-6 rule add from all lookup 1000",
		"route add local 198.51.101.0/24 dev eth0",
		"route replace unicast 198.51.101.0/24 dev eth0 table local",
		"link set eth0 down"} {
		told(command)
		for settled := false; !settled; { // one command may be several messages
			select {
			case <-changes:
			case <-time.After(20 * time.Millisecond):
				settled = true
			}
		}
	}
}

// TestOtherRoutesAreNotTold: a router may learn a million of them.
func TestOtherRoutesAreNotTold(t *testing.T) {
	enter(t)
	sock, err := subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	for _, c := range []string{"route add 203.0.113.0/24 dev eth0",
		"route replace 203.0.113.0/24 dev far0", "-6 route add 2001:db8:2::/64 dev eth0",
		"route del 203.0.113.0/24", "route add local 198.51.100.0/24 dev eth0"} {
		ip(t, c)
	}
	for {
		all, _, err := sock.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			switch m.Header.Type {
			case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
				route := nl.DeserializeRtMsg(m.Data)
				if route.Table != unix.RT_TABLE_LOCAL {
					t.Errorf("a route of type %d in table %d was told", route.Type, route.Table)
				}
				if route.Family == unix.AF_INET && route.Dst_len == 24 {
					return
				}
			}
		}
	}
}
