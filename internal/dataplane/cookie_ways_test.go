package dataplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/lang/diag"
	"levee/internal/packet"
)

var transferred = flag.Int64("transfer", 64<<20,
	"bytes that TestATransferDuringAFlood sends each way")

// way is a path from a client to a listener.
type way struct{ name, from, to string }

// TestCookieWays: clients reach listeners behind the machine, by a route and by a published port.
func TestCookieWays(t *testing.T) {
	n := newTestNet(t)
	behind := newBehind(t, n)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	for i := range 4 {
		giveAddress(t, n.peer, "lv1", fmt.Sprintf("198.51.100.%d/24", 10+i))
	}
	run(t, n.peer, "", "ip", "route", "add", "10.77.0.0/24", "via", "198.51.100.1")
	run(t, n.here, `table ip published {
	chain to { type nat hook prerouting priority dstnat; iifname "lv0" tcp dport 8080 dnat to 10.77.0.2:9000; }
	chain from { type nat hook postrouting priority srcnat; ip saddr 10.77.0.0/24 masquerade; }
}
`, "nft", "-f", "-")
	for _, ns := range []netns.NsHandle{n.here, behind} {
		l := in(t, ns, func() (net.Listener, error) { return net.Listen("tcp", "0.0.0.0:9000") })
		serveEcho(l)
		defer l.Close()
	}
	connectEveryWay(t, n, way{"forwarded", "198.51.100.11", "10.77.0.2:9000"},
		way{"published", "198.51.100.12", "198.51.100.1:8080"})
}

// TestCookieOverATag: clients of a tagged network reach a listener, by a policy of the device
// below.
func TestCookieOverATag(t *testing.T) {
	n := newTestNet(t)
	for _, at := range []struct {
		ns        netns.NsHandle
		dev, addr string
	}{{n.peer, "lv1", "192.0.2.10/24"}, {n.here, "lv0", "192.0.2.1/24"}} {
		if err := netns.Set(at.ns); err != nil {
			t.Fatal(err)
		}
		under, err := netlink.LinkByName(at.dev)
		if err != nil {
			t.Fatal(err)
		}
		tagged := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "tagged",
			ParentIndex: under.Attrs().Index}, VlanId: 7,
			VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		addLink(t, tagged)
		if err := netlink.LinkSetUp(tagged); err != nil {
			t.Fatal(err)
		}
		giveAddress(t, at.ns, "tagged", at.addr)
	}
	l := in(t, n.here, func() (net.Listener, error) { return net.Listen("tcp", "0.0.0.0:9000") })
	serveEcho(l)
	defer l.Close()
	connectEveryWay(t, n, way{"tagged", "192.0.2.10", "192.0.2.1:9000"})
}

// connectEveryWay connects twice each way, from clients that are not proven yet.
func connectEveryWay(t *testing.T, n *testNet, ways ...way) {
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode,
				"cookie tcp port { 8080, 9000 }\ndefault pass\n", 0); err != nil {
				t.Fatal(err)
			}
			for i, way := range ways {
				for try := range 2 {
					again, err := connects(t, n.peer, way.from, way.to, false)
					if err != nil || again != againBy[try] {
						t.Errorf("%s, connection %d: %d SYNs were sent again, %v", way.name, try,
							again, err)
					}
				}
				if c := status(t).Cookies; c.Sources != i+1 {
					t.Errorf("%s: %d clients are proven, want %d", way.name, c.Sources, i+1)
				}
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// newBehind makes a namespace behind that of a test, which forwards to 10.77.0.2 in it.
func newBehind(t testing.TB, n *testNet) netns.NsHandle {
	t.Helper()
	behind, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { behind.Close() })
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
	addVeth(t, "lan0", "lan1", behind)
	run(t, behind, "", "ip", "link", "set", "lan1", "up")
	giveAddress(t, n.here, "lan0", "10.77.0.1/24")
	giveAddress(t, behind, "lan1", "10.77.0.2/24")
	run(t, behind, "", "ip", "route", "add", "default", "via", "10.77.0.1")
	in(t, n.here, func() (any, error) {
		return nil, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	})
	return behind
}

// run runs a program in a namespace.
func run(t testing.TB, ns netns.NsHandle, stdin, name string, args ...string) {
	t.Helper()
	in(t, ns, func() (any, error) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s %v: %w: %s", name, args, err, out)
		}
		return nil, nil
	})
}

// TestATransferDuringAFlood: what a client sends and gets over a connection that began during a
// flood of SYN arrives as it was.
func TestATransferDuringAFlood(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.10/24")
	// A server that takes what the client says, and says back what it took.
	l := in(t, n.here, func() (net.Listener, error) { return net.Listen("tcp", "0.0.0.0:9000") })
	defer l.Close()
	serveEcho(l)
	if err := bringPolicyAt(t, "lv0", tcModes(t)[0], "cookie tcp port 9000 above 100/s\n"+
		"limit tcp syn port 9000 rate 1000/s\ndefault pass\n", 0); err != nil {
		t.Fatal(err)
	}
	flood, stop := context.WithCancel(t.Context())
	flooded := make(chan int)
	mac := own(t, "lv0")
	go func() { flooded <- n.floodSYN(flood, mac) }()
	await.True(t, "cookies answer", func() bool {
		c := status(t).Cookies
		return c != nil && len(c.Answering) > 0
	})
	d := net.Dialer{Timeout: hangs}
	c := in(t, n.peer, func() (net.Conn, error) { return d.Dial("tcp", "198.51.100.1:9000") })
	defer c.Close()
	sent := sha256.New()
	done := make(chan error, 1)
	go func() {
		source := rand.NewChaCha8([32]byte{1})
		_, err := io.Copy(io.MultiWriter(c, sent), io.LimitReader(source, *transferred))
		done <- err
	}()
	got := sha256.New()
	if _, err := io.CopyN(got, c, *transferred); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	stop()
	frames := <-flooded
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("what came back is not what was sent")
	}
	cookies := status(t).Cookies
	if cookies.Proven == 0 || frames < 1000 {
		t.Errorf("%d SYNs of the flood, cookies: %+v", frames, cookies)
	}
	t.Logf("%d MiB each way, %d SYNs beside", *transferred>>20, frames)
}

// TestAClientOfBeforeAFloodProvesNothing: its handshake was seen, so its next SYN goes on at once.
// Who comes during the flood proves that he is there.
func TestAClientOfBeforeAFloodProvesNothing(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.10/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.11/24")
	enableIPv6(t, n)
	giveAddress(t, n.here, "lv0", "2001:db8:7::1/64")
	giveAddress(t, n.peer, "lv1", "2001:db8:7::10/64")
	giveAddress(t, n.peer, "lv1", "2001:db8:7::11/64")
	for network, addr := range map[string]string{"tcp4": "0.0.0.0:9000", "tcp6": "[::]:9000"} {
		l := in(t, n.here, func() (net.Listener, error) { return net.Listen(network, addr) })
		defer l.Close()
		serveEcho(l)
	}
	if err := bringPolicyAt(t, "lv0", tcModes(t)[0], "pass established\n"+
		"cookie tcp port 9000 above 100/s\nlimit tcp syn port 9000 rate 1000/s\ndefault pass\n",
		0); err != nil {
		t.Fatal(err)
	}
	come := func(last string, proofs uint64, sources int) {
		t.Helper()
		for _, net := range []string{"198.51.100.%s", "2001:db8:7::%s"} {
			if _, err := connects(t, n.peer, fmt.Sprintf(net, last),
				netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(net, "1")), 9000).String(),
				false); err != nil {
				t.Fatal(err)
			}
		}
		if c := status(t).Cookies; c == nil || c.Proven != proofs || c.Sources != sources {
			t.Errorf("with a client at .%s: %+v, want %d proofs of %d sources", last, c, proofs,
				sources)
		}
	}
	come("10", 0, 2)
	flood, stop := context.WithCancel(t.Context())
	flooded := make(chan int)
	mac := own(t, "lv0")
	go func() { flooded <- n.floodSYN(flood, mac) }()
	defer func() { stop(); <-flooded }()
	await.True(t, "cookies answer", func() bool { return len(status(t).Cookies.Answering) > 0 })
	come("10", 0, 2)
	come("11", 2, 4)
}

// A cookie without a rate answers at all times, and says so before the first SYN.
func TestACookieWithoutARateIsToldToAnswer(t *testing.T) {
	newTestNet(t)
	if err := bringPolicyAt(t, "lv0", tcModes(t)[0], "cookie tcp port 9000 as \"always\"\n"+
		"cookie tcp port 9001 above 100/s as \"above\"\ndefault pass\n", 0); err != nil {
		t.Fatal(err)
	}
	st := status(t)
	var labels []string
	for _, c := range st.Counters {
		if slices.Contains(st.Cookies.Answering, diag.Shown(c.Rule)) {
			labels = append(labels, c.Label)
		}
	}
	if !slices.Equal(labels, []string{"always"}) {
		t.Errorf("told to answer: %q, want that without a rate", labels)
	}
}

// floodSYN sends SYNs with forged sources from the other end of lv0, in frames for mac, until ctx
// ends: as many as a socket takes with a pause now and then. It says how many.
func (n *testNet) floodSYN(ctx context.Context, mac *[6]byte) (sent int) {
	to := unix.SockaddrLinklayer{Ifindex: n.txIndex, Halen: 6}
	for i := 0; ctx.Err() == nil; i++ {
		frame, err := packet.Build(packet.Spec{EtherTo: mac,
			Flags: new(uint8(packet.SYN)), To: netip.MustParseAddr("198.51.100.1"),
			From:     netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
			FromPort: new(uint16(1024 + i%60000)), ToPort: new(uint16(9000)),
		})
		if err != nil || unix.Sendto(n.tx, frame, 0, &to) != nil {
			return sent
		}
		sent++
		if i%64 == 0 {
			await.Pass(time.Millisecond, "some 20,000 a second")
		}
	}
	return sent
}
