package dataplane

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/packet"
)

// in runs something on a thread in a network namespace; sockets stay in it.
func in[T any](t testing.TB, ns netns.NsHandle, do func() (T, error)) T {
	t.Helper()
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		if err := netns.Set(ns); err != nil {
			done <- result{err: err}
			return
		}
		v, err := do()
		done <- result{v, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.v
}

// giveAddress gives an interface of a namespace an address.
func giveAddress(t testing.TB, ns netns.NsHandle, dev, addr string) {
	t.Helper()
	in(t, ns, func() (any, error) {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return nil, err
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return nil, err
		}
		a.Flags = unix.IFA_F_NODAD
		return nil, netlink.AddrAdd(l, a)
	})
}

// echoServer is a server that sends back each line.
func echoServer(t testing.TB, ns netns.NsHandle, addr string) {
	t.Helper()
	l := in(t, ns, func() (net.Listener, error) { return net.Listen("tcp", addr) })
	t.Cleanup(func() { l.Close() })
	serveEcho(l)
}

// serveEcho sends back what connections of a listener send, until it is closed.
func serveEcho(l net.Listener) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func dial(t testing.TB, ns netns.NsHandle, addr string) net.Conn {
	t.Helper()
	c := in(t, ns, func() (net.Conn, error) { return net.DialTimeout("tcp", addr, hangs) })
	t.Cleanup(func() { c.Close() })
	return c
}

// speaks says whether a line comes back over a connection.
func speaks(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(hangs)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return err
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err
}

const connectionPolicy = `pass established as "known"
pass tcp syn port 9000 as "new"
default drop
`

// TestConnections: those of real hosts live, also those that are older than the policy, and what
// only looks like one is dropped.
func TestConnections(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	echoServer(t, n.here, "198.51.100.1:9000")
	echoServer(t, n.peer, "198.51.100.2:9001")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			before := kernelObjects(t)
			silent := dial(t, n.peer, "198.51.100.1:9000") // only its other end will send first
			if err := speaks(silent); err != nil {
				t.Fatal(err)
			}
			up := func(text string, confirm time.Duration) {
				t.Helper()
				if err := bringPolicyAt(t, "lv0", mode, text, confirm); err != nil {
					t.Fatal(err)
				}
			}
			up(connectionPolicy, 0)
			if err := speaks(silent); err != nil {
				t.Errorf("a connection that is older than the policy: %v", err)
			}
			all := []net.Conn{silent, dial(t, n.peer, "198.51.100.1:9000"),
				dial(t, n.here, "198.51.100.2:9001")}
			living := func(when string) {
				t.Helper()
				for i, c := range all {
					if err := speaks(c); err != nil {
						t.Errorf("%s: connection %d: %v", when, i, err)
					}
				}
			}
			living("under the policy")
			flags := func(f uint8) []byte {
				frame, err := packet.Build(packet.Spec{Flags: &f, FromPort: new(uint16(4242)),
					ToPort: new(uint16(9000)), From: netip.MustParseAddr("203.0.113.9"),
					To: netip.MustParseAddr("198.51.100.1")})
				if err != nil {
					t.Fatal(err)
				}
				copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
				return frame
			}
			was := status(t)
			dropped := packets(&was, "default")
			for _, f := range []uint8{packet.ACK, packet.RST, packet.FIN | packet.ACK, 0,
				packet.SYN | packet.ACK} {
				for range 20 {
					n.sendFrame(t, flags(f))
				}
			}
			await.OK(t, func() error {
				now := status(t)
				if got := packets(&now, "default") - dropped; got < 100 {
					return fmt.Errorf("%d of 100 forged segments were dropped", got)
				}
				return nil
			})
			if mode != store.XDPGeneric { // which knows no trial's way back on every kernel
				up(connectionPolicy+"# another\n", 300*time.Millisecond)
				living("on trial")
				await.Pass(400*time.Millisecond, "the kernel ends the trial")
				living("after a trial")
			}
			up(connectionPolicy+"# a third\n", 0)
			living("after a replace")
			if f := status(t).Connections; f == nil || f.Open < 3 || f.Refused != 0 {
				t.Errorf("connections: %+v", f)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
			await.OK(t, func() error { return nothingAdded(t, before) })
			living("without a policy")
		})
	}
}

// BenchmarkConnection measures the time of a packet above an empty program where its connection is
// looked up: one that is known, many in turn, and none; and of packets that pass by another rule,
// over UDP, where it is noted who began.
func BenchmarkConnection(b *testing.B) {
	needRoot(b)
	const many = 100_000
	segment := func(proto uint8, i uint32, out bool) []byte {
		local, remote := netip.MustParseAddr("198.51.100.1"), netip.AddrFrom4([4]byte{10})
		s := packet.Spec{Proto: &proto, FromPort: new(uint16(40000)), ToPort: new(uint16(443)),
			From: remote, To: local}
		if proto == packet.ProtoTCP {
			s.Proto, s.Flags = nil, new(uint8(packet.ACK))
		}
		if out {
			s.From, s.To, s.FromPort, s.ToPort = s.To, s.From, s.ToPort, s.FromPort
		}
		f, err := packet.Build(s)
		if err != nil {
			b.Fatal(err)
		}
		at := 26
		if out {
			at = 30
		}
		binary.BigEndian.PutUint32(f[at:], 10<<24|i)
		if proto == packet.ProtoTCP { // each acknowledges what the other has sent
			binary.BigEndian.PutUint32(f[38:], 1000)
			binary.BigEndian.PutUint32(f[42:], 1000)
		}
		return f
	}
	r := benchRunner(b, "pass established\npass from 10.64.0.0/10 port 443\ndefault drop\n")
	const tcp, udp = packet.ProtoTCP, packet.ProtoUDP
	for i := range uint32(many) {
		for _, proto := range []uint8{tcp, udp} {
			if err := r.Leave(segment(proto, i, true)); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		proto uint8
		first uint32
		n     uint32
	}{{"known", tcp, 0, 1}, {"known, 100,000 in turn", tcp, 0, many},
		{"unknown, 100,000 in turn", tcp, 1 << 21, many},
		{"UDP known", udp, 0, 1}, {"UDP known, 100,000 in turn", udp, 0, many},
		{"UDP unknown, 100,000 in turn", udp, 1 << 21, many},
		{"UDP begun by the other side", udp, 1 << 22, 1},
		{"UDP begun by the other side, 100,000 in turn", udp, 1 << 22, many}} {
		b.Run(c.name, func(b *testing.B) {
			frames := make([][]byte, c.n)
			for i := range frames {
				frames[i] = segment(c.proto, c.first+uint32(uint64(i)*7919%many), false)
			}
			benchFrames(b, r, frames)
			if c.proto != tcp || c.first > 0 {
				return
			}
			now, _, err := kernel.Jiffies()
			if err != nil {
				b.Fatal(err)
			}
			in := &connections{TB: b, Runner: r, now: now}
			if s := in.flowStats(); s.Open < int(c.n) {
				b.Errorf("what came in opened not all of %d connections: %+v", c.n, s)
			}
		})
	}
}
