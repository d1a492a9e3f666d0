package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/store"
	"levee/internal/packet"
	"levee/internal/packet/a2s"
)

// gameServer answers A2S queries, each client with a number of its own first, and counts them.
type gameServer struct{ queries atomic.Int64 }

// serverNumber is the challenge that the server sends.
const serverNumber = 0x01020304

// toldByServer is the server's reply to a query that has its challenge.
var toldByServer = []byte("\xff\xff\xff\xffI\x11A server\x00")

func (s *gameServer) serve(t *testing.T, ns netns.NsHandle, addr string) {
	c := in(t, ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", addr) })
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			s.queries.Add(1)
			answer := a2s.Answer(serverNumber)
			if number, ok := a2s.Echo(b[:n]); ok && number == serverNumber {
				answer = toldByServer
			}
			_, _ = c.WriteTo(answer, from)
		}
	}()
}

// queryA2S asks as clients do: it sends what it is given back until it is told, or was given as
// many numbers as python-a2s takes. The result is the numbers.
func queryA2S(t *testing.T, c net.Conn, of byte) (numbers []uint32) {
	t.Helper()
	b := make([]byte, 1500)
	msg := a2s.Query(of)
	if of != a2s.Info {
		msg = a2s.Query(of, 0xffffffff)
	}
	for len(numbers) < 6 {
		if _, err := c.Write(msg); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		number, ok := a2s.Number(b[:n])
		if !ok {
			if !slices.Equal(b[:n], toldByServer) {
				t.Fatalf("answered %x", b[:n])
			}
			return numbers
		}
		numbers = append(numbers, number)
		msg = a2s.Query(of, number)
	}
	t.Fatalf("asked for %x, and told nothing", numbers)
	return nil
}

// TestClientsSendTheNumberOfACookieBack has clients query a server behind a cookie, which asks for
// a number first, and once a flow: the next query of a flow goes to the server, and that of another
// port is asked again. Who sends the number of another flow is asked for his own.
func TestClientsSendTheNumberOfACookieBack(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	var s gameServer
	s.serve(t, n.here, "198.51.100.1:27015")
	s.serve(t, n.here, "[2001:db8:7::1]:27015")
	const text = `prove "server" udp port 27015 reply payload at 0 ffffffff41 echo 4 bytes at 5 in request at 25, 5
cookie a2s udp port 27015 as "ask"
pass arp
pass icmp6
pass udp port 27015 proven flow as "proven"
default drop
`
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			defer Down(t.Context(), "lv0")
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			for _, addr := range []string{"198.51.100.1:27015", "[2001:db8:7::1]:27015"} {
				var first uint32
				for i, of := range []byte{a2s.Info, a2s.Player, a2s.Rules} {
					c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("udp", addr) })
					defer c.Close()
					before := s.queries.Load()
					got := queryA2S(t, c, of)
					if len(got) != 2 || got[0] == serverNumber || got[1] != serverNumber {
						t.Errorf("%s, query %x: asked for %x, want a number of the cookie and "+
							"the server's", addr, of, got)
					}
					if n := s.queries.Load() - before; n != 2 {
						t.Errorf("%s: the server has %d queries, want 2", addr, n)
					}
					if got := queryA2S(t, c, a2s.Info); !slices.Equal(got, []uint32{serverNumber}) {
						t.Errorf("%s: a flow that is proven is asked for %x", addr, got)
					}
					if i == 0 {
						first = got[0]
					} else if got[0] == first {
						t.Errorf("%s: two flows have the number %x", addr, first)
					}
				}
				c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("udp", addr) })
				defer c.Close()
				before := s.queries.Load()
				if _, err := c.Write(a2s.Query(a2s.Info, first)); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 64)
				if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				n, err := c.Read(b)
				if number, ok := a2s.Number(b[:n]); err != nil || !ok || number == first ||
					s.queries.Load() != before {
					t.Errorf("%s: the number of another flow is answered by %x, %v", addr, b[:n],
						err)
				}
			}
			wantPackets(t, "ask", 8)
			wantPackets(t, "proven", 24)
			e := status(t).Echoes
			if e == nil || e.Flows != 6 || len(e.Proves) != 2 {
				t.Fatalf("the memory tells %+v", e)
			}
			for _, p := range e.Proves {
				// The server's answers with a number are 2 for each flow. Those of the cookie are
				// no replies of it.
				given, proofs, wrong := uint64(12), uint64(0), p.Wrong
				if p.Name != "server" {
					// Queries that ask for a number have none: two, of another flow, are wrong.
					given, proofs, wrong = 8, 6, 2
				}
				if p.Given != given || p.Proofs != proofs || p.Wrong != wrong || p.Wrong == 0 {
					t.Errorf("the memory tells %+v, want %d given, %d proofs, %d wrong", p, given,
						proofs, wrong)
				}
			}
		})
	}
}

// TestAShadowKnewNoFlowThatANumberProves: a cookie answers nobody in a shadow, which took all flows
// for unproven where no `prove` was there besides.
func TestAShadowKnewNoFlowThatANumberProves(t *testing.T) {
	newTestNet(t)
	s := &stateTest{T: t}
	const text = `cookie a2s udp port 27015 as "ask"
pass udp port 27015 proven flow as "proven"
default drop
`
	upText(t, "lv0", store.XDPNative, text)
	shadowUp(t, text, "lv0")
	query := func(number ...uint32) []byte {
		return s.judge(s.build(packet.Spec{EtherTo: own(s, "lv0"),
			Proto: new(uint8(packet.ProtoUDP)),
			From:  netip.MustParseAddr("203.0.113.9"), To: netip.MustParseAddr("198.51.100.7"),
			FromPort: new(uint16(5000)), ToPort: new(uint16(27015)),
			Payload: a2s.Query(a2s.Info, number...)}))
	}
	answer := query()
	var p packet.Packet
	packet.Decode(answer, &p)
	number, ok := a2s.Number(answer[p.TransportOffset+8:][:p.UDPPayload])
	if !ok {
		t.Fatalf("answered %x", answer)
	}
	query(number)
	query()
	a := status(t)
	got, beside := counter(&a, "proven"), countOf(a.Shadow.Rules, "proven")
	if got != "2 packets" || beside != got {
		t.Errorf("of a flow that is proven: in force %s, beside %s", got, beside)
	}
}

// BenchmarkNumber measures the time of an A2S query that levee answers above an empty program: by
// the cookie alone and by the whole profile, from one source, and from so many in turn; and the
// time of a first request to join that has to come again.
func BenchmarkNumber(b *testing.B) {
	const profile = "use source-engine asked 1/s first 1/s\ndefault drop\n"
	for _, c := range []struct {
		name, text string
		says       []byte
	}{
		{"cookie", "cookie a2s udp port 27015\ndefault pass\n", a2s.Query(a2s.Info)},
		{"profile", profile, a2s.Query(a2s.Info)},
		{"join", profile, []byte("\xff\xff\xff\xffq\x0a\x0b\x0c\x0d0000000000\x00")},
	} {
		r := benchRunner(b, c.text)
		for _, sources := range []int{1, 1 << 18} {
			b.Run(fmt.Sprintf("%s/sources=%d", c.name, sources), func(b *testing.B) {
				f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
					FromPort: new(uint16(40000)), ToPort: new(uint16(27015)),
					From: netip.MustParseAddr("16.0.0.1"), To: netip.MustParseAddr("198.51.100.1"),
					EtherTo: &[6]byte{2, 0, 0, 0, 0, 1}, EtherFrom: &[6]byte{2, 0, 0, 0, 0, 2},
					Payload: c.says})
				if err != nil {
					b.Fatal(err)
				}
				var frames [][]byte
				for i := range sources {
					frames = append(frames, slices.Clone(f))
					binary.BigEndian.PutUint32(frames[i][26:], 16<<24|uint32(i)*2654435761>>8)
				}
				benchFrames(b, r, frames)
			})
		}
	}
}
