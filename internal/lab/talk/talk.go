// Package talk has small services over UDP with their clients: as much of each protocol as it takes
// to join, and to go on. They are what a profile protects in a lab.
//
// In go the address of a service and those of clients; out comes whether a client was served. Each
// server says something that the client has to send back, computed from a key and the client's
// address, so that it keeps nothing of who asks. Nothing is encrypted: contents are drawn bytes of
// the length that the protocol has. The package must never listen outside a lab or a test.
package talk

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
	"golang.org/x/sys/unix"

	"levee/internal/usage"
)

// Service is a service with its clients.
type Service struct {
	Name string // of the profile that protects it
	What string // that clients do, in words
	Port uint16
	// Forged are first packets of a client, as who forges addresses sends them: what a template has
	// behind the port, a line each.
	Forged []string
	// Stray are the same of sessions that there are not; none where there are no sessions.
	Stray []string
	// AddressIsProof says that who is proven is an address, by TCP, and not a flow.
	AddressIsProof bool

	answer func(k key, from netip.AddrPort, msg []byte) []byte // nil: none
	join   func(c *talk) error
	// goOn is a packet within a session and its answer; nil where there are none.
	goOn func(c *talk) error
	// again is after how long a client repeats a packet that nobody answers; 0: not within any
	// patience.
	again time.Duration
	tcp   bool // the same over TCP, each message behind its length (RFC 1035 section 4.2.2)
}

// All are all services.
var All = []*Service{games, goldsrc, raknet, quic, wireguard, openvpn, teamspeak, names}

// Name returns a service's name.
func Name(s *Service) string { return s.Name }

// Find returns the service of that name.
func Find(name string) (*Service, error) {
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, usage.Wrongf("the lab has no service for the profile %q", name)
}

// key is the key of a server's computed values.
type key [2]uint64

// value returns n bytes, at most 16, for a client: nobody else can know them.
func (k key) value(from netip.AddrPort, n int) []byte {
	b, _ := from.MarshalBinary() // never fails
	hi, lo := siphash.Hash128(k[0], k[1], b)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)[:n]
}

// largest is the longest message that is read, in bytes.
const largest = 1500

// Serve answers at an address until ctx ends. ready is called once it does.
func (s *Service) Serve(ctx context.Context, addr netip.Addr, ready func()) error {
	at := netip.AddrPortFrom(addr, s.Port)
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("starting the service: %w", err)
	}
	defer c.Close()
	if err := roomy(c); err != nil {
		return err
	}
	var k key
	var seed [16]byte
	_, _ = rand.Read(seed[:]) // never fails
	k[0], k[1] = binary.NativeEndian.Uint64(seed[:]), binary.NativeEndian.Uint64(seed[8:])
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if s.tcp {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return fmt.Errorf("starting the service over TCP: %w", err)
		}
		defer l.Close()
		go s.serveTCP(l, k)
	}
	ready()
	b := make([]byte, largest)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue
		}
		if answer := s.answer(k, from, b[:n]); answer != nil {
			_, _ = c.WriteToUDPAddrPort(answer, from) // who does not listen is no error
		}
	}
}

// room is of the socket's buffer, in bytes. The usual one holds some 90 packets of 1,200 bytes that
// wait for the process.
const room = 4 << 20

// roomy gives a socket its buffer, beyond the system's bound where the process may.
func roomy(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
	})
}

// serveTCP answers one message of each connection until l is closed.
func (s *Service) serveTCP(l *net.TCPListener, k key) {
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(tcpPatience))
			if msg, err := readMessage(c); err == nil {
				from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
				_ = writeMessage(c, s.answer(k, from, msg)) // who has left is no error
			}
		}()
	}
}

// tcpPatience is the longest time for which a connection may last.
const tcpPatience = 2 * time.Second

// Client is a client of a service that has a socket of its own. Its methods may be used from
// several goroutines: packets of a session do not wait for each other, as one that is lost holds up
// no game.
type Client struct {
	*Service
	conn net.Conn
	from netip.Addr
	to   netip.AddrPort
	id   [8]byte // that it draws
	told []byte  // that the server gave it when it joined
	sent atomic.Uint32

	mu      sync.Mutex
	waiting []*question
}

// question is a message that waits for an answer.
type question struct {
	is     func(answer []byte) bool
	answer chan []byte
}

// talk is one thing that a client does, until its patience ends with the context.
type talk struct {
	*Client
	ctx context.Context
}

// Dial makes a client that has not sent anything.
func (s *Service) Dial(from, to netip.Addr) (*Client, error) {
	c := &Client{Service: s, from: from, to: netip.AddrPortFrom(to, s.Port)}
	_, _ = rand.Read(c.id[:]) // never fails
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		net.UDPAddrFromAddrPort(c.to))
	if err != nil {
		return nil, err
	}
	c.conn = conn
	go c.listen()
	return c, nil
}

// Close closes the socket.
func (c *Client) Close() error { return c.conn.Close() }

// listen hands each message of the server to who waits for it, until the socket is closed.
func (c *Client) listen() {
	b := make([]byte, largest)
	for {
		n, err := c.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // nobody listens there now
		}
		c.mu.Lock()
		for i, q := range c.waiting {
			if q.is(b[:n]) {
				q.answer <- slices.Clone(b[:n])
				c.waiting = slices.Delete(c.waiting, i, i+1)
				break
			}
		}
		c.mu.Unlock()
	}
}

// Join does what a client does to be served, until ctx's deadline.
func (c *Client) Join(ctx context.Context) error { return c.do(ctx, c.join) }

// GoesOn tells whether sessions of the service have packets besides those of the join.
func (s *Service) GoesOn() bool { return s.goOn != nil }

// GoOn sends a packet of a session and waits for its answer, until ctx's deadline.
func (c *Client) GoOn(ctx context.Context) error { return c.do(ctx, c.goOn) }

func (c *Client) do(ctx context.Context, f func(*talk) error) error {
	return f(&talk{c, ctx})
}

// ask sends a message and waits for an answer that is one. It repeats what nobody answers as the
// protocol's clients do.
func (c *talk) ask(msg []byte, is func(answer []byte) bool) ([]byte, error) {
	return c.askAnew(func() []byte { return msg }, is)
}

// askAnew is ask for messages that are not the same each time.
func (c *talk) askAnew(msg func() []byte, is func(answer []byte) bool) ([]byte, error) {
	q := &question{is, make(chan []byte, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, q)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting = slices.DeleteFunc(c.waiting, func(o *question) bool { return o == q })
	}()
	for {
		// Where nobody listens now, somebody may by the time at which it is repeated.
		if _, err := c.conn.Write(msg()); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, err
		}
		var again <-chan time.Time
		if c.again > 0 {
			again = time.After(c.again)
		}
		select {
		case answer := <-q.answer:
			return answer, nil
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		case <-again:
		}
	}
}
