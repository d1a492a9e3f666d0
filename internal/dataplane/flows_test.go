package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/capture"
	"levee/internal/packet"

	"github.com/vishvananda/netlink"
)

// flowBounds bound what tests read of a flow.
var flowBounds = capture.FlowBounds{Bytes: 1 << 14, Datagrams: 4}

// readFlows reads what has come: how often each source was handed on, and whether it was proven.
func readFlows(t *testing.T, r *tap.FlowReader, seen map[string]int) {
	t.Helper()
	if err := r.Read(func(p *tap.FlowPacket) {
		var d packet.Packet
		p.Link.Decode(p.Packet, &d)
		seen[fmt.Sprint(d.Src, " ", p.Proven)]++
	}); err != nil {
		t.Fatal(err)
	}
}

// TestForgedFlowsAreNeverProven: whoever writes the address of another into a SYN and into data
// behind it has shaken no hands, also not within a connection of the other. A client is proven, at
// each hook; flows to other ports are not read, nor what the agent wants no more of.
func TestForgedFlowsAreNeverProven(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "10.9.0.1/24")
	giveAddress(t, n.peer, "lv1", "10.9.0.2/24")
	giveAddress(t, n.peer, "lv1", "10.9.0.3/24")
	giveAddress(t, n.peer, "lv1", "10.9.0.4/24")
	l := in(t, n.here, func() (net.Listener, error) { return net.Listen("tcp4", "10.9.0.1:9000") })
	t.Cleanup(func() { l.Close() }) // and nobody accepts: the kernel shakes hands
	mac := [6]byte(must2(netlink.LinkByName("lv0")).Attrs().HardwareAddr)
	ports := &capture.Ports{9000: capture.ReadTCP}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			stayHere(t)
			if err := bringPolicyAt(t, "lv0", mode, "default pass", 0); err != nil {
				t.Fatal(err)
			}
			r, err := tap.NewFlowReader(t.Context(), "lv0", ports, flowBounds)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			forge := func(from string, port, to uint16, flags uint8, payload string) {
				frame, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
					FromPort: new(port), To: netip.MustParseAddr("10.9.0.1"), ToPort: new(to),
					Flags: new(flags), Payload: []byte(payload), EtherTo: &mac})
				if err != nil {
					t.Fatal(err)
				}
				n.sendFrame(t, frame)
			}
			dial := func(from string) net.Conn {
				return in(t, n.peer, func() (net.Conn, error) {
					d := net.Dialer{Timeout: hangs,
						LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
					return d.Dial("tcp", "10.9.0.1:9000")
				})
			}
			seen := map[string]int{}
			await.OK(t, func() error {
				port := n.port()
				forge("10.9.0.9", port, 9000, packet.SYN, "")
				forge("10.9.0.9", port, 9000, packet.ACK, "SSH-2.0-libssh\r\n")
				forge("10.9.0.8", port, 9000, packet.ACK, "SSH-2.0-libssh\r\n")
				forge("10.9.0.7", port, 9001, packet.SYN, "")
				forge("10.9.0.7", port, 9001, packet.ACK, "SSH-2.0-libssh\r\n")
				if readFlows(t, r, seen); seen["10.9.0.9 false"] == 0 {
					return errors.New("no forged flow was handed on")
				}
				return nil
			})
			c := dial("10.9.0.2")
			defer c.Close()
			await.OK(t, func() error {
				fmt.Fprint(c, "SSH-2.0-x\r\n")
				if readFlows(t, r, seen); seen["10.9.0.2 true"] == 0 {
					return errors.New("the client is not proven")
				}
				return nil
			})
			// Of a connection whose beginning the program has not seen, nobody says where it is.
			other := dial("10.9.0.3")
			defer other.Close()
			r.Forget(addrPort(c), netip.MustParseAddrPort("10.9.0.1:9000"), 6)
			r.Forget(addrPort(other), netip.MustParseAddrPort("10.9.0.1:9000"), 6)
			readFlows(t, r, seen)
			before := fmt.Sprint(seen["10.9.0.2 true"], seen["10.9.0.3 true"])
			forge("10.9.0.3", addrPort(other).Port(), 9000, packet.SYN, "")
			forge("10.9.0.3", addrPort(other).Port(), 9000, packet.ACK, "SSH-2.0-libssh\r\n")
			fmt.Fprint(c, "more")
			last := dial("10.9.0.4")
			defer last.Close()
			await.OK(t, func() error {
				fmt.Fprint(last, "SSH-2.0-y\r\n")
				if readFlows(t, r, seen); seen["10.9.0.4 true"] == 0 {
					return errors.New("the last client is not proven")
				}
				return nil
			})
			if after := fmt.Sprint(seen["10.9.0.2 true"], seen["10.9.0.3 true"]); after != before {
				t.Errorf("%s packets were handed on before, %s behind that", before, after)
			}
			for what := range seen {
				switch what {
				case "10.9.0.9 false", "10.9.0.2 true", "10.9.0.3 true", "10.9.0.4 true":
				default:
					t.Errorf("handed on: %s", what)
				}
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func addrPort(c net.Conn) netip.AddrPort {
	return c.LocalAddr().(*net.TCPAddr).AddrPort()
}

// TestAForgedSYNDoesNotMoveTheBeginningOfAFlow: behind the SYN that the kernel has answered, and in
// front of the acknowledgement, that of another would say where what is proven then begins.
func TestAForgedSYNDoesNotMoveTheBeginningOfAFlow(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "10.9.0.1/24")
	l := in(t, n.here, func() (net.Listener, error) { return net.Listen("tcp4", "10.9.0.1:9000") })
	t.Cleanup(func() { l.Close() })
	mac := [6]byte(must2(netlink.LinkByName("lv0")).Attrs().HardwareAddr)
	stayHere(t)
	if err := bringPolicyAt(t, "lv0", allModes(t)[0], "default pass", 0); err != nil {
		t.Fatal(err)
	}
	r, err := tap.NewFlowReader(t.Context(), "lv0", &capture.Ports{9000: capture.ReadTCP},
		flowBounds)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	from, port := netip.MustParseAddr("10.9.0.9"), n.port()
	send := func(seq uint64, flags uint8, payload string) {
		frame, err := packet.Build(packet.Spec{From: from, FromPort: new(port),
			To: netip.MustParseAddr("10.9.0.1"), ToPort: new(uint16(9000)), Flags: new(flags),
			Payload: []byte(payload), EtherTo: &mac,
			Fields: []packet.FieldValue{{Word: "seq", Value: seq}}})
		if err != nil {
			t.Fatal(err)
		}
		n.sendFrame(t, frame)
	}
	const first, forged = 1000, 1 << 30
	send(first, packet.SYN, "")
	const answered = " 03 " // in the form of the kernel: a SYN has come
	await.OK(t, func() error {
		table, err := os.ReadFile("/proc/thread-self/net/tcp")
		if err == nil && !strings.Contains(string(table), answered) {
			err = errors.New("the kernel has answered no SYN")
		}
		return err
	})
	send(forged, packet.SYN, "")
	send(forged+1, packet.ACK, "forged")
	got := false
	await.OK(t, func() error {
		send(first+1, packet.ACK, "true")
		err := r.Read(func(p *tap.FlowPacket) {
			if p.First != first+1 || !strings.HasSuffix(string(p.Packet), "true") {
				t.Errorf("of a flow from %d on: %q", p.First, p.Packet)
			}
			got = true
		})
		if err == nil && !got {
			err = errors.New("nothing is handed on of the flow")
		}
		return err
	})
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Fatal(err)
	}
}
