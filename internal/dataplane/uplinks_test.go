package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/packet"
)

// twoUplinks is a host whose packets come by one interface and leave by another:
//
//	                here                                peer
//	+--------------------------------+   +--------------------------------+
//	| lv0 198.51.100.1/24            |===| lv1 198.51.100.2/24            |
//	| up0 203.0.113.1/24, default by |===| up1 203.0.113.2/24             |
//	|                                |   | lo 192.0.2.9, by lv1 to here   |
//	+--------------------------------+   +--------------------------------+
//
// What 192.0.2.9 sends to 198.51.100.1 comes by lv0, and answers leave by up0.
type twoUplinks struct {
	*testNet
	devs []string
	far  [2]int // indexes of their other ends
}

const (
	uplinkHere = "198.51.100.1"
	uplinkFar  = "192.0.2.9"
)

func newTwoUplinks(t testing.TB) *twoUplinks {
	t.Helper()
	n := &twoUplinks{testNet: newTestNet(t), devs: []string{"lv0", "up0"}}
	addVeth(t, "up0", "up1", n.peer)
	for _, ns := range []netns.NsHandle{n.here, n.peer} {
		in(t, ns, func() (any, error) {
			for _, dev := range []string{"all", "default"} {
				if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"),
					0); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
	}
	giveAddress(t, n.here, "lv0", uplinkHere+"/24")
	giveAddress(t, n.here, "up0", "203.0.113.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	giveAddress(t, n.peer, "up1", "203.0.113.2/24")
	giveAddress(t, n.peer, "lo", uplinkFar+"/32")
	for _, dev := range []string{"up1", "lo"} {
		run(t, n.peer, "", "ip", "link", "set", dev, "up")
	}
	for i, dev := range []string{"lv1", "up1"} {
		n.far[i] = in(t, n.peer, func() (int, error) {
			l, err := netlink.LinkByName(dev)
			if err != nil {
				return 0, err
			}
			return l.Attrs().Index, nil
		})
	}
	run(t, n.here, "", "ip", "route", "add", "default", "via", "203.0.113.2", "src", uplinkHere)
	run(t, n.peer, "", "ip", "route", "change", "198.51.100.0/24", "dev", "lv1", "src", uplinkFar)
	return n
}

// bring puts a policy into force on interfaces, as one.
func (n *twoUplinks) bring(t testing.TB, text string, confirm time.Duration) error {
	t.Helper()
	return n.bringOn(n.devs, n.devs, text, confirm)
}

// bringOn puts a policy of some names into force on interfaces.
func (n *twoUplinks) bringOn(devs, names []string, text string, confirm time.Duration) error {
	_, err := UpAll(context.Background(), devs, UpOptions{Names: names, Confirm: confirm,
		PolicyPath: "/etc/test.levee", Source: []byte(text)}, compileText(text))
	return err
}

// reaches connects to a server at the other end, and says whether it is heard.
func reaches(t testing.TB, ns netns.NsHandle, from, to string) error {
	t.Helper()
	return in(t, ns, func() (error, error) {
		d := net.Dialer{Timeout: hangs}
		if from != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		}
		c, err := d.Dial("tcp", to)
		if err != nil {
			return err, nil
		}
		defer c.Close()
		return speaks(c), nil
	})
}

const uplinkPolicy = `pass established as "known"
pass tcp syn port 22 as "ssh"
default drop
`

// TestSessionsByTwoUplinksTimeOut: a session whose packets come by one interface of a policy and
// leave by another is known, whoever began it.
func TestSessionsByTwoUplinksTimeOut(t *testing.T) {
	n := newTwoUplinks(t)
	echoServer(t, n.here, uplinkHere+":22")
	echoServer(t, n.peer, uplinkFar+":9001")
	n.atEachHook(t, uplinkPolicy, func(t *testing.T) {
		if err := reaches(t, n.peer, uplinkFar, uplinkHere+":22"); err != nil {
			t.Errorf("a session that comes by one and is answered by the other: %v", err)
		}
		if err := reaches(t, n.here, "", uplinkFar+":9001"); err != nil {
			t.Errorf("a session that leaves by one and is answered by the other: %v", err)
		}
	})
}

// atEachHook has a policy on both interfaces, as one, at each hook.
func (n *twoUplinks) atEachHook(t *testing.T, text string, do func(t *testing.T)) {
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			o := UpOptions{Names: n.devs, Mode: mode, PolicyPath: "/etc/test.levee",
				Source: []byte(text)}
			if _, err := UpAll(t.Context(), n.devs, o, compileText(text)); err != nil {
				t.Fatal(err)
			}
			do(t)
			for _, dev := range n.devs {
				if _, err := Down(t.Context(), dev); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// sendBy sends a frame to one of the interfaces.
func (n *twoUplinks) sendBy(t testing.TB, dev int, f []byte) {
	t.Helper()
	if err := unix.Sendto(n.tx, f, 0, &unix.SockaddrLinklayer{Ifindex: n.far[dev]}); err != nil {
		t.Fatal(err)
	}
}

// total returns the packets that slots of an identity or label have counted on all interfaces.
func total(t testing.TB, id string) (sum uint64) {
	t.Helper()
	for _, a := range must(inspect.Status(context.Background(), false)) {
		sum += packets(&a, id)
	}
	return sum
}

// wantTotal waits until they have counted exactly so many packets.
func wantTotal(t *testing.T, id string, want uint64) {
	t.Helper()
	await.OK(t, func() error {
		if got := total(t, id); got != want {
			return fmt.Errorf("%s counted %d packets on all interfaces, want %d", id, got, want)
		}
		return nil
	})
}

// TestDatagramsWhoseFragmentsComeByTwoUplinksAreLost: later fragments share the fate of a first
// that came by another interface of the policy.
func TestDatagramsWhoseFragmentsComeByTwoUplinksAreLost(t *testing.T) {
	n := newTwoUplinks(t)
	giveAddress(t, n.here, "lv0", "198.51.100.7/24") // where moreOf goes
	server := in(t, n.here, func() (net.PacketConn, error) {
		return net.ListenPacket("udp4", "198.51.100.7:53")
	})
	defer server.Close()
	n.atEachHook(t, "fragments track\npass udp port 53\ndefault drop\n", func(t *testing.T) {
		n.inFragments(t, server, 1000)
	})
}

// inFragments has so many datagrams come in two fragments, by turns the first by one interface and
// by the other.
func (n *twoUplinks) inFragments(t *testing.T, server net.PacketConn, datagrams int) {
	for i := range datagrams {
		first, last := moreOf(t, 53, 0, 48), moreOf(t, 53, 48, 408)
		last[14+6] &^= 0x20 // no more
		for _, f := range [][]byte{first, last} {
			binary.BigEndian.PutUint16(f[14+4:], uint16(i))
			copy(f, "\xff\xff\xff\xff\xff\xff") // both interfaces take it
			f[14+10], f[14+11] = 0, 0
			binary.BigEndian.PutUint16(f[14+10:], ^checksum(f[14:34]))
		}
		n.sendBy(t, i%2, first)
		n.sendBy(t, 1-i%2, last)
		if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReadFrom(make([]byte, 500)); err != nil {
			t.Fatalf("datagram %d: %v", i, err)
		}
	}
	// With a memory of each interface they passed as ahead of their first, within a budget.
	all, _, err := inspect.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	told := false
	for _, a := range all {
		if is := a.Fragments; is != nil {
			told = true
			if is.Ahead+is.Refused+is.Evicted > 0 {
				t.Errorf("fragments on %s: %+v", a.Dev, is)
			}
		}
	}
	if !told {
		t.Error("nobody tells of fragments")
	}
}

// TestALimitIsPaidOnEachUplink: a limit is of the policy. Who has two ways to it gets no more.
func TestALimitIsPaidOnEachUplink(t *testing.T) {
	n := newTwoUplinks(t)
	if err := n.bring(t, "limit udp port 53 rate 1/h burst 10 by source as \"limited\"\n"+
		"pass udp port 53 as \"paid\"\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		n.sendBy(t, i%2, n.query(t))
	}
	wantTotal(t, "limited", 30)
	wantTotal(t, "paid", 10)
}

// query is a datagram to port 53.
func (n *twoUplinks) query(t *testing.T) []byte {
	t.Helper()
	f, err := packet.Build(packet.Spec{From: netip.MustParseAddr(uplinkFar),
		To: netip.MustParseAddr(uplinkHere), FromPort: new(uint16(5000)), ToPort: new(uint16(53))})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAnswersByTheOtherUplinkEndConnections: of ten thousand that leave by one interface, answers
// that come by the other are known, also after a replace.
func TestAnswersByTheOtherUplinkEndConnections(t *testing.T) {
	n := newTwoUplinks(t)
	const all = 10_000
	up := func(comment string) {
		t.Helper()
		text := "pass udp established as \"known\"\ndefault drop\n" + comment
		if err := n.bring(t, text, 0); err != nil {
			t.Fatal(err)
		}
	}
	datagram := func(i int, comes bool) []byte {
		s := packet.Spec{From: netip.MustParseAddr(uplinkHere), FromPort: new(uint16(1000 + i)),
			To: netip.MustParseAddr(uplinkFar), ToPort: new(uint16(53)),
			Proto: new(uint8(packet.ProtoUDP))}
		if comes {
			s.From, s.FromPort, s.To, s.ToPort = s.To, s.ToPort, s.From, s.FromPort
		}
		f, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	up("")
	out, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	up0, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if i == all/2 {
			up("# a replace\n")
		}
		to := &unix.SockaddrLinklayer{Ifindex: up0.Attrs().Index}
		if err := unix.Sendto(out, datagram(i, false), 0, to); err != nil {
			t.Fatal(err)
		}
	}
	up("# another\n")
	before := total(t, "known")
	for i := range all {
		n.sendBy(t, 0, datagram(i, true))
	}
	wantTotal(t, "known", before+all)
}
