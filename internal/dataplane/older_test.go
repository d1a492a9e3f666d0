package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/host/conntrack"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/packet"
)

// ends are both ends of a connection: one at the peer, and one at this machine or behind it.
type ends struct {
	name         string
	outer, inner net.Conn
}

// says says whether what the outer end sends arrives, and the inner one is heard then.
func (p *ends) says() error {
	for _, way := range [][2]net.Conn{{p.outer, p.inner}, {p.inner, p.outer}} {
		if err := tells(way[0], way[1]); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func tells(from, to net.Conn) error {
	if _, err := io.WriteString(from, "hello"); err != nil {
		return err
	}
	_ = to.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := io.ReadFull(to, make([]byte, 5))
	return err
}

// connect makes a TCP connection between namespaces.
func connect(t testing.TB, from netns.NsHandle, to string, at netns.NsHandle,
	listen string) (client, server net.Conn) {
	t.Helper()
	l := in(t, at, func() (net.Listener, error) { return net.Listen("tcp", listen) })
	defer l.Close()
	client = dial(t, from, to)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// datagrams makes sockets of UDP, of which the first is connected to an address where the other,
// which is not connected until it has heard of the first, gets what that sends.
func datagrams(t testing.TB, from netns.NsHandle, to string, at netns.NsHandle,
	listen string) (client, server net.Conn) {
	t.Helper()
	l := in(t, at, func() (net.PacketConn, error) { return net.ListenPacket("udp", listen) })
	client = in(t, from, func() (net.Conn, error) { return net.Dial("udp", to) })
	t.Cleanup(func() { l.Close(); client.Close() })
	if _, err := io.WriteString(client, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	_, addr, err := l.ReadFrom(make([]byte, 5))
	if err != nil {
		t.Fatal(err)
	}
	return client, &replying{l.(*net.UDPConn), addr}
}

// replying sends to one address by a socket that hears all.
type replying struct {
	*net.UDPConn
	to net.Addr
}

func (r *replying) Write(b []byte) (int, error) { return r.WriteTo(b, r.to) }

// newRouter is a test's namespace as a router, which translates the addresses of who is behind it
// and publishes ports of it.
func newRouter(t testing.TB) (n *testNet, behind netns.NsHandle) {
	t.Helper()
	n = newTestNet(t)
	behind = newBehind(t, n)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	run(t, n.peer, "", "ip", "route", "add", "10.77.0.0/24", "via", "198.51.100.1")
	run(t, n.here, `table ip published {
	chain to {
		type nat hook prerouting priority dstnat
		iifname "lv0" tcp dport 8080 dnat to 10.77.0.2:9000
		iifname "lv0" udp dport 8080 dnat to 10.77.0.2:9000
	}
	chain from { type nat hook postrouting priority srcnat; oifname "lv0" masquerade; }
}
`, "nft", "-f", "-")
	return n, behind
}

// TestConnectionsBehindAreOlder: connections through this machine that are older than the policy go
// on when their outer end is the next to send; what nobody inside has answered, and what is none of
// the interface's, is not known.
func TestConnectionsBehindAreOlder(t *testing.T) {
	for _, mode := range []store.Mode{store.XDPNative, store.XDPGeneric, tcModes(t)[0]} {
		t.Run(string(mode), func(t *testing.T) {
			n, behind := newRouter(t) // conntrack would know connections of the mode before
			var all []ends
			add := func(name string, outer, inner net.Conn) {
				all = append(all, ends{name, outer, inner})
			}
			for _, c := range []struct {
				name string
				make func(testing.TB, netns.NsHandle, string, netns.NsHandle, string) (net.Conn,
					net.Conn)
			}{{"TCP", connect}, {"UDP", datagrams}} {
				client, server := c.make(t, behind, "198.51.100.2:9001", n.peer, ":9001")
				add("masqueraded "+c.name, server, client)
				client, server = c.make(t, n.peer, "198.51.100.1:8080", behind, ":9000")
				add("published "+c.name, client, server)
				client, server = c.make(t, n.peer, "10.77.0.2:9002", behind, ":9002")
				add("forwarded "+c.name, client, server)
			}
			for i := range all {
				if err := all[i].says(); err != nil {
					t.Fatal(err)
				}
			}
			unheard, _ := datagrams(t, n.peer, "10.77.0.2:9003", behind, ":9003")
			inside, server := datagrams(t, behind, "10.77.0.1:9004", n.here, "10.77.0.1:9004")
			if err := tells(server, inside); err != nil {
				t.Fatal(err)
			}
			const policy = "pass established\n" +
				"pass udp port { 8080, 9002 } as \"begun outside\"\ndefault drop\n"
			if err := bringPolicyAt(t, "lv0", mode, policy, 0); err != nil {
				t.Fatal(err)
			}
			if f := status(t).Connections; f.Live != len(all) || f.Open != 3 {
				t.Errorf("connections: %+v", f)
			}
			for i := range all {
				if err := all[i].says(); err != nil {
					t.Error(err)
				}
			}
			if s := status(t); labelled(&s, "begun outside") != 2 {
				t.Errorf("of UDP that was begun outside %d packets met the rule for it",
					labelled(&s, "begun outside"))
			}
			mustDrop(t, "what nobody has answered", func() {
				_, _ = io.WriteString(unheard, "hello")
			})
			forged, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
				From: netip.MustParseAddr("10.77.0.2"), To: netip.MustParseAddr("10.77.0.1"),
				FromPort: new(uint16(inside.LocalAddr().(*net.UDPAddr).Port)),
				ToPort:   new(uint16(9004))})
			if err != nil {
				t.Fatal(err)
			}
			mustDrop(t, "a connection inside", func() { n.sendFrame(t, forged) })
		})
	}
}

// mustDrop has packets sent until the policy on lv0 has dropped one by default.
func mustDrop(t *testing.T, what string, send func()) {
	t.Helper()
	was := status(t)
	await.OK(t, func() error {
		send()
		if now := status(t); packets(&now, "default") == packets(&was, "default") {
			return fmt.Errorf("%s was not dropped", what)
		}
		return nil
	})
}

// TestConnectedSocketsAreOlder: what comes to a socket of UDP on this machine that is connected to
// its sender is established, though nothing has left since the policy is in force.
func TestConnectedSocketsAreOlder(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	for _, mode := range []store.Mode{store.XDPNative, store.XDPGeneric, tcModes(t)[0]} {
		n.run(t, string(mode), func(t *testing.T) {
			// IPv6 finds neighbours.
			if err := bringPolicyAt(t, "lv0", mode, "pass icmp6\npass udp established\n"+
				"count udp as \"other\"\ndefault drop\n", 0); err != nil {
				t.Fatal(err)
			}
			for _, addr := range [][2]string{{"198.51.100.1", "198.51.100.2"},
				{"[2001:db8:7::1]", "[2001:db8:7::2]"}} {
				server := in(t, n.peer, func() (net.PacketConn, error) {
					return net.ListenPacket("udp", addr[1]+":9001")
				})
				defer server.Close()
				connected := in(t, n.here, func() (net.Conn, error) {
					return net.Dial("udp", addr[1]+":9001")
				})
				defer connected.Close()
				other := in(t, n.here, func() (net.PacketConn, error) {
					return net.ListenPacket("udp", addr[0]+":9002")
				})
				defer other.Close()
				send := func(to net.Addr) {
					if _, err := server.WriteTo([]byte("hello"), to); err != nil {
						t.Fatal(err)
					}
				}
				send(connected.LocalAddr())
				_ = connected.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := connected.Read(make([]byte, 5)); err != nil {
					t.Errorf("a connected socket: %v", err)
				}
				was := labelled(new(status(t)), "other")
				await.OK(t, func() error {
					send(other.LocalAddr())
					if labelled(new(status(t)), "other") == was {
						return errors.New("what came to a socket that is not connected is known")
					}
					return nil
				})
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAFloodTookTheQuestionsOfOlderConnections: beside a flood of what is not known the kernel is
// asked about that, and seldom about a connection that is older than the policy. One of this
// machine whose other end is the next to send goes on without a question.
func TestAFloodTookTheQuestionsOfOlderConnections(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			var all []ends
			for _, hosts := range [][2]string{{"198.51.100.1", "198.51.100.2"},
				{"[2001:db8:7::1]", "[2001:db8:7::2]"}} {
				here, there := hosts[0]+":9000", hosts[1]+":9001"
				outer, inner := connect(t, n.peer, here, n.here, here)
				all = append(all, ends{"to " + here, outer, inner})
				inner, outer = connect(t, n.here, there, n.peer, there)
				all = append(all, ends{"over TCP to " + there, outer, inner})
				inner, outer = datagrams(t, n.here, there, n.peer, there)
				all = append(all, ends{"over UDP to " + there, outer, inner})
			}
			if err := bringPolicyAt(t, "lv0", mode, // IPv6 finds neighbours
				"pass icmp6\npass established\ndefault drop\n", 0); err != nil {
				t.Fatal(err)
			}
			asksNothing(t, "lv0")
			for i := range all {
				if err := all[i].says(); err != nil {
					t.Error(err)
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// asksNothing has the policy on a device ask the kernel about no connection, as beside a flood.
func asksNothing(t *testing.T, dev string) {
	t.Helper()
	if err := generation.TransactOn(t.Context(), dev,
		func(s *store.Store, a *attach.Attachment) error {
			g := a.Current()
			name, _ := codegen.MapOf(g.Maps, state.HoldsFlows)
			m, err := s.OpenPinned(a.Key, g.Generation, name)
			if err != nil {
				return err
			}
			defer m.Close()
			return s.WithMemory(m, func(memory []byte) { clear(memory[atAsks : atAsks+8]) })
		}); err != nil {
		t.Fatal(err)
	}
}

// atAsks is the offset in struct flow_head of the number of questions to the kernel in a tick.
const atAsks = 216

// TestUDPTakesNoQuestionsOfTCP: where what comes by UDP has used up what the kernel may be asked of
// it in this tick, it is still asked of TCP.
func TestUDPTakesNoQuestionsOfTCP(t *testing.T) {
	needRoot(t)
	r, _ := runnerOf(t, "pass established\ndefault drop\n", codegen.Target{CPUs: runtime.NumCPU(),
		Trace: true})
	hz := must2(kernel.JiffiesClock()).HZ()
	if binary.NativeEndian.Uint64(r.Head(state.HoldsFlows)[atAsks:]) != max(1, flow.Asks/hz) {
		t.Fatal("the memory has another layout")
	}
	binary.NativeEndian.PutUint64(r.Head(state.HoldsFlows)[atAsks:], 1)
	frame := map[string][]byte{}
	for _, network := range []string{"tcp", "udp"} {
		var c net.Conn
		if network == "tcp" {
			l := must2(net.Listen("tcp", "127.0.0.1:0"))
			defer l.Close()
			c = must2(net.Dial("tcp", l.Addr().String()))
		} else {
			c = must2(net.Dial("udp", "127.0.0.1:9"))
		}
		defer c.Close()
		near := netip.MustParseAddrPort(c.LocalAddr().String())
		far := netip.MustParseAddrPort(c.RemoteAddr().String())
		s := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), From: far.Addr(), To: near.Addr(),
			FromPort: new(far.Port()), ToPort: new(near.Port())}
		if network == "tcp" {
			s.Proto, s.Flags = nil, new(uint8(packet.ACK))
		}
		frame[network] = must2(packet.Build(s))
	}
	known := func(network string) bool {
		_, verdict, err := r.Eval(frame[network])
		if err != nil {
			t.Fatal(err)
		}
		return verdict == action.Pass
	}
	for range 20 {
		await.Pass(30*time.Millisecond, "a few ticks of the slowest kernel's clock")
		if !known("udp") {
			t.Fatal("the kernel was not asked of UDP")
		}
		for known("udp") {
		}
		if !known("tcp") {
			t.Fatal("UDP has taken the question of TCP")
		}
	}
}

// TestHandshakesBesideUp: connections whose handshake ends while the policy is staged, when what
// leaves is noted and what comes in is not looked at, go on: the server has sent first.
func TestHandshakesBesideUp(t *testing.T) {
	n, behind := newRouter(t)
	for _, mode := range []store.Mode{store.XDPNative, tcModes(t)[0]} {
		n.run(t, string(mode), func(t *testing.T) {
			var all []ends
			ctx := stepping(t.Context(), func(step string) error {
				if step != "swap" {
					return nil
				}
				for _, c := range []ends{{name: "to here"}, {name: "published"}} {
					to, at := "198.51.100.1:9000", n.here
					if c.name == "published" {
						to, at = "198.51.100.1:8080", behind
					}
					c.outer, c.inner = connect(t, n.peer, to, at, ":9000")
					if err := tells(c.inner, c.outer); err != nil {
						return err
					}
					all = append(all, c)
				}
				return nil
			})
			err := bringPolicyUnder(ctx, "lv0", mode, "pass established\ndefault drop\n", 0)
			if err != nil || len(all) != 2 {
				t.Fatal(err)
			}
			for i := range all {
				if err := all[i].says(); err != nil {
					t.Error(err)
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDeathOfTheFirstUpEndsNoConnection: also one that goes through this machine goes on, wherever
// the command is killed, and with the next one.
func TestDeathOfTheFirstUpEndsNoConnection(t *testing.T) {
	n, behind := newRouter(t)
	outer, inner := connect(t, n.peer, "198.51.100.1:8080", behind, ":9000")
	p := ends{"published", outer, inner}
	do := order{Do: "up", Dev: "lv0", File: "new.levee", Text: "pass established\ndefault drop\n"}
	down := func() {
		_, _, _ = inspect.Status(t.Context(), true) // cleans up
		_, _ = Down(t.Context(), "lv0")
	}
	steps := record(t, do)
	down()
	if adopts := slices.Index(steps, "adopt"); adopts < slices.Index(steps, "link") ||
		adopts > slices.Index(steps, "swap") {
		t.Fatal(steps)
	}
	for i, step := range steps {
		inject(t, do, i, true)
		if err := p.says(); err != nil {
			t.Fatalf("killed at step %d (%s): %v", i, step, err)
		}
		down()
	}
}

// TestOlderConnectionsHaveThePlacesOfWhatLeaves: what is adopted is what the programs look up and
// note, in both families.
func TestOlderConnectionsHaveThePlacesOfWhatLeaves(t *testing.T) {
	x := newConnections(t)
	memory := x.memory()
	live := 0
	for _, addrs := range [][2]string{{"198.51.100.1:443", "203.0.113.9:40000"},
		{"[2001:db8:1:2:3:4:5:6]:443", "[2001:db8:9:8:7:6:5:4]:40000"}} {
		near, far := netip.MustParseAddrPort(addrs[0]), netip.MustParseAddrPort(addrs[1])
		for proto, states := range map[uint8][]uint32{packet.ProtoTCP: {flow.Open, flow.Closing},
			packet.ProtoUDP: {flow.TwoWay}} {
			for i, state := range states {
				far := netip.AddrPortFrom(far.Addr(), far.Port()+uint16(i))
				build := func(from, to netip.AddrPort) []byte {
					s := packet.Spec{Proto: &proto, From: from.Addr(), To: to.Addr(),
						FromPort: new(from.Port()), ToPort: new(to.Port())}
					if proto == packet.ProtoTCP {
						s.Proto, s.Flags = nil, new(uint8(packet.ACK))
					}
					f, err := packet.Build(s)
					if err != nil {
						t.Fatal(err)
					}
					return f
				}
				judge := func(want action.Action) {
					t.Helper()
					if _, verdict, err := x.Eval(build(far, near)); err != nil || verdict != want {
						t.Errorf("protocol %d from %v: %v, %v", proto, far, verdict, err)
					}
				}
				judge(action.Drop)
				flow.Adopt(memory, flow.Older{Proto: proto, Near: near, Far: far, State: state},
					x.now)
				judge(action.Pass)
				if err := x.Leave(build(near, far)); err != nil {
					t.Fatal(err)
				}
				if live++; flow.Read(memory, x.now).Live != live {
					t.Fatalf("protocol %d, %v has more places than one", proto, far)
				}
			}
		}
	}
}

// TestAFullBucketKeepsWhatItHas: an older connection takes the place of none.
func TestAFullBucketKeepsWhatItHas(t *testing.T) {
	x := newConnections(t)
	x.shrink()
	memory := x.memory()
	near, far := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("10.0.0.0")
	for i := range 10 {
		flow.Adopt(memory, flow.Older{Proto: packet.ProtoTCP, State: flow.Open,
			Near: netip.AddrPortFrom(near, 443),
			Far:  netip.AddrPortFrom(far, uint16(30000+i))}, x.now)
	}
	if f := flow.Read(memory, x.now); f.Open != 8 || f.Refused != 2 || f.Taken != 0 {
		t.Errorf("%+v", f)
	}
	for i := range uint32(8) {
		if !x.arrive(ack, i*1024) {
			t.Errorf("connection %d is not known", i)
		}
	}
}

// TestWhatConntrackTells: only what both sides have a part in is a connection.
func TestWhatConntrackTells(t *testing.T) {
	const seen, assured = conntrack.SeenReply, conntrack.SeenReply | conntrack.Assured
	none := [2]uint32{}
	for _, c := range []struct {
		name string
		conntrack.Entry
		want [2]uint32
	}{
		{"UDP that nobody answers", conntrack.Entry{Proto: packet.ProtoUDP}, none},
		{"UDP", conntrack.Entry{Proto: packet.ProtoUDP, Status: seen},
			[2]uint32{flow.Stranger, flow.TwoWay}},
		{"UDP that goes on", conntrack.Entry{Proto: packet.ProtoUDP, Status: assured},
			[2]uint32{flow.Stranger, flow.TwoWay}},
		{"UDP of a zone", conntrack.Entry{Proto: packet.ProtoUDP, Status: assured,
			Zone: true}, none},
		{"an ACK that nobody answers", conntrack.Entry{Proto: packet.ProtoTCP,
			TCP: nl.TCP_CONNTRACK_ESTABLISHED}, none},
		{"an ACK that was answered", conntrack.Entry{Proto: packet.ProtoTCP, Status: seen,
			TCP: nl.TCP_CONNTRACK_ESTABLISHED}, none},
		{"a SYN", conntrack.Entry{Proto: packet.ProtoTCP, TCP: nl.TCP_CONNTRACK_SYN_SENT}, none},
		{"a SYN that was answered", conntrack.Entry{Proto: packet.ProtoTCP, Status: seen,
			TCP: nl.TCP_CONNTRACK_SYN_RECV}, none},
		{"TCP", conntrack.Entry{Proto: packet.ProtoTCP, Status: assured,
			TCP: nl.TCP_CONNTRACK_ESTABLISHED}, [2]uint32{flow.Open, flow.Open}},
		{"TCP, half closed", conntrack.Entry{Proto: packet.ProtoTCP, Status: assured,
			TCP: nl.TCP_CONNTRACK_CLOSE_WAIT}, [2]uint32{flow.Open, flow.Open}},
		{"TCP, closed", conntrack.Entry{Proto: packet.ProtoTCP, Status: assured,
			TCP: nl.TCP_CONNTRACK_TIME_WAIT}, [2]uint32{flow.Closing, flow.Closing}},
		{"TCP, reset", conntrack.Entry{Proto: packet.ProtoTCP, Status: assured,
			TCP: nl.TCP_CONNTRACK_CLOSE}, none},
		{"SCTP", conntrack.Entry{Proto: 132, Status: assured}, none},
	} {
		if got := statesOf(&c.Entry); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

var olderConnections = flag.Int("older", 0, "entries of conntrack that "+
	"TestManyOlderConnections has a policy find; it is run with some only, and "+
	"net.netfilter.nf_conntrack_max has to allow them")

// TestManyOlderConnections says how long a policy takes to come into force with many connections
// through the machine, four to each of the addresses outside, and to what its memory grows.
func TestManyOlderConnections(t *testing.T) {
	if *olderConnections == 0 {
		t.Skip("it is asked for with -older N")
	}
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	run(t, n.here, "", "ip", "route", "add", "default", "via", "198.51.100.2")
	run(t, n.here, "", "ip", "route", "add", "blackhole", "172.0.0.0/8") // what is inside
	up := func(ctx context.Context) time.Duration {
		begin := time.Now()
		if err := bringPolicyUnder(ctx, "lv0", store.Auto,
			"pass established\ndefault drop\n", 0); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	none := up(t.Context())
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	track(t, *olderConnections)
	begin, swapped := time.Now(), time.Duration(0)
	ctx := stepping(t.Context(), func(step string) error {
		if step == "swap" {
			swapped = time.Since(begin)
		}
		return nil
	})
	took := up(ctx)
	f := status(t).Connections
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v without connections; with %d in force after %v, and at its end after %v; the "+
		"process had %d MB at most; %+v", none, *olderConnections, swapped, took,
		used.Maxrss>>10, *f)
	if f.Live > *olderConnections || f.Live+int(f.Refused) < *olderConnections {
		t.Errorf("not all of %d connections were adopted or refused", *olderConnections)
	}
}

// track has conntrack know so many connections of TCP from behind this machine, masqueraded.
func track(t testing.TB, n int) {
	t.Helper()
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address := func(first byte, n int) netip.Addr {
		return netip.AddrFrom4([4]byte{first, byte(n >> 16), byte(n >> 8), byte(n)})
	}
	var all []byte
	for i := range n {
		far := netip.AddrPortFrom(address(10, i/4), 443)
		inside := netip.AddrPortFrom(address(172, i/40000), uint16(1024+i%40000))
		here := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(1024+i%60000))
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW,
			unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
		req.AddData(tupleOf(nl.CTA_TUPLE_ORIG, inside, far))
		req.AddData(tupleOf(nl.CTA_TUPLE_REPLY, far, here))
		const confirmed = 1 << 3
		req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(
			conntrack.SeenReply|conntrack.Assured|confirmed)))
		req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(3600)))
		info := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO, nil)
		info.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO_TCP, nil).AddRtAttr(
			nl.CTA_PROTOINFO_TCP_STATE, nl.Uint8Attr(nl.TCP_CONNTRACK_ESTABLISHED))
		req.AddData(info)
		all = append(all, req.Serialize()...)
		if len(all) < 16<<10 && i < n-1 {
			continue
		}
		if err := unix.Sendto(s.GetFd(), all, 0, &unix.SockaddrNetlink{
			Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		all = all[:0]
	}
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil || string(count) != fmt.Sprintln(n) {
		t.Fatalf("%s entries, %v", count, err)
	}
}

func tupleOf(kind int, from, to netip.AddrPort) *nl.RtAttr {
	out := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	ip := out.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(nl.CTA_IP_V4_SRC, from.Addr().AsSlice())
	ip.AddRtAttr(nl.CTA_IP_V4_DST, to.Addr().AsSlice())
	proto := out.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{packet.ProtoTCP})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(from.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(to.Port()))
	return out
}
