package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/store"
)

const errorPolicy = `pass icmp established as "error"
pass icmp6 established as "error"
pass established as "known"
pass udp port 8080 as "published"
count icmp as "other"
default drop
`

// TestErrorsAboutConnections: real hosts tell of closed ports, and the sender learns it: one on
// this machine, and one behind it whose address is translated. Those about answers of a published
// port are for the rules: anybody can ask in the name of somebody, and then tell of errors.
func TestErrorsAboutConnections(t *testing.T) {
	n := newTestNet(t)
	behind := newBehind(t, n)
	giveBothFamilies(t, n)
	in(t, n.peer, func() (any, error) { // else one error a second to each address
		return nil, errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0),
			os.WriteFile("/proc/sys/net/ipv6/icmp/ratelimit", []byte("0"), 0))
	})
	run(t, n.here, `table ip published {
	chain to {
		type nat hook prerouting priority dstnat
		iifname "lv0" udp dport 8080 dnat to 10.77.0.2:9000
	}
	chain from { type nat hook postrouting priority srcnat; oifname "lv0" masquerade; }
}
`, "nft", "-f", "-")
	for _, mode := range []store.Mode{store.XDPNative, store.XDPGeneric, tcModes(t)[0]} {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "lv0", mode, errorPolicy, 0); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				name string
				from netns.NsHandle
				to   string
			}{{"from here", n.here, "198.51.100.2:9"}, {"from here, IPv6", n.here,
				"[2001:db8:7::2]:9"}, {"from behind", behind, "198.51.100.2:9"}} {
				was := labelled(new(status(t)), "error")
				if err := refused(t, c.from, c.to); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if labelled(new(status(t)), "error") == was {
					t.Errorf("%s: no error was established", c.name)
				}
			}
			publishedError(t, n, behind)
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// refused sends datagrams to a closed port until an error about one arrives.
func refused(t *testing.T, from netns.NsHandle, to string) error {
	t.Helper()
	c := in(t, from, func() (net.Conn, error) { return net.Dial("udp", to) })
	defer c.Close()
	for range 50 {
		if _, err := c.Write([]byte("hello")); errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
	}
	return fmt.Errorf("no error about %s arrived", to)
}

// publishedError has a client of a published port go away before it is answered.
func publishedError(t *testing.T, n *testNet, behind netns.NsHandle) {
	t.Helper()
	server := in(t, behind, func() (net.PacketConn, error) {
		return net.ListenPacket("udp4", ":9000")
	})
	defer server.Close()
	client := in(t, n.peer, func() (net.Conn, error) {
		return net.Dial("udp", "198.51.100.1:8080")
	})
	if _, err := io.WriteString(client, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(time.Minute))
	_, from, err := server.ReadFrom(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	was := status(t)
	await.OK(t, func() error {
		_, _ = server.WriteTo([]byte("hello"), from) // an error about the last one is no matter
		now := status(t)
		if labelled(&now, "error") != labelled(&was, "error") {
			t.Fatal("an error about an answer to who began is established")
		}
		if labelled(&now, "other") == labelled(&was, "other") {
			return errors.New("no error about an answer of a published port has come")
		}
		return nil
	})
}
