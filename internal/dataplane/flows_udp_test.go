package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/capture"
	"levee/internal/packet"

	"github.com/vishvananda/netlink"
)

// tokenPolicy proves clients that say 4 bytes of a reply, which follow an A, behind a B.
const tokenPolicy = `prove "token" udp port 9001 reply payload at 0 41 echo 4 bytes at 1 in request at 1
pass udp port 9001 proven flow as "proven"
default pass
`

// TestDatagramsAreNumberedAndProvenByThePolicy, at each hook: of a client all datagrams are
// numbered, and it is proven once it has said what it was told, and only while no other datagram
// is of its flow. Whoever forges is never proven. Nothing is handed on beyond the bound, nor of
// what the reader wants no more.
func TestDatagramsAreNumberedAndProvenByThePolicy(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "10.9.0.1/24")
	giveAddress(t, n.peer, "lv1", "10.9.0.2/24")
	server := in(t, n.here, func() (net.PacketConn, error) {
		return net.ListenPacket("udp4", "10.9.0.1:9001")
	})
	t.Cleanup(func() { server.Close() })
	to := netip.MustParseAddrPort("10.9.0.1:9001")
	mac := [6]byte(must2(netlink.LinkByName("lv0")).Attrs().HardwareAddr)
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			stayHere(t)
			if err := bringPolicyAt(t, "lv0", mode, tokenPolicy, 0); err != nil {
				t.Fatal(err)
			}
			r, err := tap.NewFlowReader(t.Context(), "lv0",
				&capture.Ports{9001: capture.ReadUDP, 9002: capture.ReadInitials}, flowBounds)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			c := in(t, n.peer, func() (net.Conn, error) { return net.Dial("udp4", to.String()) })
			defer c.Close()
			client := c.LocalAddr().(*net.UDPAddr).AddrPort()
			first := map[netip.AddrPort]uint32{}
			numbers := map[netip.AddrPort][]uint32{}
			read := func() {
				t.Helper()
				if err := r.Read(func(p *tap.FlowPacket) {
					var d packet.Packet
					p.Link.Decode(p.Packet, &d)
					from := netip.AddrPortFrom(d.Src, d.SrcPort)
					if had, ok := first[from]; ok && had != p.First {
						t.Errorf("the flow of %s began at %d, and at %d", from, had, p.First)
					}
					first[from], numbers[from] = p.First, append(numbers[from], p.Number)
				}); err != nil {
					t.Fatal(err)
				}
			}
			gets := func(from netip.AddrPort, want int) {
				t.Helper()
				await.OK(t, func() error {
					if read(); len(numbers[from]) < want {
						return fmt.Errorf("of %s %d datagrams were handed on", from,
							len(numbers[from]))
					}
					return nil
				})
				for i, number := range numbers[from] {
					if number != uint32(i) {
						t.Fatalf("of %s datagrams with numbers %v", from, numbers[from])
					}
				}
			}
			say := func(text string) {
				t.Helper()
				if _, err := c.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 100)
				if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				for { // what is forged comes here, too
					got, from, err := server.ReadFrom(buf)
					if err != nil {
						t.Fatal(err)
					}
					if string(buf[:got]) == text && from.String() == client.String() {
						return
					}
				}
			}
			forge := func(from string, port, to uint16, payload []byte) {
				frame, err := packet.Build(packet.Spec{From: netip.MustParseAddr(from),
					FromPort: new(port), To: netip.MustParseAddr("10.9.0.1"), ToPort: new(to),
					Proto: new(uint8(packet.ProtoUDP)), Payload: payload, EtherTo: &mac})
				if err != nil {
					t.Fatal(err)
				}
				n.sendFrame(t, frame)
			}
			say("first")
			if gets(client, 1); !r.Proves() || r.Proven(client, to, first[client], 1) {
				t.Fatal("a client is proven that has proven nothing")
			}
			_, err = server.WriteTo([]byte("A1234"), net.UDPAddrFromAddrPort(client))
			if err != nil {
				t.Fatal(err)
			}
			say("B1234")
			gets(client, 2)
			for datagrams, want := range map[uint32]bool{1: false, 2: true, 3: false} {
				if r.Proven(client, to, first[client], datagrams) != want {
					t.Errorf("with %d datagrams it is proven: %v", datagrams, !want)
				}
			}
			if r.Proven(client, to, first[client]+1, 2) {
				t.Error("a flow is proven that began at another time")
			}
			// In its name, and in that of somebody else.
			port := n.port()
			stranger := netip.AddrPortFrom(netip.MustParseAddr("10.9.0.9"), port)
			forge("10.9.0.2", client.Port(), 9001, []byte("forged"))
			gets(client, 3)
			for range 2 * flowBounds.Datagrams {
				forge("10.9.0.9", port, 9001, []byte("B1234"))
			}
			gets(stranger, flowBounds.Datagrams+1)
			// Over IPv6, from addresses that begin as those of the client and the server, and end
			// in zeros.
			six, service := netip.MustParseAddr("a09:2::"), netip.MustParseAddr("a09:1::")
			frame, err := packet.Build(packet.Spec{Family: packet.IPv6, From: six,
				FromPort: new(client.Port()), To: service, ToPort: new(uint16(9001)),
				Proto: new(uint8(packet.ProtoUDP)), Payload: []byte("six"), EtherTo: &mac})
			if err != nil {
				t.Fatal(err)
			}
			n.sendFrame(t, frame)
			gets(netip.AddrPortFrom(six, client.Port()), 1)
			if r.Proven(client, to, first[client], 2) ||
				r.Proven(stranger, to, first[stranger], 5) {
				t.Error("what was forged is proven")
			}
			r.Forget(client, to, packet.ProtoUDP)
			say("more")
			// Of QUIC only what begins with an Initial.
			initial, short := make([]byte, 1200), make([]byte, 1199)
			initial[0], initial[4], short[0], short[4] = 0xc3, 1, 0xc3, 1
			handshake, second := make([]byte, 1200), make([]byte, 1200)
			handshake[0], handshake[4] = 0xe3, 1
			copy(second, "\xd3\x6b\x33\x43\xcf")
			for from, payload := range map[string][]byte{"10.9.0.11": initial, "10.9.0.12": short,
				"10.9.0.13": handshake, "10.9.0.14": second} {
				forge(from, port, 9002, payload)
			}
			gets(netip.AddrPortFrom(netip.MustParseAddr("10.9.0.11"), port), 1)
			gets(netip.AddrPortFrom(netip.MustParseAddr("10.9.0.14"), port), 1)
			await.OK(t, func() error {
				n, err := r.Counted()
				want := uint64(3 + flowBounds.Datagrams + 1 + 1 + 2)
				if err == nil && n.Told != want {
					return fmt.Errorf("%d packets were handed on, not %d", n.Told, want)
				} else if err == nil && n.Lost != 0 {
					return errors.New("packets were lost")
				}
				return err
			})
			// Flows of TCP have places of their own, which no datagram takes.
			if r.Hook != nil {
				var key, flow []byte
				if r.Hook.Coll.Maps[capture.FlowsMap].Iterate().Next(&key, &flow) {
					t.Errorf("flow %x of UDP has a place of TCP", key)
				}
				if !r.Hook.Coll.Maps[capture.UDPMap].Iterate().Next(&key, &flow) {
					t.Error("no flow has a place of UDP")
				}
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAReadOfFlowsEndsWhilePacketsCome: under a flood that came as fast as it was read, the agent
// did nothing else.
func TestAReadOfFlowsEndsWhilePacketsCome(t *testing.T) {
	n := newTestNet(t)
	giveAddress(t, n.here, "lv0", "10.9.0.1/24")
	giveAddress(t, n.peer, "lv1", "10.9.0.2/24")
	stayHere(t)
	if err := bringPolicyAt(t, "lv0", allModes(t)[0], "default pass", 0); err != nil {
		t.Fatal(err)
	}
	r, err := tap.NewFlowReader(t.Context(), "lv0", &capture.Ports{9001: capture.ReadUDP},
		flowBounds)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const clients, each = 1200, 4
	for range clients {
		c := in(t, n.peer, func() (net.Conn, error) {
			return net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(
				netip.MustParseAddrPort("10.9.0.1:9001")))
		})
		for range each {
			_, _ = c.Write([]byte("x")) // that nobody listens is no matter
		}
		c.Close()
	}
	await.OK(t, func() error {
		n, err := r.Counted()
		if err == nil && n.Told <= tap.MostAtOnce {
			err = fmt.Errorf("%d packets are there", n.Told)
		}
		return err
	})
	got := 0
	read := func() {
		t.Helper()
		if err := r.Read(func(*tap.FlowPacket) { got++ }); err != nil {
			t.Fatal(err)
		}
	}
	if read(); got == 0 || got > tap.MostAtOnce {
		t.Fatalf("%d packets were read at once", got)
	}
	if read(); got <= tap.MostAtOnce {
		t.Error("nothing is read of what is left")
	}
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Fatal(err)
	}
}
