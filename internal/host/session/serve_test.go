package session

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
)

const serveEnv = "LEVEE_TEST_SERVE"

// TestMain is, in a child, a server that keeps what connects until its input ends.
func TestMain(m *testing.M) {
	at := os.Getenv(serveEnv)
	if at == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Println("accepted")
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serving is a server.
type serving struct {
	name   string   // of the program's file, and of its process
	title  []string // its arguments, with the first; none: the name
	link   bool     // the file is a link to another program
	uid    uint32
	rights os.FileMode // of the file; 0: as programs have
}

// serve runs a server in a namespace. accepted waits until it has accepted a connection.
func (n *nets) serve(t *testing.T, ns netns.NsHandle, s serving, at string) (accepted func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve") // other users get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, s.name)
	program := path
	if s.link {
		program = filepath.Join(dir, "program")
		if err := os.Symlink(program, path); err != nil {
			t.Fatal(err)
		}
	}
	if s.rights == 0 {
		s.rights = 0o755
	}
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err == nil {
		err = os.Chmod(program, s.rights)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: s.title, Env: []string{serveEnv + "=" + at},
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}}
	if s.title == nil {
		cmd.Args = []string{path}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.in(t, ns, func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	said := bufio.NewReader(out)
	accepted = func() {
		if _, err := said.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	accepted() // it listens
	return accepted
}

// TestWhoStandsForSomebodyLoggedIn: a client in the trap, and whoever had a process named sshd,
// kept each policy from coming into force ("refused: such as an SSH session"). So did whoever tried
// passwords.
func TestWhoStandsForSomebodyLoggedIn(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0", "192.0.2.1/24")
	n.in(t, n.far, func() { set(t, "eth0", "192.0.2.7/24") })
	for i, c := range []struct {
		what   string
		server serving
		want   string
	}{
		{"an SSH server", serving{name: "sshd"}, sshSession},
		{"somebody who has logged in", serving{name: "sshd", title: []string{"sshd: bob@pts/0"}},
			sshSession},
		{"Dropbear", serving{name: "dropbear", title: []string{"dropbear", "-F"}}, sshSession},
		{"a client of sshd that has not logged in", serving{name: "sshd",
			title: []string{"sshd: root [net]"}}, ""},
		{"the same, of newer versions", serving{name: "sshd-auth",
			title: []string{"sshd-auth: root [net]"}}, ""},
		{"a connection that was just accepted", serving{name: "sshd-session",
			title: []string{"sshd-session: [accepted]"}}, ""},
		{"the trap", serving{name: "levee", title: []string{"levee", "trap", "ssh"}}, ""},
		{"a user's process named sshd", serving{name: "sshd", uid: 65534}, ""},
		{"the same with a title", serving{name: "sshd", uid: 65534,
			title: []string{"sshd: root@pts/0"}}, ""},
		{"a program of root's that was called sshd", serving{name: "sshd", link: true}, ""},
		{"a program that others may change", serving{name: "sshd", rights: 0o777}, ""},
		{"another program", serving{name: "nginx"}, ""},
	} {
		at := fmt.Sprintf("192.0.2.1:%d", 2000+i)
		accepted := n.serve(t, n.here, c.server, at)
		n.dial(t, at)
		accepted()
		all, err := On("eth0")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range all {
			if s.Local.String() == at {
				got = s.What
			}
		}
		if got != c.want {
			t.Errorf("%s is taken for %q, want %q", c.what, got, c.want)
		}
	}
	// The trap at port 22, to which a policy diverts; and what nobody has accepted.
	accepted := n.serve(t, n.here, serving{name: "levee", title: []string{"levee", "trap", "ssh"}},
		"192.0.2.1:22")
	n.dial(t, "192.0.2.1:22")
	accepted()
	add(t, veth("eth1", n.far), "eth1", "198.51.100.1/24")
	n.in(t, n.far, func() { set(t, "eth1", "198.51.100.7/24") })
	l, err := net.Listen("tcp", "198.51.100.1:22")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n.dial(t, "198.51.100.1:22")
	for _, dev := range []string{"eth0", "eth1"} {
		all, err := On(dev)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Local.Port() == 22 {
				t.Errorf("on %s: %+v", dev, s)
			}
		}
	}
}

// TestSessionsOfOneServer: those that a process of it has accepted, of two servers.
func TestSessionsOfOneServer(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0", "192.0.2.1/24")
	n.in(t, n.far, func() { set(t, "eth0", "192.0.2.7/24") })
	for _, at := range []string{"192.0.2.1:22", "192.0.2.1:2022"} {
		accepted := n.serve(t, n.here, serving{name: "sshd"}, at)
		n.dial(t, at)
		accepted()
	}
	own, err := os.Readlink(ownProc + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	socks, err := tcpSockets(ownProc)
	if err != nil {
		t.Fatal(err)
	}
	owners := socketOwners()
	for _, s := range socks {
		if s.State != tcpListen {
			continue
		}
		pid, err := strconv.Atoi(owners.holders[s.Inode][0])
		if err != nil {
			t.Fatal(err)
		}
		all, err := AcceptedBy([]int{pid})
		if err != nil || len(all) != 1 || all[0].Local.Port() != s.Local.Port() {
			t.Errorf("port %d: %+v, %v", s.Local.Port(), all, err)
		}
	}
	// One in a network namespace of its own, as a container has it.
	add(t, veth("eth1", n.inner), "eth1", "198.51.100.1/24")
	n.in(t, n.inner, func() { set(t, "eth1", "198.51.100.7/24") })
	accepted := n.serve(t, n.inner, serving{name: "sshd"}, "198.51.100.7:22")
	c, err := net.Dial("tcp", "198.51.100.7:22")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted()
	var within []int
	for _, holders := range socketOwners().holders {
		pid, err := strconv.Atoi(holders[0])
		if err != nil {
			t.Fatal(err)
		}
		if ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); ns != own {
			within = append(within, pid)
		}
	}
	all, err := AcceptedBy(within)
	if err != nil || len(all) != 1 || all[0].Local.String() != "198.51.100.7:22" {
		t.Errorf("of %v, in another namespace: %+v, %v", within, all, err)
	}
	if all, err := AcceptedBy([]int{os.Getpid()}); err != nil || len(all) > 0 {
		t.Errorf("who listens nowhere has %+v, %v", all, err)
	}
}
