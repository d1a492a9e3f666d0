package session

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// TestWhoForgesSegmentsIsNoPeer: a SYN, and an ACK out of nowhere, in the names of others.
func TestWhoForgesSegmentsIsNoPeer(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0", "192.0.2.1/24")
	l, err := net.Listen("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n.in(t, n.far, func() {
		set(t, "eth0", "192.0.2.7/24")
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		forged := map[string]uint8{"192.0.2.8": packet.SYN, "192.0.2.9": packet.ACK}
		for from, flags := range forged {
			for range 5 {
				b, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
					To: netip.MustParseAddr("192.0.2.1"), Proto: new(uint8(packet.ProtoTCP)),
					Flags: &flags, FromPort: new(uint16(4000)), ToPort: new(uint16(80))})
				if err == nil {
					err = unix.Sendto(fd, b[14:], 0,
						&unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	n.dial(t, "192.0.2.1:80") // comes behind them
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := Peers()
	if err != nil || !slices.Equal(all, []netip.Addr{netip.MustParseAddr("192.0.2.7")}) {
		t.Errorf("%v, %v", all, err)
	}
}
