package receive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/app"
	"levee/internal/lab/contender"
)

// way is one way to receive.
type way struct {
	name, what string
	// idle is the time after the last packet at which none waits any more.
	idle time.Duration
	// polls says that its thread takes all of its core: it cannot share one.
	polls bool
	// open begins to receive. The reader is all of it: close takes everything off again.
	open func(ctx context.Context, s site) (reader, error)
}

// site is the place at which a way receives.
type site struct {
	host   *lab.Host
	device *lab.Device
	cpu    int // of the reader
	frame  int // bytes of each frame
}

// dev returns the device as package net has it.
func (s *site) dev() *net.Interface {
	return &net.Interface{Index: s.device.Index, MTU: s.device.MTU, Name: s.device.Name}
}

// reader is a way that is open.
type reader interface {
	// taken is the number of packets that it has taken.
	taken(ctx context.Context) (uint64, error)
	// threads are those that take packets.
	threads() []int
	// halt ends them. Nothing comes any more.
	halt() error
	// lost is the number of packets that the way has lost by its own count. It is asked after halt.
	lost() (uint64, error)
	close() error
}

// Frames that may wait for each reader, and the room that each has in memory. A UDP socket counts
// the page in which a packet of the generator lies, so that its 32 MiB are as many packets.
const (
	waiting  = 8192
	room     = waiting * 2048 // bytes
	patience = 50 * time.Millisecond
)

// errNone says that the machine has not got a way.
var errNone = errors.New("not here")

// pcapIdle is above the second after which libpcap is handed a block that is not full.
const pcapIdle = 1200 * time.Millisecond

var ways = []way{
	{name: "recvmmsg", open: openSocket,
		what: "a UDP socket, 64 datagrams a call: behind the whole stack, payloads copied"},
	{name: "PACKET_MMAP v3", open: openPacket,
		what: "a packet socket with a ring of blocks, frames copied; no stack behind it"},
	{name: "libpcap", open: openPcap, idle: pcapIdle,
		what: "tcpdump -w /dev/null, PACKET_MMAP v3 by libpcap; no stack behind it"},
	{name: "BPF ring buffer", open: openBuffer,
		what: "an XDP program copies each frame into a ring buffer of BPF"},
	{name: "AF_XDP", open: openCopy,
		what: "an XDP program hands frames to an AF_XDP socket, into whose memory the kernel " +
			"copies them"},
	{name: "AF_XDP zero copy", open: openZeroCopy,
		what: "the same, where the driver writes into the memory of the reader"},
	{name: "DPDK", open: openDPDK, polls: true,
		what: "testpmd, rxonly, over an AF_XDP socket of its own (net_af_xdp); it polls, and so " +
			"has a core of its own"},
	{name: "levee ring", open: openLevee,
		what: fmt.Sprintf("redirect udp port %d to ring \"bench\" else drop: AF_XDP with copies",
			flood.Port)},
}

func nameOf(w way) string { return w.name }

// Names returns the ways, as they can be chosen.
func Names() []string { return bench.Names(ways, nameOf) }

// taker is a thread that takes packets.
type taker struct {
	tid     int
	stop    atomic.Bool
	ended   chan struct{}
	err     error // once ended is closed
	packets atomic.Uint64
}

// take starts a thread that calls loop again and again, on a core and before all else there. loop
// waits for packets, patience at most, and says how many it took.
func take(cpu int, loop func() (int, error)) (*taker, error) {
	t := &taker{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(t.ended)
		// never unlocked: the thread, its core and its priority end with the goroutine
		runtime.LockOSThread()
		t.tid = unix.Gettid()
		err := first(0, cpu)
		if started <- err; err != nil {
			return
		}
		for !t.stop.Load() {
			n, err := loop()
			if err != nil {
				t.err = err
				return
			}
			if n > 0 {
				t.packets.Add(uint64(n))
			}
		}
	}()
	if err := <-started; err != nil {
		<-t.ended
		return nil, err
	}
	return t, nil
}

// first gives a thread, 0 for the calling one, a core, and lets it go before all else there, where
// the kernel allows that.
func first(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("running on core %d: %w", cpu, err)
	}
	if err := kernel.GoFirst(tid, 1); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("setting the priority of a reader: %w", err)
	}
	return nil
}

func (t *taker) taken(context.Context) (uint64, error) {
	select {
	case <-t.ended:
		return t.packets.Load(), t.err
	default:
		return t.packets.Load(), nil
	}
}

func (t *taker) threads() []int { return []int{t.tid} }

func (t *taker) halt() error {
	t.stop.Store(true)
	<-t.ended
	return t.err
}

// socket receives by recvmmsg.
type socket struct{ *app.Application }

func openSocket(_ context.Context, s site) (reader, error) {
	a, err := app.Listen(s.host, flood.Port, s.cpu, true)
	if err != nil {
		return nil, err
	}
	return socket{a}, nil
}

func (s socket) taken(context.Context) (uint64, error) { return s.Received() }
func (s socket) threads() []int                        { return s.Threads() }
func (s socket) halt() error                           { return nil }
func (s socket) lost() (uint64, error)                 { return s.Lost() }
func (s socket) close() error                          { return s.Close() }

// behind is a defence that is in force while a reader is open.
type behind struct {
	contender.Defence
	site contender.Site
}

func install(ctx context.Context, d contender.Defence, s site) (*behind, error) {
	b := &behind{d, contender.Site{Host: s.host, Device: s.device.Name}}
	if err := d.Install(ctx, b.site); err != nil {
		return nil, errors.Join(err, b.remove())
	}
	return b, nil
}

func (b *behind) remove() error { return b.Remove(context.Background()) }
