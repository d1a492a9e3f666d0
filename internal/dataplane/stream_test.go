package dataplane

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// streamPolicy drops what belongs to a stream that contains a text, or of which nobody knows.
const streamPolicy = `drop tcp port 8080 stream contains "evil" or unknown as "evil"
default pass
`

// serveStreams tells of each stream what it has, and answers each piece.
func serveStreams(t *testing.T, ns netns.NsHandle, addr string) <-chan string {
	t.Helper()
	l := in(t, ns, func() (net.Listener, error) { return net.Listen("tcp", addr) })
	t.Cleanup(func() { l.Close() })
	said := make(chan string, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					said <- string(buf[:n])
					c.Write([]byte{'.'})
				}
			}()
		}
	}()
	return said
}

// TestAStreamIsSearchedOverItsSegments: a text that a client sends in two segments is found with
// the second, which does not reach the server, nor does anything behind it. What does not contain
// it does.
func TestAStreamIsSearchedOverItsSegments(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	servers := map[string]<-chan string{}
	for _, to := range []string{"198.51.100.1:8080", "[2001:db8:7::1]:8080"} {
		servers[to] = serveStreams(t, n.here, to)
	}
	modes := []store.Mode{store.XDPNative, store.XDPGeneric, store.Clsact}
	if kernel.TCX.Check() == nil {
		modes = append(modes, store.TCX)
	}
	for _, mode := range modes {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, streamPolicy, 0); err != nil {
				t.Fatal(err)
			}
			for to, said := range servers {
				c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("tcp", to) })
				say := func(text string) {
					t.Helper()
					if _, err := c.Write([]byte(text)); err != nil {
						t.Fatal(err)
					}
				}
				hear := func(text string) {
					t.Helper()
					if got := <-said; got != text {
						t.Fatalf("%s: the server got %q, not %q", to, got, text)
					}
					c.SetReadDeadline(time.Now().Add(hangs))
					if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				long := string(bytes.Repeat([]byte("x"), 900))
				for _, text := range []string{"e", "vi ", long, "an ev"} {
					say(text)
					hear(text)
				}
				say("il client")
				c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Errorf("%s: what completes the text reaches the server", to)
				}
				c.(*net.TCPConn).SetLinger(0) // or it would say it again under the next policy
				c.Close()
			}
			s := status(t).Streams
			if s == nil || s.Begun != 2 || s.Flows < 2 || s.Searches < 2 || s.Refused+s.Taken > 0 {
				t.Errorf("status says %+v", s)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
