package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// contact is the result of a whole connection to a port that accepts.
type contact struct {
	state  contactState
	banner string // the first bytes of what the service says
}

type contactState uint8

const (
	untried   contactState = iota
	connected              // and it stayed so, or said something
	refused
	resetAtOnce // it was made and reset before a byte came
	noneMade    // within dialsWithin
)

// Limits of a contact.
const (
	dialsWithin  = 3 * time.Second
	speaksWithin = 2 * time.Second
	// A proxy of SYNs resets a connection when the host behind it has refused one.
	resetsWithin = 500 * time.Millisecond
	// How long the end of a silent connection may take, with two repetitions.
	finishesWithin = 1500 * time.Millisecond
	bannerBytes    = 256
	contactsOnce   = 16 // at the same time
)

// contactAll connects to ports that accept, since what answers a SYN may be no more than a cookie
// or a proxy; to none where connections were not wanted, and none that is left alone.
func (r *run) contactAll(ctx context.Context) error {
	type one struct {
		number int
		again  bool // the first connection may only prove this client
		to     netip.AddrPort
	}
	var todo []one
	r.mu.Lock()
	first := r.begin(aService)
	for n := first; n < first+r.counts()[aService]; n++ {
		res := &r.results[n]
		cookie := res.rule > 0 && r.rules[res.rule-1].Verdict == answered
		if t := r.target(n); res.kind == accepts && !r.HalfOpen && r.left(t.to) == "" {
			todo = append(todo, one{n, cookie, netip.AddrPortFrom(t.to, t.Port)})
		}
	}
	r.mu.Unlock()
	r.contacts = map[int]contact{}
	slots := make(chan struct{}, contactsOnce)
	var all sync.WaitGroup
	defer all.Wait()
	// A connection is some packets of each side.
	pace := 10 * time.Second / time.Duration(r.Rate)
	for _, o := range todo {
		if err := pause(ctx, pace); err != nil {
			return err
		}
		slots <- struct{}{}
		r.mu.Lock()
		left := r.left(o.to.Addr()) != "" // by now
		r.mu.Unlock()
		if left {
			<-slots
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			c := touch(ctx, o.to, r.Banners)
			if o.again && c.state != connected {
				c = touch(ctx, o.to, r.Banners)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.contacts[o.number] = c
		})
	}
	return nil
}

// touch connects, and looks whether that lasts. For a banner it listens for what the service says;
// one that says nothing is asked as a web server is.
func touch(ctx context.Context, to netip.AddrPort, banner bool) contact {
	d := net.Dialer{Timeout: dialsWithin}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	switch {
	case err != nil && ctx.Err() != nil:
		return contact{} // whoever asked ends it
	case errors.Is(err, unix.ECONNREFUSED):
		return contact{state: refused}
	case errors.Is(err, unix.ECONNRESET):
		return contact{state: resetAtOnce}
	case err != nil:
		return contact{state: noneMade}
	}
	defer conn.Close()
	h := &heard{conn: conn}
	err = h.listen(resetsWithin, banner)
	late := func() bool { return errors.Is(err, os.ErrDeadlineExceeded) }
	if banner && late() {
		if err = h.listen(speaksWithin-resetsWithin, true); late() && len(h.bytes) == 0 {
			err = h.ask("HEAD / HTTP/1.0\r\n\r\n")
		}
	}
	said := h.line()
	switch {
	case said != "" && banner:
		return contact{connected, said}
	case said != "", errors.Is(err, io.EOF):
		return contact{state: connected}
	}
	return contact{state: ends(conn.(*net.TCPConn), err)}
}

// heard holds the words of a service.
type heard struct {
	conn  net.Conn
	bytes []byte // at most bannerBytes
}

// listen waits for something to come, or for a whole line, of which a service may say one letter
// after the other. Its error says why no more comes; there is none once it has what it waits for.
func (h *heard) listen(within time.Duration, whole bool) error {
	_ = h.conn.SetDeadline(time.Now().Add(within))
	buf := make([]byte, bannerBytes)
	for {
		n, err := h.conn.Read(buf[:bannerBytes-len(h.bytes)])
		h.bytes = append(h.bytes, buf[:n]...)
		if err != nil || !whole || len(h.bytes) == bannerBytes ||
			bytes.IndexByte(h.bytes, '\n') >= 0 {
			return err
		}
	}
}

// ask says something, and listens for a line.
func (h *heard) ask(text string) error {
	_ = h.conn.SetDeadline(time.Now().Add(speaksWithin))
	if _, err := h.conn.Write([]byte(text)); err != nil {
		return err
	}
	return h.listen(speaksWithin, true)
}

// line returns the first line that was heard, "" of nothing.
func (h *heard) line() string {
	line, _, _ := strings.Cut(string(h.bytes), "\n")
	if line = strings.TrimSpace(line); len(h.bytes) > 0 && line == "" {
		line = "(an empty line)"
	}
	return line
}

// ends ends a connection on which nothing was said: the host behind it acknowledges that, and the
// kernel says it again where it is lost, as a reset is not.
func ends(conn *net.TCPConn, err error) contactState {
	if errors.Is(err, os.ErrDeadlineExceeded) && conn.CloseWrite() == nil {
		err = (&heard{conn: conn}).listen(finishesWithin, false)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return connected
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return resetAtOnce
	case acknowledged(conn):
		return connected
	}
	return noneMade
}

// acknowledged says whether the other side has acknowledged the end of a connection.
func acknowledged(conn *net.TCPConn) (is bool) {
	const finWait2 = 5 // TCP_FIN_WAIT2 of net/tcp_states.h
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		is = err == nil && info.State == finWait2
	})
	return is
}
