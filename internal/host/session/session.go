// Package session lists the established TCP connections of this machine over which somebody works
// on it: SSH sessions, and the connection of this process's own session.
//
// It reads sockets, addresses, routes, neighbours and interfaces by netlink, the owners of sockets
// from /proc, and the sockets too where the kernel has no tcp_diag. It changes nothing.
package session

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"levee/internal/host/procnet"
)

// Session is one established TCP connection of this machine.
type Session struct {
	Local, Remote netip.AddrPort
	What          string   // in words: "an SSH session"
	Tags          []uint16 // VLAN ids with which its packets arrive, outermost first
	MTU           int      // of the interface; 0 is unknown
	// Ethernet addresses of its packets; empty is unknown.
	SrcMAC, DstMAC net.HardwareAddr
	// Neighbour is the packets' sender on this link, if ARP or neighbour discovery finds it.
	Neighbour netip.Addr
	// Own: its socket is of this network namespace, so that this machine sends what leaves of it
	// as UID, who has Users as names. Else packets may be forwarded, and who sends is not known.
	Own   bool
	UID   uint32
	Users []string
	// Back: the kernel routes what goes to the other end out of the interface itself.
	Back bool
	// Again: somebody listens at its local port, where the other end may begin another.
	Again bool

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
// A connection counts as a session by facts that only root can make (see ssh), and only after a
// login. Otherwise anybody who opens a connection or names a process could keep policies from
// coming into force. A server in another PID namespace is invisible: there each connection at port
// 22 that root holds counts, and SSH_CONNECTION is believed.
func sessions() (here, elsewhere []Session, err error) { return sessionsOf(socketOwners()) }

func sessionsOf(owners owners) (here, elsewhere []Session, err error) {
	socks, err := tcpSockets(ownProc)
	if err != nil {
		return nil, nil, err
	}
	here = established(socks, owners)
	for _, proc := range otherNamespaces(owners.procs) {
		socks, err := tcpSockets(proc)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its last process has ended
		}
		if errors.Is(err, fs.ErrPermission) {
			continue // it takes CAP_SYS_ADMIN
		}
		if err != nil {
			return nil, nil, err
		}
		elsewhere = append(elsewhere, established(socks, owners)...)
	}
	return here, elsewhere, nil
}

// AcceptedBy returns the sessions at ports where one of these processes listens, in this network
// namespace and in theirs, as that of a container. The kernel counts their packets among those of
// the cgroup in which it has opened the port, whatever process has them since.
func AcceptedBy(pids []int) (all []Session, err error) {
	of := map[uint32]bool{}
	dirs := make([]string, len(pids))
	for i, pid := range pids {
		dirs[i] = fmt.Sprintf("/proc/%d", pid)
		inodes, _ := socketsOf(dirs[i])
		for _, inode := range inodes {
			of[inode] = true
		}
	}
	for _, proc := range append([]string{ownProc}, otherNamespaces(dirs)...) {
		socks, err := tcpSockets(proc)
		if proc != ownProc && errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return all, err
		}
		ports := map[uint16]bool{}
		for _, s := range socks {
			if s.State == tcpListen && of[s.Inode] {
				ports[s.Local.Port()] = true
			}
		}
		if len(ports) == 0 {
			continue
		}
		all = append(all, slices.DeleteFunc(established(socks, socketOwners()),
			func(s Session) bool { return !ports[s.Local.Port()] })...)
	}
	return all, nil
}

// established picks the sessions out of the sockets of a network namespace.
func established(socks []procnet.Socket, owners owners) (out []Session) {
	ports := listening(socks)
	for _, s := range socks {
		if s.State != tcpEstablished || s.Remote.Addr().IsLoopback() {
			continue
		}
		what := ""
		switch {
		case owners.own[s.Inode], isConnection(os.Getenv("SSH_CONNECTION"), s.Local, s.Remote):
			what = thisConnection
		case ports.ssh(s):
			what = owners.what(s.Inode, s.Local.Port())
		}
		if what != "" {
			_, again := ports[s.Local.Port()]
			out = append(out, Session{Local: s.Local, Remote: s.Remote, What: what, UID: s.UID,
				Again: again, inode: s.Inode})
		}
	}
	return out
}

// listeners are the ports at which somebody listens; true: root does.
type listeners map[uint16]bool

func listening(socks []procnet.Socket) listeners {
	out := listeners{}
	for _, s := range socks {
		if s.State == tcpListen {
			out[s.Local.Port()] = out[s.Local.Port()] || s.UID == 0
		}
	}
	return out
}

// ssh tells whether a connection may be that of an SSH server: root has accepted it (it has an
// inode from then on, and the user of whoever called accept), at a port where root listens. At port
// 22 a server may have been told to listen elsewhere since. What an SSH server forwards is at no
// port where it listens.
func (l listeners) ssh(s procnet.Socket) bool {
	rooted, somebody := l[s.Local.Port()]
	return s.Inode != 0 && s.UID == 0 &&
		(rooted || !somebody && s.Local.Port() == sshPort)
}

// isConnection says whether SSH_CONNECTION, as sshd(8) sets it, is about a connection.
func isConnection(env string, local, remote netip.AddrPort) bool {
	words := strings.Fields(env)
	return len(words) == 4 && words[0] == remote.Addr().String() &&
		words[1] == strconv.Itoa(int(remote.Port())) &&
		words[2] == local.Addr().String() && words[3] == strconv.Itoa(int(local.Port()))
}

// otherNamespaces are processes in the network namespaces, besides this one, in which one of some
// processes is: one each. A process is named by its directory below /proc.
func otherNamespaces(of []string) (procs []string) {
	own, _ := os.Readlink(ownProc + "/ns/net")
	seen := map[string]bool{own: true}
	for _, dir := range of {
		if ns, err := os.Readlink(dir + "/ns/net"); err == nil && !seen[ns] {
			seen[ns] = true
			procs = append(procs, dir)
		}
	}
	return procs
}

func commOf(procDir string) string {
	b, _ := os.ReadFile(procDir + "/comm")
	return strings.TrimSpace(string(b))
}

// ancestors returns the processes between this one and process 1, both left out.
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
