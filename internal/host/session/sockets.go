package session

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/host/procnet"
)

// ownProc is this thread, below /proc: another may be in another network namespace.
const ownProc = "/proc/thread-self"

// tcpSockets lists the TCP sockets of the network namespace of a process, which is named by its
// directory below /proc. The error matches fs.ErrNotExist where the process has ended.
func tcpSockets(proc string) ([]procnet.Socket, error) {
	list := netlink.SocketDiagTCP
	if proc != ownProc {
		ns, err := netns.GetFromPath(proc + "/ns/net")
		if err != nil {
			return nil, fmt.Errorf("find another network namespace: %w", err)
		}
		defer ns.Close()
		h, err := netlink.NewHandleAt(ns, unix.NETLINK_INET_DIAG)
		switch {
		case err == nil:
			defer h.Close()
			list = h.SocketDiagTCP
		case noDiag(err):
			return socketFiles(proc)
		default:
			return nil, fmt.Errorf("open another network namespace: %w", err)
		}
	}
	return socketsBy(list, proc)
}

// socketsBy asks a kernel, and where it cannot tell reads what it writes for people: that is slower
// on a machine with many connections, and takes no module.
func socketsBy(list func(family uint8) ([]*netlink.Socket, error), proc string) (
	[]procnet.Socket, error) {
	var all []procnet.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		socks, err := list(family)
		if noDiag(err) {
			return socketFiles(proc)
		}
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
		for _, s := range socks {
			out := procnet.Socket{Local: addrPort(s.ID.Source, s.ID.SourcePort),
				Remote: addrPort(s.ID.Destination, s.ID.DestinationPort),
				State:  s.State, UID: s.UID, Inode: s.INode}
			if out.Local.IsValid() && out.Remote.IsValid() {
				all = append(all, out)
			}
		}
	}
	return all, nil
}

// noDiag tells the errors of a kernel without the modules tcp_diag, inet_diag or sock_diag: nothing
// registered for TCP, and no such protocol of netlink.
func noDiag(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// socketFiles lists the TCP sockets by the files of a process.
func socketFiles(proc string) (all []procnet.Socket, err error) {
	for _, file := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(proc + "/net/" + file)
		if errors.Is(err, fs.ErrNotExist) && file == "tcp6" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			if s, ok := procnet.Parse(line); ok {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}
