package dataplane

import (
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// wire joins two TAP devices, and a test says what becomes of each frame:
//
//	here (policies go here)        peer
//	+-----------------+   carry   +---------+
//	| wr0  -----------|-- - - - --|--- wr1  |
//	+-----------------+           +---------+
//
// 198.51.100.1/24 is here, 198.51.100.2/24 at the peer, which is the way to all else.
type wire struct {
	mu    sync.Mutex
	carry func(heading, []byte) bool // nil: all is carried
	ends  [2]int                     // file descriptors, by way
}

type heading int

const (
	outwards heading = iota // from here to the peer
	inwards
)

func newWire(t *testing.T, n *testNet) *wire {
	t.Helper()
	w := &wire{}
	n.inPeer(t, func() { w.ends[inwards] = openTun(t, "wr1", unix.IFF_TAP) })
	w.ends[outwards] = openTun(t, "wr0", unix.IFF_TAP)
	giveAddress(t, n.here, "wr0", "198.51.100.1/24")
	giveAddress(t, n.peer, "wr1", "198.51.100.2/24")
	up := func(name string) {
		if err := netlink.LinkSetUp(must2(netlink.LinkByName(name))); err != nil {
			t.Fatal(err)
		}
	}
	up("wr0")
	n.inPeer(t, func() { up("wr1") })
	run(t, n.here, "", "ip", "route", "add", "default", "via", "198.51.100.2")
	stop := must2(unix.Eventfd(0, unix.EFD_CLOEXEC))
	var ends sync.WaitGroup
	t.Cleanup(func() { // before the devices are closed
		_ = must2(unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}))
		ends.Wait()
		unix.Close(stop)
	})
	for from := range w.ends {
		ends.Go(func() { w.run(heading(from), stop) })
	}
	return w
}

// run carries what leaves by one end until stop can be read.
func (w *wire) run(from heading, stop int) {
	frame := make([]byte, 1<<16)
	for {
		ready := []unix.PollFd{{Fd: int32(w.ends[from]), Events: unix.POLLIN},
			{Fd: int32(stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			return
		}
		if ready[1].Revents != 0 {
			return
		}
		if ready[0].Revents == 0 {
			continue
		}
		n, err := unix.Read(w.ends[from], frame)
		if err != nil {
			return
		}
		w.mu.Lock()
		carried := w.carry == nil || w.carry(from, frame[:n])
		w.mu.Unlock()
		if carried {
			w.put(from, frame[:n])
		}
	}
}

// put has a frame arrive where what goes that way arrives.
func (w *wire) put(to heading, frame []byte) { _, _ = unix.Write(w.ends[1-to], frame) }

// carries says from now on what is carried.
func (w *wire) carries(carry func(heading, []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.carry = carry
}

// segmentOf gives the fields of a TCP segment, and how many bytes it carries.
func segmentOf(frame []byte) (p packet.Packet, bytes int, ok bool) {
	packet.Decode(frame, &p)
	if p.Malformed != packet.WellFormed || p.Transport != packet.TCPTransport {
		return p, 0, false
	}
	end := p.NetworkOffset + p.Len
	return p, end - p.TransportOffset - int(frame[p.TransportOffset+12]>>4)*4, true
}
