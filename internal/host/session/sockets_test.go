package session

import (
	"cmp"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/host/procnet"
)

// TestSessionsAreFoundWithoutTheModuleTCPDiag: what the files of /proc tell is what netlink tells.
func TestSessionsAreFoundWithoutTheModuleTCPDiag(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0", "192.0.2.1/24")
	n.in(t, n.far, func() { set(t, "eth0", "192.0.2.7/24") })
	n.connect(t, "192.0.2.1:22")
	set(t, "lo")
	l, err := net.Listen("tcp", "[::1]:22")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", "[::1]:22") // both ends are here
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want, err := tcpSockets(ownProc)
	if err != nil || len(want) != 5 {
		t.Fatalf("%v, %v", want, err)
	}
	for _, refused := range []error{unix.ENOENT, unix.EPROTONOSUPPORT} {
		got, err := socketsBy(func(uint8) ([]*netlink.Socket, error) { return nil, refused },
			ownProc)
		for _, all := range [][]procnet.Socket{got, want} {
			slices.SortFunc(all, func(a, b procnet.Socket) int {
				return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
			})
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v; want %v", refused, got, err, want)
		}
	}
}
