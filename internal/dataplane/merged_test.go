package dataplane

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/host/card"
)

// inPeer runs f in the namespace at the other end.
func (n *testNet) inPeer(t testing.TB, f func()) {
	t.Helper()
	if err := netns.Set(n.peer); err != nil {
		t.Fatal(err)
	}
	f()
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
}

// bigTCP lets a device hand on packets of more than 64 KiB.
func bigTCP(t testing.TB, dev string) {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []func(netlink.Link, int) error{
		netlink.LinkSetGSOMaxSize, netlink.LinkSetGROMaxSize,
		netlink.LinkSetGSOIPv4MaxSize, netlink.LinkSetGROIPv4MaxSize,
	} {
		if err := set(l, 180000); err != nil {
			t.Fatal(err)
		}
	}
}

// allowIPv6 takes back what newTestNet forbids.
func allowIPv6(t testing.TB, dev string) {
	t.Helper()
	file := "/proc/sys/net/ipv6/conf/" + dev + "/disable_ipv6"
	if err := os.WriteFile(file, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
}

// ip runs commands of ip(8) in this thread's namespace.
func ip(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
}

// received returns the number of bytes that a bulk TCP transfer from the other end brings within a
// time.
func (n *testNet) received(t *testing.T, to string, most int, within time.Duration) int {
	t.Helper()
	l, err := net.Listen("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan error, 1)
	n.inPeer(t, func() {
		c, err := net.DialTimeout("tcp", to, within)
		if err != nil {
			sent <- err
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(within))
			_, err := c.Write(make([]byte, most))
			sent <- err
		}()
	})
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		return 0
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	got, _ := io.Copy(io.Discard, c)
	<-sent
	return int(got)
}

// TestMergedPacketsAreJudgedAsTheyWereSent: at tc a policy that drops what is longer than any
// packet on the wire stopped bulk transfers, and BIG TCP was malformed.
func TestMergedPacketsAreJudgedAsTheyWereSent(t *testing.T) {
	n := newTestNet(t)
	allowIPv6(t, "lv0")
	ip(t, "addr add 10.77.0.1/24 dev lv0", "addr add fd77::1/64 dev lv0 nodad")
	n.inPeer(t, func() {
		allowIPv6(t, "lv1")
		ip(t, "addr add 10.77.0.2/24 dev lv1", "addr add fd77::2/64 dev lv1 nodad")
	})
	n.run(t, "all", func(t *testing.T) {
		for _, c := range []struct {
			name, policy string
			big          bool
			passes       bool
		}{
			{"above the MTU", "drop len > 1500\ndefault pass\n", false, true},
			{"a full segment", "drop tcp len 1500\ndefault pass\n", false, false},
			{"BIG TCP", "drop len > 1500\ndrop malformed\ndefault pass\n", true, true},
		} {
			for _, to := range []string{"10.77.0.1:7007", "[fd77::1]:7007"} {
				if c.big {
					bigTCP(t, "lv0")
					n.inPeer(t, func() { bigTCP(t, "lv1") })
				}
				if err := bringPolicyAt(t, "lv0", tcModes(t)[0], c.policy, 0); err != nil {
					t.Fatal(err)
				}
				const most = 20 << 20
				within := hangs
				if !c.passes {
					within = time.Second
				}
				begin := time.Now()
				got := n.received(t, to, most, within)
				t.Logf("%s, to %s: %d bytes, %.1f Mbit/s", c.name, to, got,
					float64(got)*8e-6/time.Since(begin).Seconds())
				if (got == most) != c.passes {
					t.Errorf("%s, to %s: %d of %d bytes came", c.name, to, got, most)
				}
			}
		}
	})
}

// TestALimitHoldsForBulkTransfers: at tc 58 MB came through a limit of 200/s.
func TestALimitHoldsForBulkTransfers(t *testing.T) {
	n := newTestNet(t)
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	n.inPeer(t, func() { ip(t, "addr add 10.77.0.2/24 dev lv1") })
	for _, mode := range tcModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const policy = "limit tcp rate 200/s burst 200\ndefault pass\n"
			if err := bringPolicyAt(t, "lv0", mode, policy, 0); err != nil {
				t.Fatal(err)
			}
			defer Down(t.Context(), "lv0")
			l, err := netlink.LinkByName("lv0")
			if err != nil {
				t.Fatal(err)
			}
			begin, got := time.Now(), 0
			await.True(t, "some bytes", func() bool { // a busy machine may take half a second
				got += n.received(t, "10.77.0.1:7007", 20<<20, 500*time.Millisecond)
				return got > 0
			})
			// of the burst, what the rate gives, and a tick
			packets := 200 + 200*(time.Since(begin)+10*time.Millisecond).Seconds()
			if most := int(packets * float64(l.Attrs().MTU)); got > most {
				t.Errorf("%d bytes came in %.0f packets of %d at most", got, packets,
					l.Attrs().MTU)
			}
		})
	}
}

// TestGenericXDPRefusesLengthsOfMergedPackets: it cannot know those on the wire.
func TestGenericXDPRefusesLengthsOfMergedPackets(t *testing.T) {
	newTestNet(t)
	e, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const text = "drop len > 1500\ndefault pass\n"
	if err := e.Change("lv0", map[string]bool{card.GRO: true}); err != nil {
		t.Fatal(err)
	}
	err = bringPolicyAt(t, "lv0", store.XDPGeneric, text, 0)
	const want = "generic XDP: it sees packets that lv0 has merged (GRO), and line 1 asks for " +
		"their " +
		"length: ethtool -K lv0 gro off"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err := bringPolicyAt(t, "lv0", store.XDPGeneric, "drop tcp port 9\ndefault pass\n",
		0); err != nil {
		t.Errorf("without lengths: %v", err)
	}
	if err := e.Change("lv0", map[string]bool{card.GRO: false}); err != nil {
		t.Fatal(err)
	}
	if err := bringPolicyAt(t, "lv0", store.XDPGeneric, text, 0); err != nil {
		t.Errorf("without GRO: %v", err)
	}
}

// TestNoQueryHidesBehindAnother: a packet stands for as many datagrams as its sender likes (udp(7),
// UDP_SEGMENT), of which rules see the first. Behind a query that says that it is signed, which
// nobody looks into, any other passed, and behind what says that it is a response. What a server
// answers, and a router merges, passes.
func TestNoQueryHidesBehindAnother(t *testing.T) {
	n := newTestNet(t)
	ip(t, "addr add 10.77.0.1/24 dev lv0")
	n.inPeer(t, func() { ip(t, "addr add 10.77.0.2/24 dev lv1") })
	message := func(flags string, records byte, name string) string {
		return "\x12\x34" + flags + "\x00\x01\x00\x00\x00\x00\x00" + string(records) +
			"\x04" + name + "\x07example\x00\x00\x01\x00\x01" +
			"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	}
	query := func(records byte, name string) string { return message("\x01\x00", records, name) }
	const rules = "%[1]sdrop udp dns malformed\n" +
		"%[1]sdrop udp port 53 dns name \"evil.example\"\n%[1]spass udp port 53\n" +
		"%[1]sdefault pass\n"
	text := fmt.Sprintf(rules, "") + fmt.Sprintf(rules, "out ")
	for _, mode := range tcModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			defer Down(t.Context(), "lv0")
			check := func(arrives bool) {
				to := "10.77.0.1:53"
				from, at := n.inPeer, func(_ testing.TB, f func()) { f() }
				if !arrives {
					to, from, at = "10.77.0.2:53", at, n.inPeer
				}
				var ends []net.PacketConn
				for _, to := range []string{to, to + "53"} {
					at(t, func() {
						end, err := net.ListenPacket("udp4", to)
						if err != nil {
							t.Fatal(err)
						}
						ends = append(ends, end)
					})
					defer ends[len(ends)-1].Close()
				}
				answer := message("\x81\x80", 2, "good")
				from(t, func() {
					evil := query(2, "evil")
					for _, first := range []string{query(2, "good"), answer} {
						for _, port := range []int{0, 53} {
							sendAsOne(t, port, to, len(evil), first+evil)
						}
					}
					sendAsOne(t, 0, to, len(evil), query(1, "good"))
					sendAsOne(t, 53, to+"53", len(answer), answer+answer)
				})
				for i, want := range []string{query(1, "good"), answer} {
					got := make([]byte, 512)
					err := ends[i].SetReadDeadline(time.Now().Add(time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					n, _, err := ends[i].ReadFrom(got)
					if err != nil || string(got[:n]) != want {
						t.Errorf("to %s came % x (%v), want % x", ends[i].LocalAddr(), got[:n], err,
							want)
					}
				}
			}
			check(true)
			check(false)
		})
	}
}

// sendAsOne sends datagrams of so many bytes in one packet, from a port, 0 for any.
func sendAsOne(t testing.TB, port int, to string, size int, all string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: port}}
	c, err := dialer.Dial("udp4", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if _, err = c.Write([]byte(all)); err != nil {
		t.Fatal(err)
	}
}
