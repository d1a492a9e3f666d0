// Package procnet reads lines of /proc/net/tcp and its like: tcp6, udp, udp6, raw, raw6.
//
// A line goes in, a socket comes out. It must never open a file: whose they are, callers know.
package procnet

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// Socket is a line. IPv4 in IPv6 is IPv4.
type Socket struct {
	Local, Remote netip.AddrPort
	State         uint8 // of include/net/tcp_states.h
	UID           uint32
	Inode         uint32 // 0: of no process yet or any more
}

// Columns of a line.
const (
	number, local, remote, state, uid, inode = 0, 1, 2, 3, 7, 9
	columns                                  = 10
)

// Parse reads a line. ok is false for one that is not of a socket, as the head of the file.
func Parse(line string) (s Socket, ok bool) {
	f := strings.Fields(line)
	if len(f) < columns || !strings.HasSuffix(f[number], ":") {
		return Socket{}, false
	}
	st, err1 := strconv.ParseUint(f[state], 16, 8)
	id, err2 := strconv.ParseUint(f[uid], 10, 32)
	node, err3 := strconv.ParseUint(f[inode], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return Socket{}, false
	}
	s = Socket{State: uint8(st), UID: uint32(id), Inode: uint32(node)}
	var ok1, ok2 bool
	s.Local, ok1 = addrPort(f[local])
	s.Remote, ok2 = addrPort(f[remote])
	return s, ok1 && ok2
}

// addrPort reads an address, whose words are of the machine's byte order, and a port.
func addrPort(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), true
}
