package live

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/lab"
	"levee/internal/lab/broadcast"
	"levee/internal/lab/labtest"
)

// TestMergedDatagramsAreFollowed: the stack may hand several datagrams of a flow to tcx as one
// packet. A socket that sends such (UDP_SEGMENT) makes them, over veth with its offloads.
func TestMergedDatagramsAreFollowed(t *testing.T) {
	labtest.NeedRoot(t)
	topology := lab.Standard()
	topology.Offload = true
	l, err := lab.New(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	server := l.Host(lab.Server)
	to := netip.AddrPortFrom(server.Devices[0].IPv4.Addr(), 5004)
	for _, rtp := range []bool{false, true} {
		c := sending(rtp, false, 1)
		c.Faults, c.FEC, c.Streams = nil, false, 1
		s := broadcast.New(c)
		const datagrams, headers = 20, 14 + 20 + 8
		var payload []byte
		each := 0
		for range datagrams {
			f, _ := s.Next()
			each = len(f.Bytes) - headers
			payload = append(payload, f.Bytes[headers:]...)
		}
		o := options
		o.Groups = []netip.AddrPort{to}
		var m *Monitor
		err := server.Do(func() (err error) {
			m, err = Open(server.Devices[0].Name, TCX, o)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = l.Host(lab.World).Do(func() error {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			defer c.Close()
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			var set error
			if err := raw.Control(func(fd uintptr) {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, each)
			}); err != nil || set != nil {
				t.Fatal(err, set)
			}
			_, err = c.Write(payload)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		await.True(t, "all datagrams are followed", func() bool {
			all, _, err := m.Read()
			return err == nil && len(all) == 1 && all[0].Datagrams == datagrams
		})
		all, _, _ := m.Read()
		if s := all[0]; s.Discontinuities != 0 || s.Packets != 7*datagrams || s.RTP != rtp ||
			s.RTPLost != 0 || s.Strange != 0 {
			t.Errorf("rtp %v: %+v", rtp, s)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
