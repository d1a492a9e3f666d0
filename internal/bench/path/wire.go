package path

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Headers in front of what a request carries.
const (
	ipv4Header = 20
	ipv6Header = 40
	icmpHeader = 8
)

// What a request carries, behind the header of ICMP: the token, then its number.
const (
	atNumber = 8
	carried  = atNumber + 4
)

// ping has a raw socket of ICMP for each family.
type ping struct {
	token   token
	sockets map[bool]int // of IPv6, or not
	sent    sync.Map     // time.Time by number
	answers chan answered
	closing atomic.Bool
	failed  atomic.Pointer[error] // of a socket that can be read no more
	close   func() error
}

// open opens the sockets that targets need, and receives until it is closed.
func open(targets []*Target, seed uint64) (*ping, error) {
	p := &ping{token: newToken(seed), sockets: map[bool]int{}, answers: make(chan answered, 1024)}
	var readers sync.WaitGroup
	p.close = sync.OnceValue(func() (err error) {
		p.closing.Store(true)
		readers.Wait()
		close(p.answers)
		for _, fd := range p.sockets {
			err = errors.Join(err, unix.Close(fd))
		}
		return err
	})
	for _, t := range targets {
		six := t.Address.Is6()
		if _, ok := p.sockets[six]; ok {
			continue
		}
		fd, err := socket(six)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a socket for echo requests: %w", err),
				p.close())
		}
		p.sockets[six] = fd
	}
	for six, fd := range p.sockets {
		readers.Go(func() { p.receive(fd, six) })
	}
	return p, nil
}

// awake is after which time a reader looks whether the wire is closed.
const awake = 50 * time.Millisecond

// socket makes a socket whose packets go whole or not at all, and whose answers come with the time
// at which the kernel saw them. It gets echo replies alone.
func socket(six bool) (fd int, err error) {
	family, proto, level := unix.AF_INET, unix.IPPROTO_ICMP, unix.IPPROTO_IP
	name, whole := unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if six {
		family, proto, level = unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.IPPROTO_IPV6
		name, whole = unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	if fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto); err != nil {
		return 0, err
	}
	const room = 4 << 20 // of many answers of 9,000 bytes
	wait := unix.NsecToTimeval(awake.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, level, name, whole),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
	)
	if six {
		filter := unix.ICMPv6Filter{}
		for i := range filter.Data {
			filter.Data[i] = math.MaxUint32
		}
		const reply = 129
		filter.Data[reply/32] &^= 1 << (reply % 32)
		err = errors.Join(err,
			unix.SetsockoptICMPv6Filter(fd, unix.SOL_ICMPV6, unix.ICMPV6_FILTER, &filter))
	} else {
		const filter = 1 // ICMP_FILTER of include/uapi/linux/icmp.h; bit 0 is an echo reply
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_RAW, filter, ^1))
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func (p *ping) Answers() <-chan answered { return p.answers }

func (p *ping) Close() error { return p.close() }

func (p *ping) Err() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Send sends a request.
func (p *ping) Send(to netip.Addr, bytes int, number uint32) error {
	six := to.Is6()
	m := icmp.Message{Type: ipv4.ICMPTypeEcho}
	headers := ipv4Header + icmpHeader
	if six {
		m.Type, headers = ipv6.ICMPTypeEchoRequest, ipv6Header+icmpHeader
	}
	data := make([]byte, bytes-headers)
	copy(data, p.token[:])
	binary.BigEndian.PutUint32(data[atNumber:], number)
	m.Body = &icmp.Echo{ID: os.Getpid() & math.MaxUint16, Seq: int(number) & math.MaxUint16,
		Data: data}
	b, err := m.Marshal(nil) // of IPv6 the kernel makes the sum
	if err != nil {
		return err
	}
	var at unix.Sockaddr = &unix.SockaddrInet4{}
	if six {
		at = &unix.SockaddrInet6{Addr: to.As16(), ZoneId: zone(to)}
	} else {
		at = &unix.SockaddrInet4{Addr: to.As4()}
	}
	p.sent.Store(number, time.Now())
	err = unix.Sendto(p.sockets[six], b, 0, at)
	if err != nil {
		p.sent.Delete(number)
	}
	if errors.Is(err, unix.EMSGSIZE) {
		return errTooLarge
	}
	return err
}

// lasting is the number of errors in a row that are of the socket itself. One of a message before,
// or of an interface that went down, is told once (SO_ERROR of socket(7)).
const lasting = 16

// receive takes answers until the wire is closed or the socket fails.
func (p *ping) receive(fd int, six bool) {
	b, oob := make([]byte, 1<<16), make([]byte, 256)
	for errs := 0; !p.closing.Load(); {
		n, m, _, _, err := unix.Recvmsg(fd, b, oob, 0)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			errs = 0
			continue
		case err != nil:
			if errs++; errs == lasting {
				p.failed.Store(&err)
				return
			}
			continue
		}
		errs = 0
		if a, ok := p.answer(b[:n], six); ok {
			if begun, known := p.sent.LoadAndDelete(a.number); known {
				a.ns = float64(came(oob[:m]).Sub(begun.(time.Time)))
				p.answers <- a
			}
		}
	}
}

// answer reads a packet that came, from the header of IPv4 or that of ICMPv6 on.
func (p *ping) answer(b []byte, six bool) (a answered, ok bool) {
	if !six {
		if len(b) < ipv4Header || len(b) < int(b[0]&0xf)*4 {
			return a, false
		}
		b = b[int(b[0]&0xf)*4:]
	}
	if len(b) < icmpHeader+carried || !slices.Equal(b[icmpHeader:icmpHeader+atNumber], p.token[:]) {
		return a, false
	}
	a.number = binary.BigEndian.Uint32(b[icmpHeader+atNumber:])
	return a, true
}

// came returns the time at which the kernel saw a packet, by the messages beside it. Both ends of a
// round trip are read off the clock of the day, since the kernel stamps by that.
func came(oob []byte) time.Time {
	all, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range all {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS &&
			len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)),
				int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now().Round(0)
}
