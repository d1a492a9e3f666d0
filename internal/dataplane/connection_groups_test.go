package dataplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"levee/internal/await"
	"levee/internal/dataplane/store"
	"levee/internal/packet"
)

// groupQuestions lists questions that hosts ask a whole link, with the source of each answer.
var groupQuestions = []struct {
	name, from, to string // from: "" is a socket that listens to the group itself
	answer         string // from: "" is as from
}{
	{"SSDP", "198.51.100.1:0", "239.255.255.250:1900", "198.51.100.2:0"},
	{"WS-Discovery", "[fe80::1%]:0", "[ff02::c%]:3702", "[fe80::2%]:0"},
	{"multicast DNS", "", "224.0.0.251:5353", ""},
	{"multicast DNS, IPv6", "", "[ff02::fb%]:5353", ""},
	{"multicast DNS, for one", "198.51.100.1:0", "224.0.0.251:5353", "198.51.100.2:5353"},
	{"a broadcast", "198.51.100.1:0", "255.255.255.255:9100", "198.51.100.2:0"},
	{"a broadcast to a network", "198.51.100.1:0", "198.51.100.255:9100", "198.51.100.2:0"},
}

// TestAnswersToGroupsAreEstablished: who asks a group is answered from addresses and ports that
// nobody knows before. Nothing else comes in by that.
func TestAnswersToGroupsAreEstablished(t *testing.T) {
	n := newTestNet(t)
	giveBothFamilies(t, n)
	giveAddress(t, n.here, "lv0", "fe80::1/64")
	giveAddress(t, n.peer, "lv1", "fe80::2/64")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			meanwhile(t, mode, "pass established\ndefault drop\n")
			for _, c := range groupQuestions {
				here := groupSocket(t, n.here, "lv0", c.from, c.to)
				peer := groupSocket(t, n.peer, "lv1", "", c.to)
				if err := arrives(here, peer, onDevice(t, n.here, "lv0", c.to)); err != nil {
					t.Fatalf("%s: the question: %v", c.name, err)
				}
				answers, to := peer, onDevice(t, n.peer, "lv1", c.to)
				if c.answer != "" {
					peer.Close() // it may have the port
					answers = groupSocket(t, n.peer, "lv1", c.answer, c.to)
					to = on(here.LocalAddr().(*net.UDPAddr), to.Zone)
				}
				if err := arrives(answers, here, to); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				for _, s := range []net.PacketConn{here, peer, answers} {
					s.Close()
				}
			}
			here := groupSocket(t, n.here, "lv0", "198.51.100.1:0", "")
			_, _ = here.WriteTo([]byte("who?"), onDevice(t, n.here, "lv0", "239.255.255.250:1900"))
			port := here.LocalAddr().(*net.UDPAddr).AddrPort().Port()
			for _, c := range []struct {
				name, from string
				port       uint16
			}{{"of another link", "203.0.113.9", port},
				{"to another port", "198.51.100.2", port ^ 1}} {
				f, err := packet.Build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
					From: netip.MustParseAddr(c.from), To: netip.MustParseAddr("198.51.100.1"),
					FromPort: new(uint16(1900)), ToPort: new(c.port)})
				if err != nil {
					t.Fatal(err)
				}
				mustDrop(t, "an answer "+c.name, func() { n.sendFrame(t, f) })
			}
		})
	}
}

// TestDHCPv6AnswersFromAnyPort: RFC 8415 does not say from which port a server answers.
func TestDHCPv6AnswersFromAnyPort(t *testing.T) {
	n := newTestNet(t)
	enableIPv6(t, n)
	giveAddress(t, n.here, "lv0", "fe80::1/64")
	giveAddress(t, n.peer, "lv1", "fe80::2/64")
	client := groupSocket(t, n.here, "lv0", "[fe80::1%]:546", "")
	server := groupSocket(t, n.peer, "lv1", "[fe80::2%]:0", "")
	to := onDevice(t, n.peer, "lv1", "[fe80::1%]:546")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			meanwhile(t, mode, "default drop\n")
			if err := arrives(server, client, to); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForgedSourcesTakeNoLimitAway: who is answered over UDP has proven nothing, so a limit behind
// `pass established` holds for him. What this side asks is answered without one.
func TestForgedSourcesTakeNoLimitAway(t *testing.T) {
	const policy = `pass established as "known"
limit udp rate 20/s burst 20 by source as "limit"
pass udp port 9053 as "query"
default drop
`
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			meanwhile(t, mode, policy)
			client, server := datagrams(t, n.peer, "198.51.100.1:9053", n.here, ":9053")
			if err := tells(server, client); err != nil { // it is answered
				t.Fatal(err)
			}
			const queries = 1000
			for range queries {
				if _, err := client.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
			await.OK(t, func() error {
				a := status(t)
				known, limited := labelled(&a, "known"), labelled(&a, "limit")
				if known > 0 || limited+labelled(&a, "query") < queries {
					return fmt.Errorf("%d are known, and %d above the limit", known, limited)
				}
				if limited < queries/2 {
					t.Errorf("of %d queries only %d are above the limit", queries, limited)
				}
				return nil
			})
			ours, theirs := datagrams(t, n.here, "198.51.100.2:9054", n.peer, ":9054")
			for range 100 { // the limit has nothing left
				if err := tells(theirs, ours); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// meanwhile has a policy in force on lv0 until a test ends.
func meanwhile(t *testing.T, mode store.Mode, policy string) {
	t.Helper()
	if err := bringPolicyAt(t, "lv0", mode, policy, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Error(err)
		}
	})
}

// groupSocket is a socket of UDP, which listens to a group at one device where it is from nowhere.
func groupSocket(t *testing.T, ns netns.NsHandle, dev, from, group string) *net.UDPConn {
	t.Helper()
	var to, at *net.UDPAddr
	if from == "" {
		to = onDevice(t, ns, dev, group)
	} else {
		at = onDevice(t, ns, dev, from)
	}
	c := in(t, ns, func() (*net.UDPConn, error) {
		switch {
		case at != nil:
			return net.ListenUDP("udp", at)
		case !to.IP.IsMulticast():
			return net.ListenUDP("udp4", &net.UDPAddr{Port: to.Port})
		}
		ifi, err := net.InterfaceByName(dev)
		if err != nil {
			return nil, err
		}
		return net.ListenMulticastUDP("udp", ifi, to)
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// onDevice is an address, with the device for a zone where it has one. Names of zones are kept for
// all namespaces, so it is the number.
func onDevice(t *testing.T, ns netns.NsHandle, dev, addr string) *net.UDPAddr {
	t.Helper()
	index := in(t, ns, func() (int, error) {
		ifi, err := net.InterfaceByName(dev)
		if err != nil {
			return 0, err
		}
		return ifi.Index, nil
	})
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	if host[len(host)-1] == '%' {
		host += fmt.Sprint(index)
	}
	a, err := net.ResolveUDPAddr("udp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// on is an address in another zone.
func on(a *net.UDPAddr, zone string) *net.UDPAddr {
	return &net.UDPAddr{IP: a.IP, Port: a.Port, Zone: zone}
}

// arrives sends what has to arrive.
func arrives(from, at *net.UDPConn, to *net.UDPAddr) error {
	if _, err := from.WriteTo([]byte("hello"), to); err != nil {
		return err
	}
	_ = at.SetReadDeadline(time.Now().Add(time.Minute))
	if _, _, err := at.ReadFrom(make([]byte, 10)); err != nil {
		return err
	}
	return nil
}
