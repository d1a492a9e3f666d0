package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sshServers are the names of the processes that hold SSH sessions, and of their programs: OpenSSH
// before and from 9.8, Dropbear.
var sshServers = map[string]bool{"sshd": true, "sshd-session": true, "sshd-auth": true,
	"dropbear": true, "dropbearmulti": true}

// owners are the processes that hold sockets of sessions.
type owners struct {
	own     map[uint32]bool     // sockets of ancestors of this process, by their inodes
	traps   map[uint32]bool     // sockets of a trap of levee's
	holders map[uint32][]string // ids of the SSH servers that hold a socket
	procs   []string            // directories of all these below /proc
	all     bool                // each SSH server lets this process see its files
}

// what names the session of a connection that root has accepted at a port, "" if it is no session.
func (o *owners) what(inode uint32, port uint16) string {
	switch {
	case o.traps[inode]:
		return "" // the trap lets nobody in
	case len(o.holders[inode]) > 0:
		if o.unproven(inode) {
			return ""
		}
		return sshSession
	case port == sshPort:
		return sshSession
	case !o.all:
		return maySession
	}
	return ""
}

// unproven tells whether it is known that nobody has logged in yet over a connection: everybody can
// make one, and those who try passwords always have some.
func (o *owners) unproven(inode uint32) bool {
	pids := o.holders[inode]
	in := func(pid string) bool { return loggedIn("/proc", pid) }
	return !slices.ContainsFunc(pids, in) && slices.ContainsFunc(pids, beforeLogin)
}

// beforeLogin tells whether a process of OpenSSH is there only until somebody has logged in, by
// what it is and by the title that it has given itself.
func beforeLogin(pid string) bool {
	dir := filepath.Join("/proc", pid)
	if commOf(dir) == "sshd-auth" {
		return true
	}
	b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	title := strings.TrimSpace(strings.TrimRight(string(b), "\x00"))
	return slices.ContainsFunc([]string{"[accepted]", "[net]", "[preauth]"},
		func(end string) bool { return strings.HasSuffix(title, end) })
}

// socketOwners looks at the processes of this PID namespace.
func socketOwners() owners {
	out := owners{own: map[uint32]bool{}, traps: map[uint32]bool{}, holders: map[uint32][]string{},
		all: true}
	own := ancestors()
	servers := servers{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		id := filepath.Base(dir)
		pid, _ := strconv.Atoi(id)
		comm := commOf(dir)
		server := sshServers[comm] && servers.is(pid)
		trap := comm == "levee" && isTrap(dir)
		if !own[pid] && !server && !trap {
			continue
		}
		out.procs = append(out.procs, dir)
		inodes, hidden := socketsOf(dir)
		out.all = out.all && !(hidden && server)
		for _, inode := range inodes {
			switch {
			case own[pid]:
				out.own[inode] = true
			case server:
				out.holders[inode] = append(out.holders[inode], id)
			default:
				out.traps[inode] = true
			}
		}
	}
	return out
}

// socketsOf returns the inodes of the sockets that a process holds; hidden: some cannot be seen.
func socketsOf(dir string) (inodes []uint32, hidden bool) {
	if _, err := os.ReadDir(dir + "/fd"); errors.Is(err, fs.ErrPermission) {
		hidden = true
	}
	fds, _ := filepath.Glob(dir + "/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		hidden = hidden || errors.Is(err, fs.ErrPermission)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 32)
			if err == nil {
				inodes = append(inodes, uint32(n))
			}
		}
	}
	return inodes, hidden
}

// isTrap tells whether a process is `levee trap`. It is asked of what root has accepted only.
func isTrap(dir string) bool {
	b, _ := os.ReadFile(dir + "/cmdline")
	return slices.Contains(strings.Split(string(b), "\x00"), "trap")
}

// servers remembers which processes are SSH servers.
type servers map[int]bool

// is tells whether a process with the name of an SSH server is one: it is root's, and its program
// is, or it is a child of such a process, which has given up rights. Anybody can give a process
// that name, and whoever runs a set-user-ID program, one of root's.
func (s servers) is(pid int) bool {
	is, known := s[pid]
	if known {
		return is
	}
	s[pid] = false // of a circle, which there is none
	dir := "/proc/" + strconv.Itoa(pid)
	if sshServers[commOf(dir)] {
		parent := parentOf(pid)
		is = rootsAlone(dir) && rootsProgram(dir) || parent > 1 && s.is(parent)
	}
	s[pid] = is
	return is
}

// rootsAlone tells whether all user ids of a process are root's (proc_pid_status(5)).
func rootsAlone(dir string) bool {
	b, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(b)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			fields := strings.Fields(ids)
			return len(fields) == 4 && !slices.ContainsFunc(fields,
				func(id string) bool { return id != "0" })
		}
	}
	return false
}

// rootsProgram tells whether a process runs a program of an SSH server that only root can change,
// in the file system that this process sees: root of a container has made neither. Where that is
// hidden, it is taken for one.
func rootsProgram(dir string) bool {
	exe, err := os.Readlink(dir + "/exe")
	if errors.Is(err, fs.ErrPermission) {
		return true
	}
	name := filepath.Base(strings.TrimSuffix(exe, " (deleted)")) // replaced since by an update
	st, err := os.Stat(dir + "/exe")
	if err != nil || !sshServers[name] {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid != 0 || st.Mode().Perm()&0o022 != 0 {
		return false
	}
	its, err := os.Stat(dir + "/root")
	own, also := os.Stat("/")
	return err == nil && also == nil && os.SameFile(its, own)
}
