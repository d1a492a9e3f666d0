package dataplane

import (
	"encoding/binary"
	"flag"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/filter/flow"
	"levee/internal/filter/state"
	"levee/internal/kernel"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

var (
	floodedFlows = flag.Int("flows", 0,
		"connections that TestConnectionsAtLength holds; it is run with some only")
	newFlows = flag.Int("new-flows", 2_900_000, "TestConnectionsAtLength: how many new ones come")
	newRate  = flag.Int("new-rate", 10_000, "and how many of them a second")
)

// connections judges packets of numbered connections by `pass established`, with a clock of its
// own.
type connections struct {
	testing.TB
	*loader.Runner
	now, hz uint64
}

func newConnections(t testing.TB) *connections {
	t.Helper()
	c, _ := connectionsOf(t, "pass established\ndefault drop\n")
	return c
}

// connectionsOf judges by another policy.
func connectionsOf(t testing.TB, text string) (*connections, *policy.Policy) {
	t.Helper()
	now, hz, err := kernel.Jiffies()
	if err != nil {
		t.Fatal(err)
	}
	r, p := runnerOf(t, text, codegen.Target{CPUs: runtime.NumCPU(), Trace: true, Clock: true,
		HZ: hz})
	c := &connections{t, r, now, hz}
	c.pass(0)
	return c, p
}

func (c *connections) pass(d time.Duration) {
	c.now += uint64(d) * c.hz / uint64(time.Second)
	c.SetClock(c.now)
}

// kind is a protocol, and for TCP the flags of a segment.
type kind struct {
	proto uint8
	flags uint8
}

var (
	syn     = kind{packet.ProtoTCP, packet.SYN}
	synAck  = kind{packet.ProtoTCP, packet.SYN | packet.ACK}
	ack     = kind{packet.ProtoTCP, packet.ACK}
	finAck  = kind{packet.ProtoTCP, packet.FIN | packet.ACK}
	rst     = kind{packet.ProtoTCP, packet.RST}
	udp     = kind{proto: packet.ProtoUDP}
	request = kind{packet.ProtoICMP, 8}
	reply   = kind{packet.ProtoICMP, 0}
)

// leave makes a packet of connection n leave, arrive judges one that comes in.
func (c *connections) leave(k kind, n uint32) {
	c.Helper()
	if err := c.Leave(c.frame(k, n, true)); err != nil {
		c.Fatal(err)
	}
}

func (c *connections) arrive(k kind, n uint32) bool {
	c.Helper()
	_, verdict, err := c.Eval(c.frame(k, n, false))
	if err != nil {
		c.Fatal(err)
	}
	return verdict == action.Pass
}

// frame is a packet between 198.51.100.1 port 443 and one of 1,024 addresses, each with many ports.
func (c *connections) frame(k kind, n uint32, leaves bool) []byte {
	const ip, l4 = 14, 34
	f := make([]byte, 60)
	f[12], f[ip], f[ip+8], f[ip+9] = 8, 0x45, 64, k.proto
	binary.BigEndian.PutUint16(f[ip+2:], 40)
	local, remote := netip.MustParseAddr("198.51.100.1").As4(), [4]byte{}
	binary.BigEndian.PutUint32(remote[:], 10<<24+n%1024)
	from, to, fromPort, toPort := remote, local, uint16(30000+n/1024), uint16(443)
	if leaves {
		from, to, fromPort, toPort = to, from, toPort, fromPort
	}
	copy(f[ip+12:], from[:])
	copy(f[ip+16:], to[:])
	binary.BigEndian.PutUint16(f[l4:], fromPort)
	binary.BigEndian.PutUint16(f[l4+2:], toPort)
	switch k.proto {
	case packet.ProtoTCP:
		binary.BigEndian.PutUint32(f[l4+4:], 1000) // of a SYN-ACK; what an ACK acknowledges
		binary.BigEndian.PutUint32(f[l4+8:], 1001)
		f[l4+12], f[l4+13] = 5<<4, k.flags
	case packet.ProtoUDP:
		binary.BigEndian.PutUint16(f[l4+4:], 20)
	default:
		f[l4], f[l4+1] = k.flags, 0
		binary.BigEndian.PutUint16(f[l4+4:], 77)
	}
	return f
}

// TestConnectionsLiveAsLongAsTheRFCsWant: silent for as long as an RFC says at least, a connection
// is still known, also where its last packet came within a second of the one before; and it is not
// for ever.
func TestConnectionsLiveAsLongAsTheRFCsWant(t *testing.T) {
	const established, transitory = 2*time.Hour + 4*time.Minute, 4 * time.Minute // RFC 5382, REQ-5
	in, out := false, true
	type said struct {
		leaves bool
		kind   kind
	}
	for _, c := range []struct {
		name  string
		talk  []said
		least time.Duration
		then  kind
	}{
		{"handshake done", []said{{out, synAck}, {in, ack}}, established, ack},
		{"begun here", []said{{out, syn}, {in, synAck}, {out, ack}}, established, ack},
		{"half closed by us", []said{{out, synAck}, {in, ack}, {out, finAck}}, established, ack},
		{"half closed by them", []said{{out, synAck}, {in, ack}, {in, finAck}}, established, ack},
		{"closed", []said{{out, synAck}, {in, ack}, {in, finAck}, {out, finAck}}, transitory, ack},
		{"reset", []said{{out, synAck}, {in, ack}, {out, rst}}, transitory, ack},
		{"opening", []said{{out, syn}}, transitory, synAck},
		{"answered", []said{{out, synAck}}, transitory, ack},
		{"UDP one way", []said{{out, udp}}, 2 * time.Minute, udp}, // RFC 4787, REQ-5
		{"UDP", []said{{out, udp}, {in, udp}}, 5 * time.Minute, udp},
		{"echo", []said{{out, request}}, time.Minute, reply}, // RFC 5508, REQ-2
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newConnections(t)
			for n, silence := range []time.Duration{c.least, c.least + 3*time.Second} {
				n := uint32(n)
				say := func(s said) {
					if s.leaves {
						x.leave(s.kind, n)
					} else if !x.arrive(s.kind, n) {
						t.Fatalf("%+v was dropped", s.kind)
					}
				}
				for _, s := range c.talk {
					say(s)
				}
				x.pass(900 * time.Millisecond)
				say(c.talk[len(c.talk)-1]) // again, too soon for the lease to be renewed
				x.pass(silence)
				if got := x.arrive(c.then, n); got != (n == 0) {
					t.Errorf("after %v without a packet: known %v", silence, got)
				}
			}
		})
	}
}

// TestOnlyTheNumberOpensWhatWasAnswered: who forges a source can have the host send more than a
// SYN-ACK, by a second SYN: a RST if its number is the next one, an ACK if it is any other. Neither
// makes the forged connection one to which all belongs.
func TestOnlyTheNumberOpensWhatWasAnswered(t *testing.T) {
	x := newConnections(t)
	for n, k := range []kind{rst, {packet.ProtoTCP, packet.RST | packet.ACK}, ack, finAck} {
		n := uint32(n)
		x.leave(synAck, n)
		x.leave(k, n)
		for _, guess := range []kind{ack, finAck, rst, synAck} {
			f := x.frame(guess, n, false)
			binary.BigEndian.PutUint32(f[34+8:], 999)
			if _, verdict, err := x.Eval(f); err != nil || verdict == action.Pass {
				t.Errorf("after flags %#x that left, flags %#x with another number: %v, %v",
					k.flags, guess.flags, verdict, err)
			}
		}
		if !x.arrive(ack, n) {
			t.Errorf("after flags %#x that left the right number opens nothing", k.flags)
		}
	}
}

// TestAClockThatIsBehindKnowsConnections: a packet has read the time, the next tick comes, and
// another CPU notes or renews the connection before the packet comes to look it up.
func TestAClockThatIsBehindKnowsConnections(t *testing.T) {
	x := newConnections(t)
	for n, began := range []kind{synAck, syn, udp, request} {
		x.now++
		x.SetClock(x.now)
		x.leave(began, uint32(n))
		if began == synAck && !x.arrive(ack, uint32(n)) {
			t.Fatal("an acknowledged SYN-ACK is no connection")
		}
		x.now--
		x.SetClock(x.now)
		answer := map[kind]kind{synAck: ack, syn: synAck, udp: udp, request: reply}[began]
		if !x.arrive(answer, uint32(n)) {
			t.Errorf("what answers %+v is not known a tick earlier", began)
		}
	}
	if f := x.flowStats(); f.Live != 4 {
		t.Errorf("%+v", f)
	}
}

// TestConnectionsOfADay: with a packet every two hours, connections live all day, whichever side
// begins: a keepalive that comes in is answered.
func TestConnectionsOfADay(t *testing.T) {
	x := newConnections(t)
	const idle, halfClosed, quietHere = 1, 2, 3
	for _, n := range []uint32{idle, halfClosed, quietHere} {
		x.leave(synAck, n)
		if !x.arrive(ack, n) {
			t.Fatal("the handshake was dropped")
		}
	}
	if !x.arrive(finAck, halfClosed) {
		t.Fatal("a FIN was dropped")
	}
	for hour := 0; hour < 24; hour += 2 {
		x.pass(2*time.Hour + 3*time.Minute)
		if !x.arrive(ack, idle) || !x.arrive(ack, quietHere) {
			t.Fatalf("a connection ended after %d hours", hour+2)
		}
		x.leave(ack, idle)
		x.leave(ack, quietHere)
		x.leave(ack, halfClosed) // data to the side that has closed, which only acknowledges
		if !x.arrive(ack, halfClosed) {
			t.Fatalf("a half-closed connection ended after %d hours", hour+2)
		}
	}
}

// newcomers lists the kinds of packets that leave because of new connections in a flood. The kind
// says whether the machine begins the connection.
var newcomers = []kind{synAck, syn, udp, request, ack}

// TestAFloodOfNewConnectionsEndsNone: 1,000 TCP connections talk while a table of 8,192 places, all
// taken, sees 80,000 new connections of every kind. None of the 1,000 ends.
func TestAFloodOfNewConnectionsEndsNone(t *testing.T) {
	x := newConnections(t)
	x.shrink()
	flood(x, 1000, 8192, 80_000, 10_000)
	if f := x.flowStats(); f.Taken == 0 {
		t.Errorf("no connection took the place of another: %+v", f)
	}
}

// shrink has each address fall into a bucket of its own, so that of these only 1,024 are used: the
// factor of the address puts it into the bits that name the bucket.
func (c *connections) shrink() {
	head := [14]uint64{1: 1, 2 + 4: 1<<45 + 1, 2 + 8: 1} // start, last, factors
	for i, n := range head {
		binary.NativeEndian.PutUint64(c.Head(state.HoldsFlows)[8*i:], n)
	}
}

// flood has active connections talk once a second while new ones come, so many a second, after as
// many as fill the table.
func flood(x *connections, active, fill, fresh, second int) {
	x.Helper()
	open := make([]uint32, 0, active)
	for n := range uint32(active) {
		x.leave(synAck, n)
		if x.arrive(ack, n) {
			open = append(open, n)
		}
	}
	if len(open)*1000 < active*999 { // a bucket may be full of others
		x.Fatalf("of %d connections %d found a place", active, len(open))
	}
	start := time.Now()
	for i := range fill + fresh {
		x.leave(newcomers[i%len(newcomers)], uint32(active+i))
		if i%second < second-1 {
			continue
		}
		x.pass(time.Second)
		for _, n := range open[:min(len(open), 1000)] {
			if x.leave(ack, n); !x.arrive(ack, n) {
				x.Fatalf("after %d new connections, active connection %d has ended", i+1, n)
			}
		}
	}
	took := time.Since(start)
	for _, n := range open {
		if !x.arrive(ack, n) {
			x.Fatalf("connection %d has ended", n)
		}
	}
	x.Logf("%d connections, %d new ones in %v (%.0f a second): none has ended", len(open),
		fill+fresh, took.Round(time.Second), float64(fill+fresh)/took.Seconds())
}

// TestConnectionsAtLength is the long run, in the memory that a policy has: `make state-proof`.
func TestConnectionsAtLength(t *testing.T) {
	if *floodedFlows == 0 {
		t.Skip("the long run is asked for with -flows N")
	}
	x := newConnections(t)
	// New ones come for less than the time after which a silent connection may lose its place.
	flood(x, *floodedFlows, 0, *newFlows, *newRate)
	t.Logf("%+v", x.flowStats())
}

// flowStats reads the whole memory.
func (c *connections) flowStats() flow.Stats {
	c.Helper()
	return flow.Read(c.memory(), c.now)
}

// memory is the memory of connections, mapped until the test ends.
func (c *connections) memory() []byte {
	c.Helper()
	m := c.Loaded.Holding(state.HoldsFlows)
	memory, err := store.MapMemory(m, int(m.ValueSize()))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := unix.Munmap(memory); err != nil {
			c.Error(err)
		}
	})
	return memory
}
