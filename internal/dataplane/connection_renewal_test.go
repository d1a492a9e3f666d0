package dataplane

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/await"
	"levee/internal/filter/flow"
	"levee/internal/packet"
)

var bareSYN = kind{packet.ProtoTCP, 0}

// TestWhatOnlyComesInRenewsNothing: whatever state a connection is in, packets that come in do not
// keep it known, nor do RSTs that a host without it sends in return.
func TestWhatOnlyComesInRenewsNothing(t *testing.T) {
	in, out := false, true
	type said struct {
		leaves bool
		kind   kind
	}
	states := map[string][]said{
		"opening":     {{out, syn}},
		"answered":    {{out, synAck}},
		"older":       {{out, ack}},
		"open":        {{out, synAck}, {in, ack}},
		"begun here":  {{out, syn}, {in, synAck}, {out, ack}},
		"half closed": {{out, synAck}, {in, ack}, {out, finAck}},
		"closed":      {{out, synAck}, {in, ack}, {in, finAck}, {out, finAck}},
		"reset":       {{out, synAck}, {in, ack}, {out, rst}},
		"UDP":         {{out, udp}},
		"echo":        {{out, request}},
	}
	for name, talk := range states {
		t.Run(name, func(t *testing.T) {
			x := newConnections(t)
			const ways = 2 * 7
			for n := range uint32(ways) {
				for _, s := range talk {
					if s.leaves {
						x.leave(s.kind, n)
					} else if !x.arrive(s.kind, n) {
						t.Fatalf("%+v was dropped", s.kind)
					}
				}
			}
			// Twice the longest lease: what comes in may open what has been answered.
			const often = 50 * time.Second
			for spent := time.Duration(0); spent < 2*(2*time.Hour+5*time.Minute); spent += often {
				x.pass(often)
				for n := range uint32(ways) {
					comes := []kind{rst, ack, finAck, synAck, syn, {packet.ProtoTCP,
						packet.RST | packet.ACK}, bareSYN}[n/2]
					switch talk[0].kind.proto {
					case packet.ProtoUDP:
						comes = udp
					case packet.ProtoICMP:
						comes = reply
					}
					x.arrive(comes, n)
					if n%2 == 1 && comes.proto == packet.ProtoTCP {
						x.leave(rst, n)
					}
				}
			}
			if f := x.flowStats(); f.Live != 0 {
				t.Errorf("%d of %d are still known: %+v", f.Live, ways, f)
			}
		})
	}
}

// TestResetConnectionsGiveWay: one host opens connections until no place is left, and resets them
// at once. All who come after it find a place, also if the host had sent something that was
// answered before the RST was read.
func TestResetConnectionsGiveWay(t *testing.T) {
	x := newConnections(t)
	x.shrink()
	const places, honest = 8192, 2048
	n := uint32(0)
	for ; n < places; n++ {
		x.leave(synAck, n)
		if !x.arrive(ack, n) {
			t.Fatalf("connection %d found no place", n)
		}
		x.leave(ack, n)
		x.arrive(rst, n)
		if n%2 == 0 {
			x.leave(ack, n)
		}
	}
	known := 0
	for ; n < places+honest; n++ {
		x.leave(synAck, n)
		if x.arrive(ack, n) {
			known++
		}
	}
	if known != honest {
		t.Errorf("%d of %d new connections are known: %+v", known, honest, x.flowStats())
	}
}

// TestAForgedRSTEndsNothing: a connection that goes on after a RST has the place that it had.
func TestAForgedRSTEndsNothing(t *testing.T) {
	x := newConnections(t)
	x.shrink()
	const many = 1024 // one in each bucket
	for n := range uint32(many) {
		x.leave(synAck, n)
		if !x.arrive(ack, n) || !x.arrive(rst, n) {
			t.Fatal("a connection is not known")
		}
	}
	x.pass(2 * time.Second)
	for n := range uint32(many) {
		x.leave(ack, n)
	}
	for n := uint32(many); n < 16*many; n++ {
		x.leave(newcomers[n/many%uint32(len(newcomers))], n)
		x.arrive(ack, n)
	}
	for n := range uint32(many) {
		if !x.arrive(ack, n) {
			t.Fatalf("connection %d has lost its place: %+v", n, x.flowStats())
		}
	}
}

// TestSYNsOfBothSidesInAFullBucket: a SYN that comes in belongs to a connection that this side
// opens, whoever is in the bucket beside it. Where none opens any more, SYNs are not looked up.
func TestSYNsOfBothSidesInAFullBucket(t *testing.T) {
	x := newConnections(t)
	x.shrink()
	const buckets = 1024
	place := func(k kind, first uint32, each int) { // in each bucket
		for n := first * buckets; n < (first+uint32(each))*buckets; n++ {
			x.leave(k, n)
		}
	}
	looksUp := func() (n int) {
		for _, b := range x.memory()[flow.MaxRoom.Bytes()-int(flow.MaxRoom)/64:] {
			n += bits.OnesCount8(b)
		}
		return n
	}
	place(syn, 0, 1)
	place(synAck, 1, 20)
	for n := range uint32(buckets) {
		if !x.arrive(syn, n) {
			t.Fatal("a SYN of the other side is dropped")
		}
	}
	if x.arrive(syn, buckets) || looksUp() != buckets {
		t.Errorf("SYNs to others pass, or are looked up in %d buckets", looksUp())
	}
	x.pass(5 * time.Minute)
	place(synAck, 30, 8)
	if n := looksUp(); n != 0 || x.arrive(syn, 0) {
		t.Errorf("SYNs are looked up in %d buckets where nothing is opening", n)
	}
}

// TestForgedHandshakesAreNotOlder: a host has half a handshake with a forged address when a policy
// is put in force. By another SYN the forger has it send an ACK, which opens nothing.
func TestForgedHandshakesAreNotOlder(t *testing.T) {
	n := newTestNet(t)
	w := newWire(t, n)
	listens(t, n.here, "198.51.100.1:9000")
	forged := netip.MustParseAddr("203.0.113.9")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "wr0")
			port := n.port()
			answers := make(chan uint32, 100) // numbers of a kind of segment that leaves
			var want uint8
			wait := func(flags uint8) uint32 {
				select {
				case number := <-answers:
					return number
				case <-time.After(time.Minute):
					t.Fatalf("the host has sent nothing with flags %#x", flags)
					return 0
				}
			}
			watch := func(flags uint8) {
				w.mu.Lock()
				defer w.mu.Unlock()
				want = flags
				for len(answers) > 0 { // such as a SYN-ACK that was sent again meanwhile
					<-answers
				}
			}
			w.carries(func(to heading, f []byte) bool {
				p, _, ok := segmentOf(f)
				if !ok || p.Dst != forged {
					return true
				}
				if p.Flags == want && p.DstPort == port {
					answers <- binary.BigEndian.Uint32(f[p.TransportOffset+4:])
				}
				return false
			})
			sends := func(flags uint8, seq, ack uint32) {
				mac := [6]byte(must2(netlink.LinkByName("wr0")).Attrs().HardwareAddr)
				w.put(inwards, must2(packet.Build(packet.Spec{Flags: &flags, EtherTo: &mac,
					From: forged, To: netip.MustParseAddr("198.51.100.1"),
					FromPort: &port, ToPort: new(uint16(9000)), Fields: []packet.FieldValue{
						{Word: "seq", Value: uint64(seq)},
						{Word: "ack-number", Value: uint64(ack)}}})))
			}
			watch(packet.SYN | packet.ACK)
			sends(packet.SYN, 1000, 0)
			number := wait(packet.SYN|packet.ACK) + 1
			if err := bringPolicyAt(t, "wr0", mode, connectionPolicy, 0); err != nil {
				t.Fatal(err)
			}
			watch(packet.ACK)
			sends(packet.SYN, 1<<30, 0)
			if got := wait(packet.ACK); got != number {
				t.Fatalf("an ACK of number %d, want %d", got, number)
			}
			a := status(t)
			for i := range uint32(20) {
				sends(packet.ACK, 1001, number+2+i<<20)
			}
			await.OK(t, func() error {
				if now := status(t); packets(&now, "default") < packets(&a, "default")+20 {
					return fmt.Errorf("%d forged segments are dropped, want 20",
						packets(&now, "default")-packets(&a, "default"))
				}
				return nil
			})
			if f := status(t).Connections; f.Open != 0 {
				t.Errorf("%d connections are open", f.Open)
			}
			if _, err := Down(t.Context(), "wr0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAnswersFromBeforeAPolicyStayNoWayIn: what leaves over UDP when a policy begins may answer
// what nobody has looked at. It is known for one lease, whatever else leaves, and then as what it
// is.
func TestAnswersFromBeforeAPolicyStayNoWayIn(t *testing.T) {
	x := newConnections(t)
	flow.Settle(x.memory(), x.now+30*x.hz)
	const late, early = 1, 2
	x.leave(udp, early)
	x.pass(time.Minute)
	x.leave(udp, late)
	for _, n := range []uint32{early, late} {
		if !x.arrive(udp, n) {
			t.Fatalf("%d is not known", n)
		}
	}
	for range 6 {
		x.pass(time.Minute)
		x.leave(udp, early)
		x.leave(udp, late)
		if !x.arrive(udp, late) {
			t.Fatal("what left later is not renewed")
		}
	}
	x.pass(time.Second)
	if !x.arrive(udp, early) {
		t.Fatal("what has left anew is not known")
	}
	flow.Settle(x.memory(), x.now+30*x.hz)
	x.leave(udp, 3)
	for i := range 6 {
		if !x.arrive(udp, 3) {
			t.Fatalf("it is not known after %d minutes", i)
		}
		x.pass(time.Minute)
		if i < 4 {
			x.leave(udp, 3)
		}
	}
	if x.arrive(udp, 3) {
		t.Error("what may answer somebody is renewed")
	}
}
