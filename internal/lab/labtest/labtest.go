// Package labtest makes labs for tests, which go with the test.
package labtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/lab"
)

// Main runs the tests, or plays a role of the lab if the test's own binary was started as "role".
func Main(m *testing.M,
	role func(ctx context.Context, args []string, in io.Reader, out io.Writer) error) {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		if err := role(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// NeedRoot skips a test that makes network namespaces where it may not.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
}

// NeedTwoCores skips a test of which one core receives and another one generates.
func NeedTwoCores(t testing.TB) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("two cores are not at hand")
	}
}

// New returns the standard lab.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	NeedRoot(t)
	// Close ends the lab, in the turn of what the test cleans up: its context ends before that.
	l, err := lab.New(context.WithoutCancel(t.Context()), lab.Standard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Machines returns two hosts that stand for machines, with a card each, eth0, at the ends of a
// wire. Neither has a route over it but those of its addresses.
func Machines(t testing.TB) (here, there *lab.Host) {
	t.Helper()
	NeedRoot(t)
	l, err := lab.New(context.WithoutCancel(t.Context()), lab.Topology{Pairs: []lab.Pair{
		{Inner: "here", Outer: "there"}}, ReceiverCPU: -1, GeneratorCPU: -1, Offload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	err = l.Hosts[0].Do(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				err = errors.Join(err, netlink.RouteDel(&r))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Hosts[0], l.Hosts[1]
}

// Send sends so many datagrams from the lab's world to a port of its server, by each family.
func Send(t testing.TB, l *lab.Lab, port uint16, n int) {
	t.Helper()
	in := l.Host(lab.Server).Devices[0]
	for _, a := range []netip.Addr{in.IPv4.Addr(), in.IPv6.Addr()} {
		err := l.Host(lab.World).Do(func() error {
			// Not connected: nobody listens, and the ICMP errors would fail later writes.
			c, err := net.ListenUDP("udp", nil)
			if err != nil {
				return err
			}
			defer c.Close()
			for range n {
				to := netip.AddrPortFrom(a, port)
				if _, err := c.WriteToUDPAddrPort([]byte("datagram"), to); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
