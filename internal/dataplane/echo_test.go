package dataplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// a2sPolicy passes a first query, and whatever else a client sends that has proven its flow.
const a2sPolicy = `prove "a2s" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 in request at 25, 5
pass udp port 27015 proven flow as "proven"
pass udp port 27015 len { 53, 73 } as "first"
drop udp port 27015 as "strangers"
default pass
`

// queryInfo is A2S_INFO (https://developer.valvesoftware.com/wiki/Server_queries), which has the
// challenge behind it, and A2S_PLAYER, which has it in its middle.
var (
	queryInfo   = []byte("\xff\xff\xff\xffTSource Engine Query\x00")
	queryPlayer = []byte("\xff\xff\xff\xffU")
)

// a2sServer is a server of the protocol: who has not sent his challenge gets it, and nothing else.
type a2sServer struct {
	net.PacketConn
	mu         sync.Mutex
	challenges map[string][]byte // by client
}

func serveA2S(t *testing.T, ns netns.NsHandle, addr string) *a2sServer {
	t.Helper()
	c := in(t, ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", addr) })
	t.Cleanup(func() { c.Close() })
	s := &a2sServer{PacketConn: c, challenges: map[string][]byte{}}
	go s.serve()
	return s
}

func (s *a2sServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.ReadFrom(buf)
		if err != nil {
			return
		}
		query, reply := queryInfo, "I\x11a map\x00"
		if n > 4 && buf[4] == 'U' {
			query, reply = queryPlayer, "D\x00"
		}
		s.mu.Lock()
		challenge := s.challenges[from.String()]
		if challenge == nil {
			challenge = make([]byte, 4)
			rand.Read(challenge)
			s.challenges[from.String()] = challenge
		}
		s.mu.Unlock()
		answer := slices.Concat(query[:4], []byte{'A'}, challenge)
		if bytes.Equal(buf[:n], slices.Concat(query, challenge)) {
			answer = slices.Concat(query[:4], []byte(reply))
		}
		s.WriteTo(answer, from)
	}
}

// ask sends a query and returns what comes back; nil if nothing does for a while.
func ask(t *testing.T, c net.Conn, query []byte, patience time.Duration) []byte {
	t.Helper()
	if _, err := c.Write(query); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// TestAClientOfA2SProvesItsFlow: a client that sends the challenge back that the server gave it is
// served, and all that it sends from then on. Who has not received one, or has another's, is not.
func TestAClientOfA2SProvesItsFlow(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	serveA2S(t, n.here, "198.51.100.1:27015")
	serveA2S(t, n.here, "[2001:db8:7::1]:27015")
	modes := []store.Mode{store.XDPNative, store.XDPGeneric, store.Clsact}
	if kernel.TCX.Check() == nil {
		modes = append(modes, store.TCX)
	}
	for _, mode := range modes {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, a2sPolicy, 0); err != nil {
				t.Fatal(err)
			}
			for _, to := range []string{"198.51.100.1:27015", "[2001:db8:7::1]:27015"} {
				dial := func() net.Conn {
					c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("udp", to) })
					t.Cleanup(func() { c.Close() })
					return c
				}
				const silence = 30 * time.Millisecond
				client := dial()
				if got := ask(t, client, []byte("\xff\xff\xff\xffU????"), silence); got != nil {
					t.Errorf("%s: who has guessed gets %q", to, got)
				}
				reply := ask(t, client, queryInfo, hangs)
				if len(reply) != 9 || reply[4] != 'A' {
					t.Fatalf("%s: the first query gets %q", to, reply)
				}
				thief := slices.Concat(queryInfo, reply[5:])
				if got := ask(t, dial(), thief, silence); got != nil {
					t.Errorf("%s: who has seen another's challenge gets %q", to, got)
				}
				wrong := slices.Concat(queryInfo, []byte{reply[5] + 1}, reply[6:])
				if got := ask(t, client, wrong, silence); got != nil {
					t.Errorf("%s: a wrong challenge gets %q", to, got)
				}
				right := slices.Concat(queryPlayer, reply[5:])
				if got := ask(t, client, right, hangs); !strings.Contains(string(got), "D") {
					t.Errorf("%s: the challenge gets %q", to, got)
				}
				if got := ask(t, client, []byte("\xff\xff\xff\xffU????"), hangs); got == nil {
					t.Errorf("%s: what a proven flow sends then is not served", to)
				}
			}
			e := status(t).Echoes
			if e == nil || e.Flows != 2 || len(e.Proves) != 1 {
				t.Fatalf("status says %+v", e)
			}
			if p := e.Proves[0]; p.Name != "a2s" || p.Given < 2 || p.Values < 1 || p.Proofs != 2 ||
				p.Wrong < 6 {
				t.Errorf("status says %+v", p)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
