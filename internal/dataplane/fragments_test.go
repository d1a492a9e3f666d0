package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/dataplane/inspect"
	"levee/internal/packet"
)

const fragmentPolicy = `fragments track as "fragments"
pass arp
pass icmp6
pass udp port 9000 as "service"
default drop
`

// TestFragmentsOfRealDatagrams: the kernel cuts datagrams into fragments; those to an open port
// arrive whole, and of those to another nothing does.
func TestFragmentsOfRealDatagrams(t *testing.T) {
	n := newTestNet(t)
	const here4, here6 = "198.51.100.1", "2001:db8:7::1"
	giveBothFamilies(t, n)
	for ns, dev := range map[netns.NsHandle]string{n.here: "lv0", n.peer: "lv1"} {
		in(t, ns, func() (any, error) {
			l, err := netlink.LinkByName(dev)
			if err != nil {
				return nil, err
			}
			return nil, netlink.LinkSetMTU(l, 1500)
		})
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, fragmentPolicy, 0); err != nil {
				t.Fatal(err)
			}
			for _, here := range []string{here4, here6} {
				open, shut := hears(t, n, here, 9000), hears(t, n, here, 9001)
				for i, size := range []int{100, 3000, 9000, 60000} {
					data := bytes.Repeat([]byte{byte(i + 1)}, size)
					say(t, n, here, 9001, data)
					say(t, n, here, 9000, data)
					_ = open.SetReadDeadline(time.Now().Add(time.Minute))
					got := make([]byte, 1<<16)
					k, err := open.Read(got)
					if err != nil || !slices.Equal(got[:k], data) {
						t.Fatalf("%d bytes to %s: %d arrived, %v", size, here, k, err)
					}
				}
				_ = shut.SetReadDeadline(time.Now().Add(time.Millisecond))
				if k, err := shut.Read(make([]byte, 1)); err == nil {
					t.Errorf("%d bytes arrived at a shut port of %s", k, here)
				}
			}
			a := status(t)
			// of 3000, 9000 and 60000 bytes: 2, 6 and 40 (IPv6: 41) that follow the first
			passed, orphans := labelled(&a, "fragments"), labelled(&a, "fragment-orphan")
			if passed != 2+6+40+2+6+41 || passed != orphans {
				t.Errorf("%d later fragments passed, %d had no first", passed, orphans)
			}
			if f := a.Fragments; f == nil || f.Refused != 0 || f.Evicted != 0 {
				t.Errorf("status says %+v", f)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// labelled sums the packets of the counters of a label, or of a reason to be malformed.
func labelled(a *inspect.Attachment, name string) (n uint64) {
	for _, c := range a.Counters {
		if c.Label == name || c.Rule == name || c.Rule == "malformed:"+name {
			n += c.Packets
		}
	}
	return n
}

// hears listens at a port of the host.
func hears(t *testing.T, n *testNet, addr string, port int) *net.UDPConn {
	t.Helper()
	c := in(t, n.here, func() (*net.UDPConn, error) {
		return net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr), Port: port})
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends a datagram to a port of the host.
func say(t *testing.T, n *testNet, addr string, port int, data []byte) {
	t.Helper()
	c := in(t, n.peer, func() (net.Conn, error) {
		return net.Dial("udp", net.JoinHostPort(addr, fmt.Sprint(port)))
	})
	defer c.Close()
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
}

// datagramPart is the part of a datagram over UDP to a port that begins with byte 24 * at.
func datagramPart(id, port uint16, at int) []byte {
	const ip, l4, bytes = 14, 34, 24
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0})
	f[ip], f[ip+8], f[ip+9] = 0x45, 64, packet.ProtoUDP
	binary.BigEndian.PutUint16(f[ip+2:], 20+bytes)
	binary.BigEndian.PutUint16(f[ip+4:], id)
	binary.BigEndian.PutUint16(f[ip+6:], 0x2000|uint16(at*bytes/8))
	copy(f[ip+12:], []byte{203, 0, 113, 9, 198, 51, 100, 1})
	if at == 0 {
		binary.BigEndian.PutUint16(f[l4+2:], port)
		binary.BigEndian.PutUint16(f[l4+4:], 1000)
	}
	return f
}
