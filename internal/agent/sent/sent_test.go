package sent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/packet"
)

// alone says that other interfaces have no traffic.
func alone() (Traffic, bool) { return Traffic{}, true }

func refusing(resets, broken uint64, a astray, unreachables, connections uint64) Refusals {
	return Refusals{true, resets, broken, a, unreachables, connections, 0, 0}
}

func forwarding(r Refusals, packets uint64) Refusals {
	r.forwarded = packets
	return r
}

// TestWhatIsSentIsCountedFromTheSecondLookOn: one counter says nothing of a second.
func TestWhatIsSentIsCountedFromTheSecondLookOn(t *testing.T) {
	var s Counter
	now := time.Now()
	no := Refusals{Told: true}
	for i, look := range []struct {
		after   time.Duration
		packets uint64
		no      Refusals
		gone    bool // there is no such device
		rate    float64
		ok      bool
		what    string
	}{
		{0, 1000, no, false, 0, false, "the first time"},
		{2, 1500, no, false, 250, true, "the second time"},
		{3, 1700, refusing(40, 0, astray{}, 60, 0), false, 200, true,
			"100 refusals, beside traffic of others that nobody has looked at before"},
		{4, 1900, refusing(80, 0, astray{}, 120, 0), false, 100, true, "100 refusals more"},
		{5, 2000, no, false, 100, true, "refusals whose counter began anew"},
		{6, 2100, refusing(900, 0, astray{}, 0, 0), false, 100, true,
			"more than it has sent, at first"},
		{7, 2200, refusing(1900, 0, astray{}, 0, 0), false, 0, true, "more than it has sent"},
		{8, 2300, Refusals{}, false, 100, true, "refusals that nobody tells"},
		{9, 2400, refusing(1900, 0, astray{}, 0, 0), false, 100, true,
			"that were not told before"},
		{10, 10, no, false, 0, false, "a counter that began anew"},
		{11, 0, no, true, 0, false, "a device that is not there"},
	} {
		at := now.Add(look.after * time.Second)
		rate, ok := s.Second(at, look.packets, look.no, alone, !look.gone)
		if rate != look.rate || ok != look.ok {
			t.Errorf("%d, %s: %v, %v", i, look.what, rate, ok)
		}
	}
	if n, ok := Packets("lo"); !ok || n > 1<<62 {
		t.Errorf("of lo: %d, %v", n, ok)
	}
	if _, ok := Packets("no-such-device"); ok {
		t.Error("of no device")
	}
}

// TestACardThatCountsOnceASecondHasAnswers: four of five looks at its counter said that nobody
// answers, so that half of what is too much otherwise was. A machine that sends little is no such
// card.
func TestACardThatCountsOnceASecondHasAnswers(t *testing.T) {
	for _, c := range []struct {
		each, least uint64 // packets a second, and of what a look says at least
		said        int    // looks that say something
	}{{2000, 1900, 4}, {20, 0, 20}} {
		var s Counter
		begun := time.Now()
		s.Second(begun, 0, Refusals{}, alone, true)
		said, moved := 0, false
		for i := 1; i <= 20; i++ {
			at := begun.Add(time.Duration(i) * 200 * time.Millisecond)
			n := uint64(i/5) * c.each // what it has counted by then
			if rate, ok := s.Second(at, n, Refusals{}, alone, true); ok {
				said++
				if moved = moved || rate > 0; moved && uint64(rate) < c.least {
					t.Errorf("%d a second: look %d says %.0f", c.each, i, rate)
				}
			}
		}
		if said < c.said {
			t.Errorf("%d a second: %d looks say something", c.each, said)
		}
	}
}

// TestRefusalsAreNoAnswers: a flood to a closed port had a thousand answers a second of ICMP, and
// half of what is too much otherwise was not too much of it. The kernel's counters are read as it
// writes them.
func TestRefusalsAreNoAnswers(t *testing.T) {
	four := "Ip: Forwarding DefaultTTL ForwDatagrams\nIp: 1 64 70\n" +
		"Icmp: InMsgs OutMsgs OutDestUnreachs\nIcmp: 5 9 7\n" +
		"Tcp: MaxConn ActiveOpens EstabResets OutSegs InErrs OutRsts\nTcp: -1 40 60 900 2 11\n" +
		"Udp: InDatagrams NoPorts InErrors\nUdp: 90 6 4\n"
	six := "Ip6InReceives   \t12\nIcmp6OutDestUnreachs   \t3\nUdp6NoPorts \t1\nUdp6InErrors \t2\n" +
		"Ip6OutForwDatagrams \t5\n"
	more := "TcpExt: DelayedACKLost TCPSYNChallenge TCPACKSkippedPAWS TCPACKSkippedSeq " +
		"TCPACKSkippedChallenge BeyondWindow\nTcpExt: 7 4 2 3 10 5\nIpExt: InNoRoutes\nIpExt: 9\n"
	if got := refusalsOf(four, six, more); got != (Refusals{true, 11, 2, astray{7, 11, 5},
		10, 100, 13, 75}) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "Tcp:\nTcp:\n", "Tcp: OutRsts\n", "Tcp: OutRsts\nTcp: x\n",
		"Tcp: A OutRsts\nTcp: 1\n", "Tcp: InErrs OutRsts\nTcp: 1 2\n"} {
		if got := refusalsOf(text, "", text); got.Told {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := Here(); !got.Told {
		t.Errorf("of this machine: %+v", got)
	}
}

// TestRefusalsOfOthersAreNotOfThisInterface: refusals were counted by namespace. Each packet that
// another interface has received may be one that was refused, and each that it has sent a refusal.
func TestRefusalsOfOthersAreNotOfThisInterface(t *testing.T) {
	var r Refused
	now := time.Now()
	asked := 0
	for i, look := range []struct {
		no                 Refusals
		others             Traffic
		unknown            bool
		segments, refusing uint64
		asks               bool
	}{
		{no: refusing(100, 5, astray{}, 0, 0), asks: true},
		{no: refusing(180, 25, astray{}, 300, 0), segments: 100, refusing: 380, asks: true},
		{no: refusing(280, 25, astray{}, 300, 0), others: Traffic{60, 30, 0}, segments: 40,
			refusing: 70, asks: true},
		{no: refusing(380, 25, astray{}, 300, 0), others: Traffic{1060, 1030, 0}, asks: true},
		{no: refusing(390, 25, astray{}, 300, 0), others: Traffic{1060, 1030, 0}}, // few
		{no: refusing(490, 25, astray{}, 300, 0), asks: true},
		{no: refusing(590, 25, astray{}, 300, 0), unknown: true, asks: true},
		{no: refusing(690, 25, astray{}, 300, 0), asks: true},
		{no: refusing(790, 25, astray{}, 300, 0), segments: 100, refusing: 100, asks: true},
		{},
		{no: refusing(990, 25, astray{}, 300, 0), asks: true},
		{no: refusing(1090, 25, astray{}, 300, 10), others: Traffic{0, 0, 100}, segments: 80,
			refusing: 50, asks: true},
		{no: refusing(1190, 25, astray{}, 300, 110), others: Traffic{10, 20, 200},
			segments: 40, refusing: 30, asks: true},
		// one has gone
		{no: refusing(1290, 25, astray{}, 300, 110), others: Traffic{10, 20, 10}, asks: true},
		{no: refusing(1290, 25, astray{30, 900, 400}, 300, 110), asks: true},
		{no: refusing(1290, 25, astray{60, 950, 520}, 300, 110), segments: 150, asks: true},
		// Containers: of 10,000 packets that came by others or left by them 9,950 are forwarded.
		{no: forwarding(refusing(2290, 25, astray{60, 950, 520}, 1300, 110), 9950),
			others: Traffic{6000, 4000, 0}, segments: 950, refusing: 1950, asks: true},
	} {
		before := asked
		segments, refusing := r.Since(now, look.no, func() (Traffic, bool) {
			asked++
			return look.others, !look.unknown
		})
		if segments != look.segments || refusing != look.refusing || asked > before != look.asks {
			t.Errorf("the look %d: %d segments, %d refusals, looked at others: %t", i+1, segments,
				refusing, asked > before)
		}
	}
}

// TestTheKernelCountsForgedSegments: segments to an open connection of a client, by somebody who
// knows all but its numbers, were no flood at any rate, as no flow of them is new.
func TestTheKernelCountsForgedSegments(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan error, 1)
	go func() { // the thread is in its own network namespace, and ends with this goroutine
		runtime.LockOSThread()
		done <- forgedSegmentsAreCounted()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func forgedSegmentsAreCounted() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return err
	}
	here := [4]byte{127, 0, 0, 1}
	sockets := make([]int, 3)
	for i, of := range [][2]int{{unix.SOCK_STREAM, 0}, {unix.SOCK_STREAM, 0},
		{unix.SOCK_RAW, unix.IPPROTO_RAW}} {
		if sockets[i], err = unix.Socket(unix.AF_INET, of[0]|unix.SOCK_CLOEXEC, of[1]); err != nil {
			return err
		}
		defer unix.Close(sockets[i])
	}
	if err = errors.Join(unix.Bind(sockets[0], &unix.SockaddrInet4{Port: 8080, Addr: here}),
		unix.Listen(sockets[0], 1),
		unix.Bind(sockets[1], &unix.SockaddrInet4{Port: 40_000, Addr: here}),
		unix.Connect(sockets[1], &unix.SockaddrInet4{Port: 8080, Addr: here})); err != nil {
		return err
	}
	const each = 200
	r := rand.New(rand.NewPCG(7, 39))
	for _, data := range []int{0, 100} {
		before := Here()
		for range each {
			payload := make([]byte, data)
			for i := range payload {
				payload[i] = byte(r.Uint32())
			}
			b, err := packet.Build(packet.Spec{From: netip.AddrFrom4(here),
				To: netip.AddrFrom4(here), FromPort: new(uint16(40_000)),
				ToPort: new(uint16(8080)), Flags: new(uint8(packet.ACK)), Payload: payload,
				Fields: []packet.FieldValue{{Word: "seq", Value: uint64(r.Uint32())},
					{Word: "ack-number", Value: uint64(r.Uint32())}}})
			if err == nil {
				err = unix.Sendto(sockets[2], b[14:], 0, &unix.SockaddrInet4{Addr: here})
			}
			if err != nil {
				return err
			}
		}
		var counted uint64
		// Kernels before 6.18 may not tell of data beyond the window, which half of it is.
		if !await.Until(func() bool {
			counted = Here().astray.since(before.astray)
			return counted >= each*2/5
		}) {
			return fmt.Errorf("%d of %d segments with %d bytes are counted", counted, each, data)
		}
	}
	return nil
}

// TestTrafficElsewhere has each packet once: those of a bond are of its parts, those of a VLAN of
// what it is on. Those of the loopback are apart.
func TestTrafficElsewhere(t *testing.T) {
	var links []netlink.Link
	add := func(name string, master int, packets uint64, l netlink.Link) {
		*l.Attrs() = netlink.LinkAttrs{Name: name, Index: len(links) + 1, MasterIndex: master,
			Statistics: &netlink.LinkStatistics{RxPackets: packets, TxPackets: 2 * packets}}
		links = append(links, l)
	}
	add("lo", 0, 1, &netlink.Device{})
	links[0].Attrs().Flags = net.FlagLoopback
	add("eth0", 4, 10, &netlink.Device{})
	add("eth1", 4, 100, &netlink.Device{})
	add("bond0", 6, 110, &netlink.Bond{})
	add("bond0.7", 0, 30, &netlink.Vlan{})
	add("br0", 0, 1070, &netlink.Bridge{})
	add("tap0", 6, 1000, &netlink.Tuntap{})
	add("tun0", 0, 10_000, &netlink.Tuntap{})
	for dev, want := range map[string]uint64{"lo": 11_110, "eth0": 11_100, "bond0": 11_000,
		"bond0.7": 11_080, "br0": 10_040, "tun0": 1110} {
		loop := uint64(1)
		if dev == "lo" {
			loop = 0
		}
		if got, ok := elsewhere(links, dev); !ok || got != (Traffic{want, 2 * want, loop}) {
			t.Errorf("%s: %+v, %v; want %d", dev, got, ok, want)
		}
	}
	if _, ok := elsewhere(links, "eth9"); ok {
		t.Error("of no device")
	}
	if _, ok := Elsewhere("lo"); !ok {
		t.Error("of lo")
	}
}

// TestNobodyHereTakesWhatIsForwarded: a flood of few flows to a container, from hosts that have a
// connection with this machine, was a test of the line.
func TestNobodyHereTakesWhatIsForwarded(t *testing.T) {
	now := time.Unix(1e9, 0)
	u := Unwanted{now, Refusals{Told: true, Unwanted: 5, forwarded: 1000}}
	no := Refusals{Told: true, Unwanted: 25, forwarded: 61_000}
	if got := u.Second(now.Add(2*time.Second), no); got != 30_010 {
		t.Errorf("%.0f a second are not wanted, want 30010", got)
	}
}
