package route

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// routeBatch is the number of routes in one message to the kernel: 76 bytes each for IPv6, so that
// all fit into a socket's buffer of 212,992, the default.
const routeBatch = 1000

// router installs routes into the main table of the calling thread's network namespace, many a
// system call (rtnetlink(7)): the way of routing daemons. All routes have one gateway, so that the
// tree is measured and not the next hops.
type router struct {
	fd      int
	device  uint32
	gateway netip.Addr
	buf     []byte
	seq     uint32
}

// newRouter opens a socket in the namespace; it works there from any thread.
func newRouter(device int, gateway netip.Addr) (*router, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, kernel.Refuse(err, "open a socket to the routing table")
	}
	r := &router{fd: fd, device: uint32(device), gateway: gateway, seq: 1}
	// Nothing here waits without a bound; one batch takes milliseconds.
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("preparing the socket to the routing table: %w", err)
	}
	return r, nil
}

func (r *router) close() { unix.Close(r.fd) }

// add installs new routes.
func (r *router) add(ctx context.Context, prefixes []netip.Prefix) error {
	for len(prefixes) > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n := min(routeBatch, len(prefixes))
		if err := r.send(prefixes[:n], unix.NLM_F_CREATE|unix.NLM_F_EXCL); err != nil {
			return err
		}
		prefixes = prefixes[n:]
	}
	return nil
}

// replace gives a route that is there its next hop again.
func (r *router) replace(p netip.Prefix) error {
	return r.send([]netip.Prefix{p}, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// send makes one system call of many messages. The kernel answers the last, and each that it
// refuses.
func (r *router) send(prefixes []netip.Prefix, flags uint16) error {
	r.buf = r.buf[:0]
	for i, p := range prefixes {
		f := flags | unix.NLM_F_REQUEST
		if i == len(prefixes)-1 {
			f |= unix.NLM_F_ACK
		}
		r.message(p, f)
	}
	last := r.seq - 1
	if err := unix.Sendto(r.fd, r.buf, 0,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("installing %d routes: %w", len(prefixes), err)
	}
	first := last + 1 - uint32(len(prefixes))
	var refused error
	answer := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(r.fd, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for the routing table's answer: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return fmt.Errorf("reading the routing table's answer: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 || m.Header.Seq < first ||
				m.Header.Seq > last {
				continue
			}
			if code := -int32(binary.NativeEndian.Uint32(m.Data)); code != 0 && refused == nil {
				refused = fmt.Errorf("the kernel refuses route %s: %w",
					prefixes[m.Header.Seq-first], unix.Errno(code))
			}
			if m.Header.Seq == last {
				return refused
			}
		}
	}
}

// message appends one RTM_NEWROUTE: nlmsghdr, rtmsg and three attributes (linux/rtnetlink.h).
func (r *router) message(p netip.Prefix, flags uint16) {
	start := len(r.buf)
	family := byte(unix.AF_INET)
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	r.buf = append(r.buf, make([]byte, unix.SizeofNlMsghdr)...)
	r.buf = append(r.buf, family, byte(p.Bits()), 0, 0, // source length, TOS
		unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0,
		0)
	r.attribute(unix.RTA_DST, p.Addr().AsSlice())
	r.attribute(unix.RTA_GATEWAY, r.gateway.AsSlice())
	r.attribute(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, r.device))
	h := r.buf[start:]
	binary.NativeEndian.PutUint32(h, uint32(len(h)))
	binary.NativeEndian.PutUint16(h[4:], unix.RTM_NEWROUTE)
	binary.NativeEndian.PutUint16(h[6:], flags)
	binary.NativeEndian.PutUint32(h[8:], r.seq)
	r.seq++
}

// attribute appends one whose value is a multiple of 4 bytes.
func (r *router) attribute(typ uint16, value []byte) {
	r.buf = binary.NativeEndian.AppendUint16(r.buf, uint16(unix.SizeofRtAttr+len(value)))
	r.buf = binary.NativeEndian.AppendUint16(r.buf, typ)
	r.buf = append(r.buf, value...)
}

// installDeadline bounds filling a routing table.
const installDeadline = 3 * time.Minute
