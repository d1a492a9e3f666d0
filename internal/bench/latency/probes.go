package latency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
)

// Probes are UDP datagrams whose round trips are timed while a flood is on. They are sent at times
// that were drawn before (an open loop): a probe that is late because the one before was, or
// because the sender was not given its core, counts from the time when it should have been sent.
// Else a system that stands still would delay one probe, and hide those that would have followed
// (Tene, "coordinated omission").

const (
	echoPort  = 7     // RFC 862
	fromPort  = 40007 // none that the flood comes from matters: the flood has other addresses
	probeSize = 16    // bytes: a number that tells runs apart, and the number of the probe
	// patience is how long the last probes are waited for, or twice the window; what has not
	// returned by then is lost.
	patience = 500 * time.Millisecond
	// pollEvery bounds how long a thread sleeps without looking whether it should end.
	pollEvery = 50 * time.Millisecond
)

// Priorities. The threads that probe come first on the core that they share with the generator
// (SCHED_FIFO), so that what is timed is the receiver. The echo service comes after the receiver
// and before what else runs on this machine.
const (
	probePriority = 2
	topNice       = -20 // where there is no budget for real-time priority
	serviceNice   = -15
)

// prober is an echo service on the server and a client in the world.
type prober struct {
	echo, client int // sockets
	rate         float64
	generatorCPU int
	rng          *rand.Rand
	stop         atomic.Bool
	threads      sync.WaitGroup
	echoErr      atomic.Pointer[error]
}

// newProber starts the echo service on the receiver's core, as one program of many.
func newProber(l *flood.Lab, rate float64) (*prober, error) {
	p := &prober{echo: -1, client: -1, rate: rate, generatorCPU: l.GeneratorCPU,
		rng: rand.New(rand.NewPCG(l.Seed, 0x70726f6265))}
	in, out := &l.Server.Devices[0], &l.World.Devices[0]
	if len(out.Clients4) == 0 {
		return nil, errors.New("the lab has no client")
	}
	err := l.Server.Do(func() (err error) {
		p.echo, err = udpSocket(netip.AddrPortFrom(in.IPv4.Addr(), echoPort))
		return err
	})
	if err == nil {
		err = l.World.Do(func() (err error) {
			if p.client, err = udpSocket(netip.AddrPortFrom(out.Clients4[0],
				fromPort)); err != nil {
				return err
			}
			to := in.IPv4.Addr().As4()
			return unix.Connect(p.client, &unix.SockaddrInet4{Port: echoPort, Addr: to})
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the sockets of the probes: %w", err), p.close())
	}
	p.threads.Add(1)
	go p.answer(l.ReceiverCPU)
	return p, nil
}

func udpSocket(at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	t := unix.NsecToTimeval(int64(pollEvery))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// close ends the echo service.
func (p *prober) close() error {
	p.stop.Store(true)
	p.threads.Wait()
	var errs []error
	for _, fd := range []int{p.echo, p.client} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// again tells an error of a receiving call after which it is called again: nothing came; a signal;
// an ICMP error about a datagram that was sent.
func again(err error) bool {
	return err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNREFUSED
}

// answer sends each datagram of a probe's size back.
func (p *prober) answer(cpu int) {
	defer p.threads.Done()
	runtime.LockOSThread() // never unlocked: the thread and its core end with the goroutine
	fail := func(err error) {
		err = fmt.Errorf("the echo service ended: %w",
			err)
		p.echoErr.Store(&err)
	}
	if err := errors.Join(kernel.RunOn(cpu),
		unix.Setpriority(unix.PRIO_PROCESS, 0, serviceNice)); err != nil {
		fail(err)
		return
	}
	buf := make([]byte, 2*probeSize)
	for !p.stop.Load() {
		n, from, err := unix.Recvfrom(p.echo, buf, 0)
		switch {
		case again(err):
		case err != nil:
			fail(err)
			return
		case n == probeSize:
			_ = unix.Sendto(p.echo, buf[:n], 0, from) // no room is a lost probe
		}
	}
}

// round sends probes for a time and returns the round trip of each in ns, lost for those that did
// not return.
func (p *prober) round(ctx context.Context, length time.Duration) ([]int64, error) {
	at := poisson(p.rng, p.rate, length)
	r := &roundTrips{prober: p, id: p.rng.Uint64(), at: at, took: make([]int64, len(at))}
	for i := range r.took {
		r.took[i] = lost
	}
	r.begin = int64(kernel.Monotonic() + 5*time.Millisecond) // for both threads to be there
	done := make(chan error, 1)
	go func() { done <- r.receive() }()
	sent := make(chan error, 1)
	go func() { sent <- r.send(ctx) }()
	err := <-sent
	if err == nil {
		err = lab.Sleep(ctx, min(patience, 2*length))
	}
	r.ended.Store(true)
	err = errors.Join(err, <-done)
	if e := p.echoErr.Load(); e != nil {
		err = errors.Join(err, *e)
	}
	return r.took, err
}

// lost stands for a probe that did not return.
const lost = -1

// poisson draws the times of a Poisson process, in ns from its start: probes at equal distances
// could fall into step with the generator's batches.
func poisson(rng *rand.Rand, rate float64, length time.Duration) []int64 {
	var at []int64
	for t := 0.0; ; {
		t += rng.ExpFloat64() / rate * float64(time.Second)
		if t >= float64(length) {
			return at
		}
		at = append(at, int64(t))
	}
}

type roundTrips struct {
	*prober
	id    uint64
	begin int64
	at    []int64
	took  []int64 // each written by the receiving thread only
	ended atomic.Bool
}

func (r *roundTrips) send(ctx context.Context) error {
	if err := realTime(r.generatorCPU); err != nil {
		return err
	}
	buf := make([]byte, probeSize)
	binary.NativeEndian.PutUint64(buf, r.id)
	for i, at := range r.at {
		if i%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t := unix.NsecToTimespec(r.begin + at)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil) == unix.EINTR {
		}
		binary.NativeEndian.PutUint64(buf[8:], uint64(i))
		if _, err := unix.Write(r.client, buf); err != nil && !again(err) && err != unix.ENOBUFS {
			return fmt.Errorf("sending a probe: %w", err)
		}
	}
	return nil
}

func (r *roundTrips) receive() error {
	if err := realTime(r.generatorCPU); err != nil {
		return err
	}
	buf := make([]byte, 2*probeSize)
	for !r.ended.Load() {
		n, err := unix.Read(r.client, buf)
		now := int64(kernel.Monotonic())
		if again(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving a probe: %w", err)
		}
		i := binary.NativeEndian.Uint64(buf[8:])
		if n != probeSize || binary.NativeEndian.Uint64(buf) != r.id || i >= uint64(len(r.took)) ||
			r.took[i] != lost {
			continue // of a round before, or a stranger's
		}
		r.took[i] = max(now-r.begin-r.at[i], 0)
	}
	return nil
}

// realTime gives the calling goroutine a thread of its own on a core, before all programs there.
func realTime(cpu int) error {
	// never unlocked: the thread, its core and its priority end with the goroutine
	runtime.LockOSThread()
	if err := kernel.RunOn(cpu); err != nil {
		return err
	}
	return firstOf(0)
}

// firstOf lets a thread come before all programs. A control group may have no real-time budget; the
// thread then has the highest priority of the others.
func firstOf(tid int) error {
	err := kernel.GoFirst(tid, probePriority)
	if errors.Is(err, unix.EPERM) {
		err = unix.Setpriority(unix.PRIO_PROCESS, tid, topNice)
	}
	if err != nil {
		return fmt.Errorf("raising the priority of the probes: %w", err)
	}
	return nil
}

// firstInWorld lets what receives in the world come before the generator, too: answers arrive
// there.
func firstInWorld(h *lab.Host) error {
	if napi := h.Devices[0].NAPI; napi != 0 {
		return firstOf(napi)
	}
	return nil
}
