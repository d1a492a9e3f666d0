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
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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

// sshServers are the names of the processes that hold SSH sessions: OpenSSH before and from 9.8,
// dropbear.
var sshServers = map[string]bool{"sshd": true, "sshd-session": true, "sshd-auth": true,
	"dropbear": true}

const sshPort = 22

// TCP states of include/net/tcp_states.h.
const (
	tcpEstablished = 1
	tcpListen      = 10
)

// sessions lists the established TCP connections that belong to an ancestor of this process, and
// those to an SSH server: in this network namespace, and in others where one of these processes is.
// A server in another PID namespace cannot be seen, so that every connection to port 22 is taken
// for one to an SSH server, and what SSH_CONNECTION says is believed.
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
	listens := map[uint16]bool{sshPort: true}
	for _, s := range socks {
		if s.State == tcpListen {
			listens[s.ID.SourcePort] = true
		}
	}
	for _, s := range socks {
		local, remote := addrPort(s.ID.Source, s.ID.SourcePort),
			addrPort(s.ID.Destination, s.ID.DestinationPort)
		what := owners.sockets[s.INode]
		switch {
		case isConnection(os.Getenv("SSH_CONNECTION"), local, remote):
			what = thisConnection
		case what == "" && local.Port() == sshPort:
			what = sshSession
		case what == "" && !owners.all && listens[local.Port()]:
			what = maySession
		}
		switch {
		case s.State != tcpEstablished, what == "", !local.IsValid(), !remote.IsValid(),
			remote.Addr().IsLoopback():
		case what == sshSession && !listens[local.Port()]: // a connection that it forwards
		default:
			out = append(out, Session{Local: local, Remote: remote, What: what,
				inode: s.INode})
		}
	}
	return out
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

// owners are the processes that may hold sessions.
type owners struct {
	sockets map[uint32]string   // what their sessions are, by the inodes of sockets
	holders map[uint32][]string // their ids, by the same
	procs   []string            // their directories below /proc
	all     bool                // each of them lets this process see its files
}

// socketOwners looks for the SSH servers and the ancestors of this process. A process that ends
// meanwhile is left out. To see the files of others takes their rights, or CAP_SYS_PTRACE.
func socketOwners() owners {
	out := owners{sockets: map[uint32]string{}, holders: map[uint32][]string{}, all: true}
	own := ancestors()
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		what := ""
		switch {
		case own[pid]:
			what = thisConnection
		case sshServers[commOf(dir)]:
			what = sshSession
		default:
			continue
		}
		out.procs = append(out.procs, dir)
		if _, err := os.ReadDir(dir + "/fd"); errors.Is(err, fs.ErrPermission) {
			out.all = false
		}
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if errors.Is(err, fs.ErrPermission) {
				out.all = false
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				n, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 32)
				if err == nil && out.sockets[uint32(n)] != thisConnection {
					out.sockets[uint32(n)] = what
				}
				out.holders[uint32(n)] = append(out.holders[uint32(n)], filepath.Base(dir))
			}
		}
	}
	return out
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
