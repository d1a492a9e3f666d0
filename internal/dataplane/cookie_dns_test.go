package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/store"
)

// nameServer answers every question with one address, and counts them.
type nameServer struct {
	cookies  bool // it gives cookies to clients that have them (RFC 7873)
	udp, tcp atomic.Int64
}

// answer is the answer to a query without EDNS or with.
func (s *nameServer) answer(query []byte) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	out := append([]byte(nil), query[:end+5]...)
	clear(out[4:12])
	out[2], out[5], out[7] = 0x84|query[2]&1, 1, 1 // authoritative; a question, an answer
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 55)
	if at := bytes.Index(query[end:], []byte{0, 10}); s.cookies && at > 0 && query[11] == 1 {
		client := query[end+at+4:][:8]
		out[11] = 1
		out = append(out, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 20, 0, 10, 0, 16)
		out = append(append(out, client...), 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8)
	}
	return out
}

func (s *nameServer) serve(t *testing.T, ns netns.NsHandle, addr string) {
	u := in(t, ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", addr) })
	l := in(t, ns, func() (net.Listener, error) { return net.Listen("tcp", addr) })
	t.Cleanup(func() { u.Close(); l.Close() })
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			s.udp.Add(1)
			_, _ = u.WriteTo(s.answer(b[:n]), from)
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err == nil {
				b := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, b); err == nil {
					s.tcp.Add(1)
					out := s.answer(b)
					_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))),
						out...))
				}
			}
			c.Close()
		}
	}()
}

// TestResolversAskAgainOverTCP has a resolver ask a server whose queries a cookie answers: first it
// comes by TCP, and from then on by UDP, since it is proven.
func TestResolversAskAgainOverTCP(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	var s nameServer
	s.serve(t, n.here, "198.51.100.1:53")
	s.serve(t, n.here, "[2001:db8:7::1]:53")
	const text = `cookie dns udp port 53 as "ask again"
pass established
pass arp
pass icmp6
pass udp port 53 as "query"
pass tcp syn port 53
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
			for i, addr := range []string{"198.51.100.1:53", "[2001:db8:7::1]:53"} {
				r := net.Resolver{PreferGo: true,
					Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
						return in(t, n.peer, func() (net.Conn, error) {
							return new(net.Dialer).DialContext(ctx, network, addr)
						}), nil
					}}
				for try := range int64(3) {
					before := [2]int64{s.udp.Load(), s.tcp.Load()}
					ips, err := r.LookupNetIP(t.Context(), "ip4", "wWw.example.com.")
					if err != nil || len(ips) != 1 || ips[0].String() != "192.0.2.55" {
						t.Fatalf("%s, try %d: %v, %v", addr, try, ips, err)
					}
					got := [2]int64{s.udp.Load() - before[0], s.tcp.Load() - before[1]}
					if want := [2]int64{min(try, 1), 1 - min(try, 1)}; got != want {
						t.Errorf("%s, try %d: %v queries over UDP and TCP, want %v", addr, try,
							got, want)
					}
				}
				if c := status(t).Cookies; c.Sources != i+1 {
					t.Errorf("%s: %d clients are proven, want %d", addr, c.Sources, i+1)
				}
			}
			wantPackets(t, "ask again", 2)
			wantPackets(t, "query", 4)
		})
	}
}
