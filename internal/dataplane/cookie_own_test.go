package dataplane

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

// answered sends SYNs from the other end of lv0, one to each port in turn from 1 on, and the last
// one to a port that is answered; it says which ports were.
func (n *testNet) answered(t testing.TB, specs ...packet.Spec) (ports []int) {
	t.Helper()
	return in(t, n.peer, func() ([]int, error) {
		ear, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			int(be16(unix.ETH_P_ALL)))
		if err != nil {
			return nil, err
		}
		defer unix.Close(ear)
		if err := unix.SetsockoptTimeval(ear, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Sec: 5}); err != nil {
			return nil, err
		}
		for i, s := range specs {
			s.FromPort, s.ToPort = new(uint16(i+1)), new(uint16(9000))
			s.Flags = new(uint8(packet.SYN))
			f, err := packet.Build(s)
			if err != nil {
				return nil, err
			}
			to := unix.SockaddrLinklayer{Ifindex: n.txIndex, Halen: 6}
			if err := unix.Sendto(n.tx, f, 0, &to); err != nil {
				return nil, err
			}
		}
		b := make([]byte, 2048)
		for !slices.Contains(ports, len(specs)) {
			size, _, err := unix.Recvfrom(ear, b, 0)
			if err != nil {
				return ports, nil // the last is not answered
			}
			var p packet.Packet
			packet.Decode(b[:size], &p)
			if p.Transport == packet.TCPTransport && p.SrcPort == 9000 {
				ports = append(ports, int(p.DstPort))
			}
		}
		return ports, nil
	})
}

// ownSYN is a SYN of 198.51.100.2 or its like of IPv6 in a frame.
func ownSYN(to string, mac *[6]byte) packet.Spec {
	s := packet.Spec{EtherTo: mac, From: netip.MustParseAddr("198.51.100.2"),
		To: netip.MustParseAddr(to)}
	if s.To.Is6() {
		s.From = netip.MustParseAddr("2001:db8:7::2")
	}
	return s
}

// TestACookieAnswersForOtherMachines: a cookie answered SYNs in frames that a switch had flooded,
// and those to and from the broadcast address of a network in a frame for one machine. The kernel
// answers none of them.
func TestACookieAnswersForOtherMachines(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	in(t, n.here, func() (any, error) { // the anycast address of routers
		return nil, os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	})
	run(t, n.here, "", "ip", "link", "add", "mv0", "link", "lv0", "address", "02:00:00:00:00:77",
		"type", "macvlan")
	run(t, n.here, "", "ip", "link", "set", "mv0", "up")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, "cookie tcp port 9000\ndefault drop\n",
				0); err != nil {
				t.Fatal(err)
			}
			mac, other := own(t, "lv0"), &[6]byte{2, 0, 0, 0, 0, 0x55}
			of := func(from, to string) packet.Spec {
				s := ownSYN(to, mac)
				s.From = netip.MustParseAddr(from)
				return s
			}
			got := n.answered(t,
				ownSYN("198.51.100.1", mac),
				ownSYN("198.51.100.1", other),
				ownSYN("2001:db8:7::1", other),
				ownSYN("198.51.100.255", mac),
				ownSYN("2001:db8:7::", mac),
				ownSYN("203.0.113.255", mac), // of a network behind
				ownSYN("198.51.100.1", &[6]byte{2, 0, 0, 0, 0, 0x77}),
				of("198.51.100.255", "198.51.100.1"),
				of("2001:db8:7::", "2001:db8:7::1"),
				ownSYN("2001:db8:7::1", mac))
			if want := []int{1, 6, 7, 10}; !slices.Equal(got, want) {
				t.Errorf("answered %v, want %v", got, want)
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestACookieFollowsWhatTheKernelTakes: who keeps a policy tells its cookies of an address that the
// interface has since, of a network, and of a bridge that it has become a port of.
func TestACookieFollowsWhatTheKernelTakes(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	run(t, n.here, "", "ip", "link", "add", "mv0", "link", "lv0", "address", "02:00:00:00:00:77",
		"type", "macvlan")
	run(t, n.here, "", "ip", "link", "set", "mv0", "up")
	ctx, end := context.WithCancel(t.Context())
	ready, done := make(chan bool), make(chan error, 1)
	const text = "cookie tcp port 9000\ndefault drop\n"
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := netns.Set(n.here); err != nil {
			done <- err
			return
		}
		done <- Keep(ctx, UpOptions{Dev: "lv0", Names: []string{"lv0"}, Mode: store.XDPGeneric,
			PolicyPath: "/etc/test.levee", Source: []byte(text)}, compileText(text),
			nil, KeepEvents{Ready: func([]*Report) { ready <- true }})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	later := &[6]byte{2, 0, 0, 0, 0, 0x99}
	syns := []packet.Spec{ownSYN("198.51.100.1", own(t, "lv0")), ownSYN("198.51.100.1", later),
		ownSYN("203.0.113.255", later), ownSYN("198.51.100.1", &[6]byte{2, 0, 0, 0, 0, 0x55})}
	always := &[6]byte{2, 0, 0, 0, 0, 0x77} // before and after a step
	for _, step := range []struct {
		commands []string
		want     []int
	}{
		{nil, []int{1, 5}},
		{[]string{"link set lv0 address 02:00:00:00:00:99"}, []int{2, 3, 5}},
		{[]string{"addr add 203.0.113.1/24 brd + dev lv0"}, []int{2, 5}},
		{[]string{"link del mv0", "link add br0 type bridge", "link set lv0 master br0"},
			[]int{1, 2, 4, 5}},
	} {
		for _, c := range step.commands {
			ip(t, c)
		}
		var got []int
		for range 100 {
			got = n.answered(t, append(syns, ownSYN("198.51.100.1", always))...)
			if slices.Equal(got, step.want) {
				break
			}
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after %q answered %v, want %v", step.commands, got, step.want)
		}
		if slices.Contains(step.want, 2) {
			always = later
		}
	}
	end()
	<-done
}
