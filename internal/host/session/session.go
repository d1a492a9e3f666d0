// Package session lists the established TCP connections of this machine over which somebody works
// on it: SSH sessions, and the connection that this process is being run over.
//
// It reads sockets, addresses, routes, neighbours and interfaces by netlink, and the owners of
// sockets from /proc. It changes nothing.
package session

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Session is one established TCP connection of this machine.
type Session struct {
	Local, Remote netip.AddrPort
	What          string   // in words: "an SSH session"
	Tags          []uint16 // VLAN ids with which its packets arrive, outermost first
	MTU           int      // of the interface; 0 is unknown
	// Ethernet addresses of its packets; empty is unknown.
	SrcMAC, DstMAC net.HardwareAddr
	// Neighbour is who sends the packets on this link, if ARP or neighbour discovery finds it.
	Neighbour netip.Addr

	inode uint32 // of the socket
}

// What a session is to the person at the other end.
const (
	thisConnection = "the connection that this command is being run over"
	sshSession     = "an SSH session"
	maySession     = "what may be an SSH session (which process holds it is told with " +
		"CAP_SYS_PTRACE only)"
)

const sshPort = 22

// TCP states of include/net/tcp_states.h.
const (
	tcpEstablished = 1
	tcpListen      = 10
)

// sessions lists the established TCP connections that belong to an ancestor of this process, and
// those to an SSH server: in this network namespace, and in others where one of these processes is.
//
// Whoever can make a connection, or name a process, must not be able to stand for somebody who is
// logged in: he could keep policies from coming into force. So a connection counts by facts that
// take root to make (see ssh), and not while it is known that nobody has logged in over it. A
// server in another PID namespace cannot be seen, so that every connection that root holds at port
// 22 is taken for one to an SSH server, and what SSH_CONNECTION says is believed.
func sessions() (here, elsewhere []Session, err error) { return sessionsOf(socketOwners()) }

func sessionsOf(owners owners) (here, elsewhere []Session, err error) {
	socks, err := tcpSockets(nil)
	if err != nil {
		return nil, nil, err
	}
	here = established(socks, owners)
	for _, path := range otherNamespaces(owners) {
		ns, err := netns.GetFromPath(path)
		if err != nil {
			continue // its last process has ended, or it takes more rights
		}
		socks, err := tcpSockets(&ns)
		_ = ns.Close()
		if errors.Is(err, unix.EPERM) {
			continue // it takes CAP_SYS_ADMIN
		}
		if err != nil {
			return nil, nil, err
		}
		elsewhere = append(elsewhere, established(socks, owners)...)
	}
	return here, elsewhere, nil
}

// established picks the sessions out of the sockets of a network namespace.
func established(socks []*netlink.Socket, owners owners) (out []Session) {
	ports := listening(socks)
	for _, s := range socks {
		local, remote := addrPort(s.ID.Source, s.ID.SourcePort),
			addrPort(s.ID.Destination, s.ID.DestinationPort)
		if s.State != tcpEstablished || !local.IsValid() || !remote.IsValid() ||
			remote.Addr().IsLoopback() {
			continue
		}
		what := ""
		switch {
		case owners.own[s.INode], isConnection(os.Getenv("SSH_CONNECTION"), local, remote):
			what = thisConnection
		case ports.ssh(s):
			what = owners.what(s.INode, local.Port())
		}
		if what != "" {
			out = append(out, Session{Local: local, Remote: remote, What: what, inode: s.INode})
		}
	}
	return out
}

// listeners are the ports at which somebody listens; true: root does.
type listeners map[uint16]bool

func listening(socks []*netlink.Socket) listeners {
	out := listeners{}
	for _, s := range socks {
		if s.State == tcpListen {
			out[s.ID.SourcePort] = out[s.ID.SourcePort] || s.UID == 0
		}
	}
	return out
}

// ssh tells whether a connection may be that of an SSH server: root has accepted it (it has an
// inode from then on, and the user of whoever called accept), at a port where root listens. At port
// 22 a server may have been told to listen elsewhere since. What an SSH server forwards is at no
// port where it listens.
func (l listeners) ssh(s *netlink.Socket) bool {
	rooted, somebody := l[s.ID.SourcePort]
	return s.INode != 0 && s.UID == 0 &&
		(rooted || !somebody && s.ID.SourcePort == sshPort)
}

// isConnection says whether SSH_CONNECTION, as sshd(8) sets it, is about a connection.
func isConnection(env string, local, remote netip.AddrPort) bool {
	words := strings.Fields(env)
	return len(words) == 4 && words[0] == remote.Addr().String() &&
		words[1] == strconv.Itoa(int(remote.Port())) &&
		words[2] == local.Addr().String() && words[3] == strconv.Itoa(int(local.Port()))
}

// tcpSockets lists the TCP sockets of a network namespace, of this one if ns is nil.
func tcpSockets(ns *netns.NsHandle) ([]*netlink.Socket, error) {
	list := netlink.SocketDiagTCP
	if ns != nil {
		h, err := netlink.NewHandleAt(*ns, unix.NETLINK_INET_DIAG)
		if err != nil {
			return nil, fmt.Errorf("open another network namespace: %w", err)
		}
		defer h.Close()
		list = h.SocketDiagTCP
	}
	var all []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		socks, err := list(family)
		if errors.Is(err, unix.ENOENT) && family == unix.AF_INET6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list TCP sockets: %w", err)
		}
		all = append(all, socks...)
	}
	return all, nil
}

// otherNamespaces are the files of the network namespaces, besides this one, in which a process is
// that may hold a session.
func otherNamespaces(owners owners) (paths []string) {
	own, _ := os.Readlink("/proc/thread-self/ns/net")
	seen := map[string]bool{own: true}
	for _, dir := range owners.procs {
		path := dir + "/ns/net"
		if ns, err := os.Readlink(path); err == nil && !seen[ns] {
			seen[ns] = true
			paths = append(paths, path)
		}
	}
	return paths
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

func commOf(procDir string) string {
	b, _ := os.ReadFile(procDir + "/comm")
	return strings.TrimSpace(string(b))
}

// ancestors are the processes between this one and process 1, both left out.
func ancestors() map[int]bool {
	all := map[int]bool{}
	for pid := os.Getppid(); pid > 1 && !all[pid]; pid = parentOf(pid) {
		all[pid] = true
	}
	return all
}

// parentOf reads field 4 of /proc/PID/stat, counted from behind the name, which may hold anything;
// 0 if the process has ended.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
