// Package connected reads which sockets of this machine are connected to another one.
//
// Nothing goes in but a bound of time, sockets come out. It never opens one of theirs.
package connected

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Socket is one of TCP whose handshake is done, or one of UDP that is connected. Addresses are
// never IPv4-mapped.
type Socket struct {
	Proto         uint8
	Local, Remote netip.AddrPort
	Closing       bool // TCP: both sides have sent FIN
}

// From include/net/tcp_states.h. A socket of UDP that is connected has the first.
const (
	established = 1
	finWait1    = 4
	finWait2    = 5
	closeWait   = 8
	lastACK     = 9
	closing     = 11
)

// From include/uapi/linux/sock_diag.h and inet_diag.h: SOCK_DIAG_BY_FAMILY, and the lengths of
// struct inet_diag_req_v2 and struct inet_diag_msg.
const (
	diagByFamily = 20
	requestBytes = 56
	messageBytes = 72
)

// Each calls do for the sockets of this network namespace, for as long as most. A kernel that lists
// none, as one without the module inet_diag, has none. An error matches kernel.ErrRefused where the
// kernel refuses, which may be in the middle.
func Each(most time.Duration, do func(Socket)) error {
	begin := time.Now()
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			err := list(family, proto, begin, most, do)
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPROTONOSUPPORT) {
				return err
			}
		}
	}
	return nil
}

// list does so for one family and protocol.
func list(family, proto uint8, begin time.Time, most time.Duration, do func(Socket)) error {
	states := uint32(1 << established)
	if proto == unix.IPPROTO_TCP {
		states |= 1<<finWait1 | 1<<finWait2 | 1<<closeWait | 1<<lastACK | 1<<closing
	}
	body := make([]byte, requestBytes)
	body[0], body[1] = family, proto
	binary.NativeEndian.PutUint32(body[4:], states)
	req := nl.NewNetlinkRequest(diagByFamily, unix.NLM_F_DUMP)
	req.AddRawData(body)
	s, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return kernel.Refuse(err, "list sockets")
	}
	defer s.Close()
	if err := s.Send(req); err != nil {
		return kernel.Refuse(err, "list sockets")
	}
	if err := s.SetReceiveTimeout(new(unix.NsecToTimeval(int64(most)))); err != nil {
		return kernel.Refuse(err, "list sockets")
	}
	for {
		messages, _, err := s.Receive()
		if err != nil {
			return kernel.Refuse(err, "list sockets")
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_DONE && m.Header.Type != unix.NLMSG_ERROR {
				if out, ok := parse(m.Data, proto); ok {
					do(out)
				}
				continue
			}
			if len(m.Data) < 4 || binary.NativeEndian.Uint32(m.Data) == 0 {
				return nil
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			return kernel.Refuse(errno, "list sockets")
		}
		if time.Since(begin) > most {
			return fmt.Errorf("list sockets: there are more than can be read in %v", most)
		}
	}
}

// parse reports whether a message is a socket with both ends.
func parse(m []byte, proto uint8) (Socket, bool) {
	if len(m) < messageBytes {
		return Socket{}, false
	}
	end := func(port, at int) netip.AddrPort {
		a := netip.AddrFrom16([16]byte(m[at:])).Unmap()
		if m[0] == unix.AF_INET {
			a = netip.AddrFrom4([4]byte(m[at:]))
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(m[port:]))
	}
	s := Socket{Proto: proto, Local: end(4, 8), Remote: end(6, 24),
		Closing: m[1] == lastACK || m[1] == closing}
	return s, s.Remote.Port() != 0
}
