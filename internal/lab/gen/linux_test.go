package gen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/labtest"
)

// TestLinuxFloodsLookLikeLinux: nothing but what differs from connection to connection tells a
// SYN of the flood from one of a socket.
func TestLinuxFloodsLookLikeLinux(t *testing.T) {
	l := labtest.New(t)
	server, world := l.Host(lab.Server), l.Host(lab.World)
	out, to := world.Devices[0], server.Devices[0].IPv4.Addr()
	var fd int
	if err := server.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
			int(htons(unix.ETH_P_IP)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(int64(3 * time.Minute))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		t.Fatal(err)
	}
	if err := world.Do(func() error {
		if c, err := net.Dial("tcp", netip.AddrPortFrom(to, 9).String()); err == nil {
			c.Close()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	socket := nextSYN(t, fd)
	r, err := Run(t.Context(), Config{Namespace: world.Namespace, Device: out.Name, CPU: -1,
		Floods: []Flood{{Kind: SYN, Linux: true, To: to, Sources: DefaultSources(to)}}, Count: 2})
	if err != nil || r.Sent != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	first, second := nextSYN(t, fd), nextSYN(t, fd)
	if a, b := look(first), look(socket); a != b {
		t.Errorf("a flood of %s, sockets of %s", a, b)
	}
	if bytes.Equal(first[48:52], second[48:52]) {
		t.Error("timestamps of the flood are the same")
	}
}

// nextSYN is the next SYN that arrives, from IP on.
func nextSYN(t *testing.T, fd int) []byte {
	t.Helper()
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ip := b[14:n]; len(ip) >= 40 && ip[9] == unix.IPPROTO_TCP && ip[33]&0x12 == 2 {
			return ip
		}
	}
}

// look returns the order of options that all SYNs of one system share; the scale of the window is a
// setting.
func look(ip []byte) string {
	var kinds []byte
	for o := ip[40:]; len(o) > 0; {
		if kinds = append(kinds, o[0]); o[0] < 2 {
			o = o[1:]
			continue
		}
		o = o[o[1]:]
	}
	return fmt.Sprintf("length %d, flags %#x, ttl %d, TCP flags %#x, window %d, options %v",
		binary.BigEndian.Uint16(ip[2:]), ip[6], ip[8], ip[33], binary.BigEndian.Uint16(ip[34:]),
		kinds)
}
