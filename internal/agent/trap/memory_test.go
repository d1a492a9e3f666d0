package trap

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// childEnv makes the test binary a trap, so that its memory is that of a process of its own.
const childEnv = "LEVEE_TRAP_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// child is a trap until its standard input ends.
func child() {
	t, err := New(Options{Version: "SSH-2.0-x", HostKeys: []ssh.Signer{signer()},
		Connections: 2000, PerSource: 2000, Timeout: 5 * time.Minute, Memory: 144 << 20,
		Record: func(Record) {}})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { panic(t.Serve(neverDone{}, l)) }()
	fmt.Println(l.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		panic(err)
	}
}

// neverDone is a context that does not end.
type neverDone struct{}

func (neverDone) Deadline() (time.Time, bool) { return time.Time{}, false }
func (neverDone) Done() <-chan struct{}       { return nil }
func (neverDone) Err() error                  { return nil }
func (neverDone) Value(any) any               { return nil }

// startChild runs a trap of its own, and returns its address and the most memory that it had.
func startChild(t *testing.T) (address string, peak func() int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOGC=100") // as where it is in use
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the trap: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no peak in %s", text)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
}

// clients run work n times, some at a time.
func clients(n int, work func()) {
	var all sync.WaitGroup
	some := make(chan struct{}, 32)
	for range n {
		some <- struct{}{}
		all.Go(func() {
			defer func() { <-some }()
			work()
		})
	}
	all.Wait()
}

const bound = 256 << 20

// 2,000 clients have agreed on keys and been asked for a password, which they do not give.
func TestTwoThousandConnectionsAtOnce(t *testing.T) {
	address, peak := startChild(t)
	stay := make(chan struct{})
	var asked, ended sync.WaitGroup
	asked.Add(2000)
	some := make(chan struct{}, 16)
	for range 2000 {
		ended.Go(func() {
			some <- struct{}{}
			var once sync.Once
			there := func() { once.Do(func() { <-some; asked.Done() }) }
			defer there()
			c, err := ssh.Dial("tcp", address, &ssh.ClientConfig{User: "root",
				HostKeyCallback: ssh.InsecureIgnoreHostKey(),
				Auth: []ssh.AuthMethod{ssh.PasswordCallback(func() (string, error) {
					there()
					<-stay
					return "", io.EOF
				})}})
			if err == nil {
				c.Close()
				t.Error("the trap let somebody in")
			}
		})
	}
	asked.Wait()
	t.Logf("2,000 connections: %d MB", peak()>>20)
	if n := peak(); n > bound {
		t.Errorf("%d bytes, want at most %d", n, bound)
	}
	close(stay)
	ended.Wait()
}

// Clients that send as much as the protocol allows meet the bound of memory, and the trap goes on.
func TestLargePasswordsMeetTheBoundOfMemory(t *testing.T) {
	address, peak := startChild(t)
	large := strings.Repeat("x", 255<<10)
	var open sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	clients(1200, func() {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		open.Lock()
		conns = append(conns, raw)
		open.Unlock()
		tried := false
		_, _, _, err = ssh.NewClientConn(&stuck{Conn: raw}, address, &ssh.ClientConfig{
			User: "root", HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			Auth: []ssh.AuthMethod{ssh.RetryableAuthMethod(ssh.PasswordCallback(
				func() (string, error) {
					if tried {
						return "", io.EOF
					}
					tried = true
					return large, nil
				}), 2)}})
		if err == nil {
			t.Error("the trap let somebody in")
		}
	})
	t.Logf("large passwords: %d MB", peak()>>20)
	if n := peak(); n > bound {
		t.Errorf("%d bytes, want at most %d", n, bound)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 8)); err != nil {
		t.Errorf("the trap does not answer any more: %v", err)
	}
}

// stuck is a connection that its client does not close.
type stuck struct{ net.Conn }

func (*stuck) Close() error { return nil }
