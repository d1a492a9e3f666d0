package rrul

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/echo"
	"levee/internal/lab/queue"
	"levee/internal/usage"
)

// Roles of processes that a measurement starts: the service, and who speaks with it.
const (
	roleService = "service" // ADDRESS:PORT CORE
	roleClients = "clients" // ADDRESS:PORT FLOWS DEVICE QUEUE BANDWIDTH SOURCE...
)

// Role runs such a process. It says "ready", obeys the lines of its input, and ends with its input,
// hence with its parent, however that ends.
func Role(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) < 3 {
		return usage.Wrongf("a role is started by levee bench service --rrul, not by hand")
	}
	at, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	switch args[0] {
	case roleService:
		return serve(ctx, at, n, in, out)
	case roleClients:
		if len(args) < 7 {
			return usage.Wrongf("clients need a device, a queue, a bandwidth and addresses")
		}
		c := &clients{to: at, each: n, device: args[3], queue: args[4]}
		if c.bits, err = strconv.ParseFloat(args[5], 64); err != nil {
			return err
		}
		for _, s := range args[6:] {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return err
			}
			c.from = append(c.from, a)
		}
		return c.run(ctx, in, out)
	}
	return usage.Wrongf("there is no role %q", args[0])
}

// What a client says first: who sends.
const (
	sayDown = 'd' // the service
	sayUp   = 'u' // the client
)

// block is the size of one read or write.
const block = 128 << 10

// flow is a TCP connection of which one end sends as fast as it can.
type flow struct {
	*net.TCPConn
	sends bool
	taken atomic.Uint64 // bytes that have come
	err   atomic.Pointer[error]
}

// run sends or takes until the connection ends.
func (f *flow) run() {
	b := make([]byte, block)
	for {
		move := f.Read
		if f.sends {
			move = f.Write
		}
		n, err := move(b)
		if !f.sends {
			f.taken.Add(uint64(n))
		}
		if err != nil {
			f.err.Store(&err)
			return
		}
	}
}

// info returns what the kernel knows of the connection.
func (f *flow) info() (info *unix.TCPInfo, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, errors.Join(err, failed)
}

// flows are those of a process.
type flows struct {
	mu  sync.Mutex
	all []*flow
}

func (s *flows) add(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, f)
}

func (s *flows) list() []*flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// count holds the counts of a process: bytes that have arrived, by flow in the order in which the
// client has begun them, and segments that it has sent again. Clients also report the queues at
// their end.
type count struct {
	At     time.Duration // of the monotonic clock there
	Down   []uint64
	Up     []uint64
	Resent uint64
	Queues []queue.Queue
	Failed string
}

func (s *flows) count() (c count) {
	c.At = kernel.Monotonic()
	for _, f := range s.list() {
		if err := f.err.Load(); err != nil && c.Failed == "" {
			c.Failed = (*err).Error()
		}
		if !f.sends {
			c.Down = append(c.Down, f.taken.Load())
			continue
		}
		info, err := f.info()
		if err != nil {
			c.Failed = err.Error()
			continue
		}
		// What the other end has acknowledged has arrived there.
		c.Up = append(c.Up, info.Bytes_acked)
		c.Resent += uint64(info.Total_retrans)
	}
	return c
}

// answer tells the count whenever a line asks for it.
func (s *flows) answer(lines *bufio.Scanner, out io.Writer) error {
	for lines.Scan() {
		if err := json.NewEncoder(out).Encode(s.count()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// serve takes connections, on each of which its client says who sends, and sends datagrams back at
// the same port, on a core.
func serve(ctx context.Context, at netip.AddrPort, cpu int, in io.Reader, out io.Writer) error {
	e, err := echo.ServeHere(netip.AddrPortFrom(at.Addr(), probePort), cpu)
	if err != nil {
		return err
	}
	defer e.Close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", at.String())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	s := new(flows)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.greet(c.(*net.TCPConn))
		}
	}()
	fmt.Fprintln(out, sayReady)
	return s.answer(bufio.NewScanner(in), out)
}

// greet hears who sends on a connection, and does so.
func (s *flows) greet(c *net.TCPConn) {
	defer c.Close()
	said := make([]byte, 1)
	if _, err := io.ReadFull(c, said); err != nil {
		return
	}
	f := &flow{TCPConn: c, sends: said[0] == sayDown}
	s.add(f)
	f.run()
}

// patience is the longest time that a connection may take to begin.
const patience = 5 * time.Second

// clients are the other end: connections, and the queue of their device.
type clients struct {
	flows
	to            netip.AddrPort
	each          int // connections each way
	device, queue string
	bits          float64 // a second, of the queue
	from          []netip.Addr
}

// run puts the queue there, and does as lines say, until they end.
func (c *clients) run(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	link, err := netlink.LinkByName(c.device)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", c.device, err)
	}
	if c.queue != NoQueue {
		err := queue.Put(ctx, lab.Here(), c.device, c.queue, c.bits)
		if errors.Is(err, contender.ErrMissing) {
			fmt.Fprintln(out, sayMissing+err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, queue.Remove(context.WithoutCancel(ctx), lab.Here(), c.device))
		}()
	}
	defer c.close()
	fmt.Fprintln(out, sayReady)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case askBegin:
			if err := c.begin(ctx); err != nil {
				return err
			}
			fmt.Fprintln(out, sayReady)
		case askEnd:
			c.close()
			fmt.Fprintln(out, sayReady)
		default:
			n := c.count()
			if n.Queues, err = queue.Read(link.Attrs().Index); err != nil {
				return err
			}
			if err := json.NewEncoder(out).Encode(n); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// begin begins the connections, and the load once all are there.
func (c *clients) begin(ctx context.Context) error {
	if err := c.connect(ctx, c.to, c.each, c.from); err != nil {
		return err
	}
	for _, f := range c.list() {
		says := byte(sayDown)
		if f.sends {
			says = sayUp
		}
		if _, err := f.Write([]byte{says}); err != nil {
			return fmt.Errorf("speak with the service: %w", err)
		}
		go f.run()
	}
	return nil
}

// connect reaches the service so many times for each way. Nothing is sent before all are there:
// the later ones would wait behind the load of the first.
func (s *flows) connect(ctx context.Context, to netip.AddrPort, n int, from []netip.Addr) error {
	for i := range 2 * n {
		d := net.Dialer{Timeout: patience, LocalAddr: net.TCPAddrFromAddrPort(
			netip.AddrPortFrom(from[i%len(from)], 0))}
		c, err := d.DialContext(ctx, "tcp4", to.String())
		if err != nil {
			return fmt.Errorf("reach the service: %w", err)
		}
		s.add(&flow{TCPConn: c.(*net.TCPConn), sends: i%2 == 1})
	}
	return nil
}

func (s *flows) close() {
	for _, f := range s.list() {
		f.Close()
	}
}
