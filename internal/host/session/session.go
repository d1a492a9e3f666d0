// Package session lists the established TCP connections of this machine over which somebody works
// on it: SSH sessions, and the connection that this process is being run over.
//
// It reads sockets, addresses, routes and interfaces by netlink, and the owners of sockets from
// /proc. It changes nothing.
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
	"golang.org/x/sys/unix"
)

// Session is one established TCP connection of this machine.
type Session struct {
	Local, Remote netip.AddrPort
	What          string   // in words: "an SSH session"
	Tags          []uint16 // VLAN ids with which its packets arrive, outermost first
}

// What a session is to the person at the other end.
const (
	thisConnection = "the connection that this command is being run over"
	sshSession     = "an SSH session"
	maySession     = "what may be an SSH session (which process holds it is told with CAP_SYS_PTRACE only)"
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

// sessions lists the established TCP connections of this network namespace that belong to an
// ancestor of this process, and those to an SSH server.
func sessions() ([]Session, error) {
	socks, err := tcpSockets()
	if err != nil {
		return nil, err
	}
	listens := map[uint16]bool{sshPort: true}
	for _, s := range socks {
		if s.State == tcpListen {
			listens[s.ID.SourcePort] = true
		}
	}
	owners, all := socketOwners()
	var out []Session
	for _, s := range socks {
		what := owners[s.INode]
		local, remote := addrPort(s.ID.Source, s.ID.SourcePort),
			addrPort(s.ID.Destination, s.ID.DestinationPort)
		if what == "" && !all && listens[local.Port()] {
			what = maySession
		}
		switch {
		case s.State != tcpEstablished, what == "", !local.IsValid(), !remote.IsValid(),
			remote.Addr().IsLoopback():
		case what == sshSession && !listens[local.Port()]: // a connection that it forwards
		default:
			out = append(out, Session{Local: local, Remote: remote, What: what})
		}
	}
	return out, nil
}

func tcpSockets() ([]*netlink.Socket, error) {
	var all []*netlink.Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		socks, err := netlink.SocketDiagTCP(family)
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

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// socketOwners maps the inodes of sockets to what their sessions are. A process that ends
// meanwhile is left out. all is false if one does not let this process see its files: that takes its
// rights, or CAP_SYS_PTRACE.
func socketOwners() (_ map[uint32]string, all bool) {
	all = true
	owners := map[uint32]string{}
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
		if _, err := os.ReadDir(dir + "/fd"); errors.Is(err, fs.ErrPermission) {
			all = false
		}
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if errors.Is(err, fs.ErrPermission) {
				all = false
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				n, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 32)
				if err == nil && owners[uint32(n)] != thisConnection {
					owners[uint32(n)] = what
				}
			}
		}
	}
	return owners, all
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
