package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/host/cgroup"
	"levee/internal/host/hosttest"
	"levee/internal/kernel"
)

func TestMain(m *testing.M) {
	switch s := os.Getenv(childEnv); {
	case s == "serve":
		serve()
	case s != "":
		dieAt(s)
	default:
		os.Exit(m.Run())
	}
}

// serve echoes over TCP port 8001, and UDP ports 8002 and 8003, and sends where its standard input
// says: "udp ADDRESS" or "tcp ADDRESS", to which it answers with "ok" or an error.
func serve() {
	l, err := net.Listen("tcp4", "127.0.0.1:8001")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			go io.Copy(c, c)
		}
	}()
	for _, port := range []int{8002, 8003} {
		u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			panic(err)
		}
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := u.ReadFromUDP(b)
				if err == nil {
					_, _ = u.WriteToUDP(b[:n], from)
				}
			}
		}()
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		network, to, _ := strings.Cut(in.Text(), " ")
		fmt.Println(ask(network, to))
	}
}

// ask sends a byte to an address, and waits for the answer over TCP.
func ask(network, to string) string {
	c, err := net.Dial(network, to)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		return err.Error()
	}
	if network == "tcp" {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return err.Error()
		}
	}
	return "ok"
}

// service is one that runs, in a cgroup of its own.
type service struct {
	t      *testing.T
	dir    string // of the cgroup
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	ending bool
}

// begin makes a cgroup, calls before with it, and starts the service there.
func begin(t *testing.T, before func(dir string)) *service {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Skip(err)
	}
	s := &service{t: t, dir: filepath.Join(root, fmt.Sprintf("levee-t%d", os.Getpid()))}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	before(s.dir)
	s.start()
	return s
}

func (s *service) start() {
	s.t.Helper()
	dir, err := os.Open(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer dir.Close()
	runtime.LockOSThread() // the thread's end kills the service
	s.t.Cleanup(runtime.UnlockOSThread)
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), childEnv+"=serve")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if got := s.line(); got != "ready" {
		s.t.Fatalf("the service says %q", got)
	}
}

func (s *service) line() string {
	s.out.Scan()
	return s.out.Text()
}

// send has the service send.
func (s *service) send(network, to string) string {
	fmt.Fprintln(s.in, network, to)
	return s.line()
}

// end kills the service, and removes its cgroup.
func (s *service) end() {
	if s.ending {
		return
	}
	s.ending = true
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	await.True(s.t, "the cgroup is empty", func() bool { return os.Remove(s.dir) == nil })
}

// enter moves the test into a network namespace with a loopback interface, and a runtime directory
// of its own.
func enter(t *testing.T) {
	t.Helper()
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	hosttest.Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	t.Cleanup(func() {
		if err := store.TransactServices(context.Background(), removeAll); err != nil {
			t.Error(err)
		}
	})
}

// datagram sends one from an address to a port.
func datagram(t *testing.T, from string, port int) {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err == nil {
		_, err = c.Write([]byte("datagram"))
		c.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
