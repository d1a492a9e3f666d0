package wrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/cli"
	"levee/internal/cli/clitest"
	"levee/internal/dataplane"
	"levee/internal/dataplane/service"
	"levee/internal/dataplane/store"
	"levee/internal/host/hosttest"
	"levee/internal/kernel"
	"levee/internal/lang/resolve"
)

// childEnv has this test binary be a process that was handed sockets: it becomes "levee wrap run",
// and then the service.
const childEnv = "LEVEE_TEST_WRAP"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "run":
		activated()
	case "serve":
		serve()
	default:
		os.Exit(m.Run())
	}
}

// activated runs "levee wrap run" as systemd would start it, with the command in the arguments.
func activated() {
	os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	os.Setenv(childEnv, "serve")
	e := &env{Env: cli.System()}
	fmt.Println(e.run("web", os.Args[1:]))
	os.Exit(1)
}

// serve echoes on the sockets that it was handed, and says whether the filter can be taken off.
func serve() {
	fmt.Println("detach:", unix.SetsockoptInt(3, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0))
	l, err := net.FileListener(os.NewFile(3, "tcp"))
	if err != nil {
		panic(err)
	}
	u, err := net.FilePacketConn(os.NewFile(4, "udp"))
	if err != nil {
		panic(err)
	}
	go func() {
		b := make([]byte, 2048)
		for {
			if n, from, err := u.ReadFrom(b); err == nil {
				_, _ = u.WriteTo(b[:n], from)
			}
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go io.Copy(c, c)
	}
}

// python is the same service in another language.
const python = `
import socket, threading
tcp, udp = socket.socket(fileno=3), socket.socket(fileno=4)
try:
    tcp.setsockopt(socket.SOL_SOCKET, 27, 0)
    print("detach: done", flush=True)
except OSError as e:
    print("detach:", e.strerror.lower(), flush=True)
def echo():
    while True:
        udp.sendto(*udp.recvfrom(2048))
threading.Thread(target=echo, daemon=True).start()
def serve(c):
    while data := c.recv(2048):
        c.sendall(data)
while True:
    threading.Thread(target=serve, args=(tcp.accept()[0],), daemon=True).start()
`

const webPolicy = `set bad = dynamic(max 64)
drop from bad as "bad"
drop from 127.0.0.2 as "two"
drop udp port 8002 payload contains "evil" as "evil"
pass tcp port 8001 as "web"
pass udp port 8002 as "udp"
default drop
`

// handing makes a filter, and starts a command with sockets and no rights.
func handing(t *testing.T, command ...string) {
	t.Helper()
	e, _, _, _ := clitest.New(false)
	e.Privileged = kernel.Privileged
	file := filepath.Join(t.TempDir(), "web.levee")
	if err := os.WriteFile(file, []byte(webPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &env{Env: e}
	if err := w.wrapSockets(t.Context(), "web", file, "nogroup", false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Remove(context.Background(), "sockets:web"); err != nil {
			t.Error(err)
		}
	})
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:8001")
	if err != nil {
		t.Fatal(err)
	}
	tcp := l.(*net.TCPListener)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8002})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], command...)
	for _, s := range []interface{ File() (*os.File, error) }{tcp, udp} {
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	tcp.Close()
	udp.Close()
	cmd.Env = append(os.Environ(), childEnv+"=run", "LISTEN_FDS=2")
	nobody := uint32(65534)
	runtime.LockOSThread() // the thread's end kills the service
	t.Cleanup(runtime.UnlockOSThread)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said := bufio.NewScanner(out)
	said.Scan()
	if got := said.Text(); got != "detach: operation not permitted" {
		t.Fatalf("the service says %q", got)
	}
}

// sent returns the packets of the service that the rule of a label has counted.
func sent(t *testing.T, label string) (n uint64) {
	t.Helper()
	all, err := service.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("services: %v, %v", all, err)
	}
	for _, c := range all[0].Counters {
		if c.Label == label {
			n = c.Packets
		}
	}
	return n
}

// counts waits until a rule has counted at least n packets.
func counts(t *testing.T, label string, n uint64) {
	t.Helper()
	await.True(t, fmt.Sprintf("%q counts %d", label, n),
		func() bool { return sent(t, label) >= n })
}

// say sends a datagram from an address, and gives the answer if one is expected.
func say(t *testing.T, from, text string, answered bool) {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8002})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if !answered {
		return
	}
	b := make([]byte, 2048)
	if n, err := c.Read(b); err != nil || string(b[:n]) != text {
		t.Errorf("%q is answered with %q, %v", text, b[:n], err)
	}
}

// TestSocketsThatAreHandedOnHaveAFilter: a service without rights, in Go and in Python; a filter
// that nobody takes off, that accepted connections have, and that a replace changes for all.
func TestSocketsThatAreHandedOnHaveAFilter(t *testing.T) {
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
	// Members of the group have to pass, as they do /run.
	dir, err := os.MkdirTemp("/run", "levee-t")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(store.RunEnv, filepath.Join(dir, "run"))
	// A test binary lies where only its user may go.
	program := filepath.Join(dir, "test")
	if err := exec.Command("cp", os.Args[0], program).Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(program) })
	os.Args[0] = program
	for _, tt := range []struct {
		language string
		command  []string
	}{
		{"Go", []string{program}},
		{"Python", []string{"/usr/bin/python3", "-c", python}},
	} {
		t.Run(tt.language, func(t *testing.T) {
			handing(t, tt.command...)
			visit(t)
		})
	}
}

// visit talks to the service as a visitor does, and checks the counts of its rules.
func visit(t *testing.T) {
	c, err := net.Dial("tcp4", "127.0.0.1:8001")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 16)
	echo := func() error {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b[:5])
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	web := sent(t, "web")
	if web < 2 { // a SYN and data: connections that are accepted have the filter
		t.Errorf("%d packets of a connection are counted", web)
	}
	say(t, "127.0.0.1", "x", true)
	say(t, "127.0.0.1", strings.Repeat("long", 300), true)
	say(t, "127.0.0.1", "an evil word", false)
	counts(t, "evil", 1)
	say(t, "127.0.0.2", "x", false)
	counts(t, "two", 1)
	if got := sent(t, "udp"); got != 2 {
		t.Errorf("%d datagrams pass, want 2", got)
	}
	// The SYN is dropped: who sent it waits.
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		_, err := d.DialContext(ctx, "tcp4", "127.0.0.1:8001")
		waits <- err
	}()
	counts(t, "two", 2)
	cancel()
	if err := <-waits; err == nil {
		t.Error("who is dropped has a connection")
	}
	// Another policy: the sockets follow, and the counters go on.
	o := service.Options{Name: "sockets:web", Group: 65534, PolicyPath: "/etc/web.levee"}
	replace(t, o, strings.Replace(webPolicy, "pass tcp port 8001 as \"web\"",
		"drop tcp port 8001 as \"closed\"", 1))
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	counts(t, "closed", 1)
	if got := sent(t, "udp"); got != 2 {
		t.Errorf("after a replace %d datagrams have passed, want 2", got)
	}
	replace(t, o, webPolicy)
	if _, err := io.ReadFull(c, b[:5]); err != nil { // sent again by then
		t.Errorf("the policy before is back: %v", err)
	}
}

func replace(t *testing.T, o service.Options, text string) {
	t.Helper()
	p, ds := resolve.Parse("web.levee", []byte(text), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	o.Source = []byte(text)
	if _, err := service.Put(t.Context(), o, dataplane.Compiler(p)); err != nil {
		t.Fatal(err)
	}
}

// TestTheFirstVisitorWasNotJudged: systemd starts a service when somebody comes, and that
// connection and that datagram had no filter. Started again, the service was refused its own
// filter.
func TestTheFirstVisitorWasNotJudged(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	all, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1<<16), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	come := func(word string) (visitors []net.Conn) {
		for _, at := range []net.Addr{l.Addr(), u.LocalAddr()} {
			c, err := net.Dial(at.Network(), at.String())
			if err == nil {
				_, err = c.Write([]byte(word))
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			visitors = append(visitors, c)
		}
		return visitors
	}
	hand := func(s any) (filtered, had bool, err error) {
		raw, err := s.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if e := raw.Control(func(fd uintptr) {
			filtered, had, err = attachTo(int(fd), all)
		}); e != nil {
			t.Fatal(e)
		}
		return filtered, had, err
	}
	attach := func(again bool) {
		for _, s := range []any{l, u} {
			filtered, had, err := hand(s)
			if err != nil || !filtered || had != again {
				t.Fatalf("filtered %v, had a filter %v, %v; want %v", filtered, had, err, again)
			}
		}
	}
	early := come("early")
	attach(false)
	if err := early[0].SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := early[0].Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("who came before the filter reads %v", err)
	}
	come("later")
	attach(true) // what waits now has been judged, and stays
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 16)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "later" {
		t.Errorf("the first connection says %q, %v", b[:n], err)
	}
	if n, _, err := u.ReadFrom(b); err != nil || string(b[:n]) != "later" {
		t.Errorf("the first datagram is %q, %v", b[:n], err)
	}
	if _, _, err := hand(c); err == nil ||
		!strings.Contains(err.Error(), "Accept=yes") {
		t.Errorf("a connection that is handed on: %v", err)
	}
}

// TestASocketOfMultipathTCPIsRefused: it takes no filter, and the kernel says "operation not
// supported".
func TestASocketOfMultipathTCPIsRefused(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err != nil {
		t.Skip("this kernel has no Multipath TCP")
	}
	defer unix.Close(fd)
	if _, _, err := attachTo(fd, nil); err == nil || !strings.Contains(err.Error(), "Multipath") {
		t.Errorf("a socket of Multipath TCP: %v", err)
	}
}

// TestWithoutSocketsNothingIsStarted: the environment is systemd's, or the error says what is to
// be.
func TestWithoutSocketsNothingIsStarted(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, tt := range []struct{ fds, pid, says string }{
		{"", "", "LISTEN_FDS is not set"},
		{"x", own, "no number of sockets"},
		{"0", own, "no number of sockets"},
		{"1000000", own, "no number of sockets"},
		{"1", "1", "without a shell"},
		{"1", "", "without a shell"},
	} {
		t.Setenv("LISTEN_FDS", tt.fds)
		t.Setenv("LISTEN_PID", tt.pid)
		if _, err := handed(); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("LISTEN_FDS=%s LISTEN_PID=%s: %v, want %q", tt.fds, tt.pid, err, tt.says)
		}
	}
}
