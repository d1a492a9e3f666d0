package echo

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Of RFC 792 and RFC 791.
const (
	icmpHeader   = 8
	ipHeader     = 20
	ipHeaderMost = 60
	echoRequest  = 8
	echoReply    = 0
)

// pinging makes a socket of echo requests in the calling thread's namespace.
func pinging(from netip.Addr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return -1, err
	}
	const filter = 1 // ICMP_FILTER of include/uapi/linux/icmp.h; the bit of a type keeps it away
	t := unix.NsecToTimeval(int64(pollEvery))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t),
		unix.SetsockoptInt(fd, unix.SOL_RAW, filter, ^(1<<echoReply)),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// asRequest makes an echo request of a header that is empty or of the one before, and what it
// carries.
func asRequest(b []byte, id, number uint16) {
	b[0], b[1], b[2], b[3] = echoRequest, 0, 0, 0
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], number)
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
}

// answered returns what an echo reply carries, as a raw socket hands it over; nil of anything else.
func answered(b []byte) []byte {
	if len(b) < ipHeader {
		return nil
	}
	head := int(b[0]&0xf) * 4
	if head < ipHeader || len(b) < head+icmpHeader || b[head] != echoReply {
		return nil
	}
	return b[head+icmpHeader:]
}
