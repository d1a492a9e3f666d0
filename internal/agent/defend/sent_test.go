package defend

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// alone says that other interfaces have no traffic.
func alone() (traffic, bool) { return traffic{}, true }

// TestWhatIsSentIsCountedFromTheSecondLookOn: one counter says nothing of a second.
func TestWhatIsSentIsCountedFromTheSecondLookOn(t *testing.T) {
	var s sent
	now := time.Now()
	no := refusals{told: true}
	for i, look := range []struct {
		after   time.Duration
		packets uint64
		no      refusals
		gone    bool // there is no such device
		rate    float64
		ok      bool
		what    string
	}{
		{0, 1000, no, false, 0, false, "the first time"},
		{2, 1500, no, false, 250, true, "the second time"},
		{3, 1700, refusals{true, 40, 0, 60, 0}, false, 200, true,
			"100 refusals, beside traffic of others that nobody has looked at before"},
		{4, 1900, refusals{true, 80, 0, 120, 0}, false, 100, true, "100 refusals more"},
		{5, 2000, no, false, 100, true, "refusals whose counter began anew"},
		{6, 2100, refusals{true, 900, 0, 0, 0}, false, 100, true,
			"more than it has sent, at first"},
		{7, 2200, refusals{true, 1900, 0, 0, 0}, false, 0, true, "more than it has sent"},
		{8, 2300, refusals{}, false, 100, true, "refusals that nobody tells"},
		{9, 2400, refusals{true, 1900, 0, 0, 0}, false, 100, true, "that were not told before"},
		{10, 10, no, false, 0, false, "a counter that began anew"},
		{11, 0, no, true, 0, false, "a device that is not there"},
	} {
		at := now.Add(look.after * time.Second)
		rate, ok := s.second(at, look.packets, look.no, alone, !look.gone)
		if rate != look.rate || ok != look.ok {
			t.Errorf("%d, %s: %v, %v", i, look.what, rate, ok)
		}
	}
	if n, ok := (namespace{}).sent("lo"); !ok || n > 1<<62 {
		t.Errorf("of lo: %d, %v", n, ok)
	}
	if _, ok := (namespace{}).sent("no-such-device"); ok {
		t.Error("of no device")
	}
}

// TestRefusalsAreNoAnswers: a flood to a closed port had a thousand answers a second of ICMP, and
// half of what is too much otherwise was not too much of it. The kernel's counters are read as it
// writes them.
func TestRefusalsAreNoAnswers(t *testing.T) {
	four := "Ip: Forwarding DefaultTTL\nIp: 1 64\n" +
		"Icmp: InMsgs OutMsgs OutDestUnreachs\nIcmp: 5 9 7\n" +
		"Tcp: MaxConn ActiveOpens EstabResets OutSegs InErrs OutRsts\nTcp: -1 40 60 900 2 11\n"
	six := "Ip6InReceives   \t12\nIcmp6OutDestUnreachs   \t3\n"
	if got := refusalsOf(four, six); got != (refusals{true, 11, 2, 10, 100}) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"", "Tcp:\nTcp:\n", "Tcp: OutRsts\n", "Tcp: OutRsts\nTcp: x\n",
		"Tcp: A OutRsts\nTcp: 1\n", "Tcp: InErrs OutRsts\nTcp: 1 2\n"} {
		if got := refusalsOf(text, ""); got.told {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := (namespace{}).refused(); !got.told {
		t.Errorf("of this machine: %+v", got)
	}
}

// TestRefusalsOfOthersAreNotOfThisInterface: refusals were counted by namespace. Each packet that
// another interface has received may be one that was refused, and each that it has sent a refusal.
func TestRefusalsOfOthersAreNotOfThisInterface(t *testing.T) {
	var r refused
	now := time.Now()
	asked := 0
	for i, look := range []struct {
		no                 refusals
		others             traffic
		unknown            bool
		segments, refusing uint64
		asks               bool
	}{
		{no: refusals{true, 100, 5, 0, 0}, asks: true},
		{no: refusals{true, 180, 25, 300, 0}, segments: 100, refusing: 380, asks: true},
		{no: refusals{true, 280, 25, 300, 0}, others: traffic{60, 30, 0}, segments: 40,
			refusing: 70, asks: true},
		{no: refusals{true, 380, 25, 300, 0}, others: traffic{1060, 1030, 0}, asks: true},
		{no: refusals{true, 390, 25, 300, 0}, others: traffic{1060, 1030, 0}}, // few
		{no: refusals{true, 490, 25, 300, 0}, asks: true},
		{no: refusals{true, 590, 25, 300, 0}, unknown: true, asks: true},
		{no: refusals{true, 690, 25, 300, 0}, asks: true},
		{no: refusals{true, 790, 25, 300, 0}, segments: 100, refusing: 100, asks: true},
		{},
		{no: refusals{true, 990, 25, 300, 0}, asks: true},
		{no: refusals{true, 1090, 25, 300, 10}, others: traffic{0, 0, 100}, segments: 80,
			refusing: 50, asks: true},
		{no: refusals{true, 1190, 25, 300, 110}, others: traffic{10, 20, 200}, segments: 40,
			refusing: 30, asks: true},
		{no: refusals{true, 1290, 25, 300, 110}, others: traffic{10, 20, 10}, asks: true}, // gone
	} {
		before := asked
		segments, refusing := r.since(now, look.no, func() (traffic, bool) {
			asked++
			return look.others, !look.unknown
		})
		if segments != look.segments || refusing != look.refusing || asked > before != look.asks {
			t.Errorf("the look %d: %d segments, %d refusals, looked at others: %t", i+1, segments,
				refusing, asked > before)
		}
	}
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
		if got, ok := elsewhere(links, dev); !ok || got != (traffic{want, 2 * want, loop}) {
			t.Errorf("%s: %+v, %v; want %d", dev, got, ok, want)
		}
	}
	if _, ok := elsewhere(links, "eth9"); ok {
		t.Error("of no device")
	}
	if _, ok := (namespace{}).elsewhere("lo"); !ok {
		t.Error("of lo")
	}
}
