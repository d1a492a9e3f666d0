package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the longest time that a session may take to answer, or a host to begin.
const patience = 15 * time.Second

// Keep-alives of sessions would count as established during a flood.
var (
	quiet = net.ListenConfig{KeepAlive: -1}
	dial  = net.Dialer{Timeout: patience, KeepAlive: -1}
	// Clients of a cookie have options of IPv4, and an extension header of IPv6.
	optioned = net.Dialer{Timeout: patience, KeepAlive: -1, Control: options}
)

func options(network, _ string, c syscall.RawConn) (err error) {
	e := c.Control(func(fd uintptr) {
		if network == "tcp4" { // no operation, three times, and the end
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS,
				"\x01\x01\x01\x00")
			return
		}
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, // PadN
			"\x00\x00\x01\x04\x00\x00\x00\x00")
	})
	return cmp.Or(e, err)
}

// peer is the process of a host.
type peer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	ports map[string]int // the local ports of its sessions, by family and the other's port
}

// newPeer starts the role of a host in its namespace.
func newPeer(ctx context.Context, netns, role string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &peer{cmd: exec.CommandContext(ctx, "ip", "netns", "exec", netns, self, "role", role)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if !p.out.Scan() || p.out.Text() != "ready" {
		return p, fmt.Errorf("the %s did not begin: %s", role, p.out.Text())
	}
	return p, nil
}

// check has each session of the host carry a line there and back. The first one opens them.
func (p *peer) check() error {
	fmt.Fprintln(p.in, "check")
	if !p.out.Scan() {
		return errors.New("a host ended")
	}
	if why, bad := strings.CutPrefix(p.out.Text(), "bad "); bad {
		return errors.New(why)
	}
	return json.Unmarshal(p.out.Bytes(), &p.ports)
}

// do has a host do something besides.
func (p *peer) do(what string) error {
	fmt.Fprintln(p.in, what)
	if !p.out.Scan() {
		return errors.New("a host ended")
	}
	if why, bad := strings.CutPrefix(p.out.Text(), "bad "); bad {
		return errors.New(why)
	}
	return nil
}

func (p *peer) stop() {
	p.in.Close()
	_ = p.cmd.Wait() // it ends with its input
}

// role is the process of a host: it serves, and checks its sessions for each line of its input.
func role(name string) error {
	serve, to, other := []int{2222, 80}, []int{7777}, []string{"192.0.2.2", "2001:db8::2"}
	if name == "world" {
		serve, to, other = []int{7777}, []int{2222, 80}, []string{"192.0.2.1", "2001:db8::1"}
	}
	for _, port := range serve {
		l, err := quiet.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					io.Copy(c, c)
				}()
			}
		}()
	}
	u := &datagrams{sessions: map[string]*net.UDPConn{}}
	at := []int{53, 54, 1013}
	if name == "world" {
		at = []int{7777}
	}
	for _, port := range at {
		if err := u.serve(port); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	open, ports := map[string]net.Conn{}, map[string]int{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var say any = ports
		var err error
		n := 0
		switch what, number, _ := strings.Cut(lines.Text(), " "); what {
		case "count":
			full, stray, err := lost()
			if err != nil {
				return err
			}
			say = counted{int(u.got.Load()) + full, stray}
		case "reset", "fresh":
			n, _ = strconv.Atoi(number)
			err = visit(n, what == "reset")
		case "merge":
			n, _ = strconv.Atoi(number)
			err = merge(n, other)
		default:
			err = talk(open, ports, other, to)
			if name == "server" && err == nil {
				err = u.talk(other)
			}
		}
		if err != nil {
			fmt.Println("bad", err)
			continue
		}
		text, err := json.Marshal(say)
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	return nil
}

// visit opens connections one after the other. Each is reset, or carries a line.
func visit(n int, reset bool) error {
	for range n {
		c, err := dial.Dial("tcp", "192.0.2.1:2222")
		if err != nil {
			return err
		}
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		} else {
			c.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(c, "line\n")
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 5))
			}
		}
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// mergedEach is the number of datagrams that are merged.
const mergedEach = 10

// merge sends so many datagrams to a limit, some to a packet.
func merge(n int, other []string) error {
	const each, size, turn = mergedEach, 100, 1000
	for sent := 0; sent < n; sent += each * turn {
		c, err := net.Dial("udp", net.JoinHostPort(other[sent/(each*turn)%2], "53"))
		if err != nil {
			return err
		}
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		if e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
		}); cmp.Or(e, err) != nil {
			return cmp.Or(e, err)
		}
		for range turn {
			if _, err := c.Write(make([]byte, each*size)); err != nil {
				return errors.Join(err, c.Close())
			}
		}
		c.Close()
	}
	return nil
}

// datagrams is the part of a host that talks over UDP.
type datagrams struct {
	got      atomic.Int64            // by those who serve
	sessions map[string]*net.UDPConn // by the other's address
}

// serve counts and answers what comes to a port.
func (d *datagrams) serve(port int) error {
	u, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		return err
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	})
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 2048)
		for {
			_, from, err := u.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				d.got.Add(1)
				u.WriteTo([]byte("Answer"), from)
			}
		}
	}()
	return nil
}

// talk has a session with each of the other's addresses, which this side has begun, be answered
// once more. A datagram may be lost beside a flood.
func (d *datagrams) talk(other []string) error {
	for _, host := range other {
		c := d.sessions[host]
		if c == nil {
			var err error
			c, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(host), Port: 7777})
			if err != nil {
				return err
			}
			d.sessions[host] = c
		}
		answered := false
		for until := time.Now().Add(patience); !answered && time.Now().Before(until); {
			c.Write([]byte("question"))
			c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := c.Read(make([]byte, 64))
			answered = err == nil
		}
		if !answered {
			return fmt.Errorf("the session with %s over UDP carried nothing", host)
		}
	}
	return nil
}

// lost returns how many datagrams the kernel received for which a socket had no room, and stray, by
// the kernel's names, how many datagrams and segments that belong to no socket.
func lost() (full int, stray map[string]int, err error) {
	values := map[string]int{}
	for _, path := range []string{"/proc/self/net/snmp", "/proc/self/net/snmp6"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, nil, err
		}
		var head []string
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			switch {
			case len(f) == 2:
				values[f[0]], _ = strconv.Atoi(f[1])
			case head == nil:
				head = f
			default:
				for i := 1; i < len(f); i++ {
					values[strings.TrimSuffix(f[0], ":")+head[i]], _ = strconv.Atoi(f[i])
				}
				head = nil
			}
		}
	}
	stray = map[string]int{}
	for _, name := range []string{"UdpNoPorts", "Udp6NoPorts", "TcpOutRsts"} {
		stray[name] = values[name]
	}
	return values["UdpInErrors"] + values["Udp6InErrors"], stray, nil
}

// talk has each session carry a line there and back, and opens those that are not.
func talk(open map[string]net.Conn, ports map[string]int, other []string, to []int) error {
	for i, family := range []string{"ipv4", "ipv6"} {
		for _, port := range to {
			name := fmt.Sprint(family, " ", port)
			c := open[name]
			if c == nil {
				var err error
				host := net.JoinHostPort(other[i], fmt.Sprint(port))
				by := &dial
				if port == 80 {
					by = &optioned
				}
				if c, err = by.Dial("tcp", host); err != nil {
					return err
				}
				open[name], ports[name] = c, c.LocalAddr().(*net.TCPAddr).Port
			}
			c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, "line\n"); err == nil {
				_, err = io.ReadFull(c, make([]byte, 5))
				if err == nil {
					continue
				}
			}
			delete(open, name)
			return fmt.Errorf("session %s carried nothing", name)
		}
	}
	return nil
}
