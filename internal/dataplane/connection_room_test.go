package dataplane

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// TestAnotherRoomEndsConnections: a policy that asks for another number of connections has them in
// another memory. Those that there are move, and those that begin meanwhile follow.
func TestAnotherRoomEndsConnections(t *testing.T) {
	n := newTestNet(t)
	defer Down(t.Context(), "lv0")
	policy := func(first string) error {
		return bringPolicy(t, "lv0", first+"\npass udp established as \"known\"\ndefault drop\n", 0)
	}
	if err := policy("connections max 16384"); err != nil {
		t.Fatal(err)
	}
	out, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	lv0, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: lv0.Attrs().Index}
	datagram := func(i int, comes bool) []byte {
		s := packet.Spec{From: netip.MustParseAddr("198.51.100.7"), FromPort: new(uint16(1000 + i)),
			To: netip.MustParseAddr("203.0.113.9"), ToPort: new(uint16(53)),
			Proto: new(uint8(packet.ProtoUDP))}
		if comes {
			s.From, s.FromPort, s.To, s.ToPort = s.To, s.ToPort, s.From, s.FromPort
		}
		f, err := packet.Build(s)
		if err != nil {
			t.Error(err)
		}
		return f
	}
	// So many that no bucket is full, however slow the machine is.
	const each = 400
	var begun, may atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(200 * time.Microsecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if begun.Load() >= may.Load() {
				continue
			}
			if err := unix.Sendto(out, datagram(int(begun.Load()), false), 0, to); err != nil {
				t.Errorf("send: %v", err)
				return
			}
			begun.Add(1)
		}
	}()
	for _, c := range []struct {
		line string
		room int
	}{{"connections max 100000", 131_072}, {"connections max 20000", 32_768},
		{"connections max 4194304", 4_194_304}, {"connections max 40000", 65_536}} {
		before := begun.Load()
		may.Store(before + each)
		wantUntil(t, func() bool { return begun.Load() > before+100 })
		if err := policy(c.line); err != nil {
			t.Fatal(err)
		}
		if got := status(t).Connections.Places; got != c.room {
			t.Errorf("%s makes room for %d", c.line, got)
		}
	}
	close(stop)
	<-done
	all := int(begun.Load())
	if s := status(t).Connections; s.Live != all || s.Refused+s.Taken > 0 {
		t.Errorf("of %d connections: %+v", all, s)
	}
	for i := range all {
		n.sendFrame(t, datagram(i, true))
	}
	wantUntil(t, func() bool {
		at := status(t)
		return packets(&at, "known") == uint64(all)
	})
}
