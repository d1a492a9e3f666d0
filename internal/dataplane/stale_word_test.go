package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// Of struct virtio_net_hdr of include/uapi/linux/virtio_net.h, with which a packet socket says what
// the stack has yet to do.
const (
	packetVnetHdr = 15 // PACKET_VNET_HDR
	vnetHeader    = 10 // bytes
	needsSum      = 1
)

// sendWhole sends an IP packet of TCP or UDP, untagged and without options, that is to be cut into
// segments of a size later: a virtual machine hands on such ones. It is false for UDP where the
// kernel knows of no such packets (before 6.2).
func (n *testNet) sendWhole(t testing.TB, f []byte, size uint16) bool {
	t.Helper()
	const tcp4, tcp6, udp = 1, 4, 5
	var s int
	n.inPeer(t, func() {
		var err error
		if s, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(s, unix.SOL_PACKET, packetVnetHdr, 1); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(s)
	var p packet.Packet
	packet.Decode(f, &p)
	kind, header, sum := byte(udp), 8, 6
	if p.Proto == packet.ProtoTCP {
		if kind = tcp4; p.Family == packet.IPv6 {
			kind = tcp6
		}
		header, sum = 20, 16
	}
	h := []byte{needsSum, kind}
	for _, v := range []int{p.TransportOffset + header, int(size), p.TransportOffset, sum} {
		h = binary.NativeEndian.AppendUint16(h, uint16(v))
	}
	f = slices.Clone(f)
	copy(f[p.TransportOffset+sum:], pseudoSum(&p, len(f)-p.TransportOffset))
	err := unix.Sendto(s, append(h, f...), 0,
		&unix.SockaddrLinklayer{Ifindex: n.txIndex, Protocol: be16(p.EtherType)})
	if kind == udp && errors.Is(err, unix.EINVAL) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// be16 is a number as a field in network order holds it.
func be16(v uint16) uint16 { return v<<8 | v>>8 }

// pseudoSum returns the sum of the pseudo-header: the checksum of a segment whose device has yet to
// sum it up.
func pseudoSum(p *packet.Packet, bytes int) []byte {
	sum := binary.BigEndian.AppendUint16([]byte{0, p.Proto}, uint16(bytes))
	sum = binary.BigEndian.AppendUint16(nil,
		checksum(slices.Concat(p.Src.AsSlice(), p.Dst.AsSlice(), sum)))
	return sum
}

// TestNoPacketIsJudgedByTheTunnelOfAnEarlierOne: at tc, what is known of a tunnel was left on the
// stack, and passed each packet behind it that went the careful decoder's way.
func TestNoPacketIsJudgedByTheTunnelOfAnEarlierOne(t *testing.T) {
	n := newTestNet(t)
	build := func(s packet.Spec) []byte {
		t.Helper()
		f, err := packet.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	udp := packet.Spec{Proto: new(uint8(packet.ProtoUDP)), ToPort: new(uint16(53))}
	within := build(packet.Spec{Proto: new(uint8(packet.ProtoTCP)), ToPort: new(uint16(80))})
	kinds := map[string]func(s packet.Spec) packet.Spec{
		"a tag":    func(s packet.Spec) packet.Spec { s.VLAN = new(uint16(7)); return s },
		"priority": func(s packet.Spec) packet.Spec { s.VLAN = new(uint16(0)); return s },
		"two tags": func(s packet.Spec) packet.Spec {
			s.VLAN, s.InnerVLAN = new(uint16(7)), new(uint16(8))
			return s
		},
		"options": func(s packet.Spec) packet.Spec { s.Options = true; return s },
		"ESP": func(packet.Spec) packet.Spec {
			return packet.Spec{Proto: new(uint8(50)), VLAN: new(uint16(7))}
		},
		"GRE of nothing": func(packet.Spec) packet.Spec {
			return packet.Spec{Proto: new(uint8(packet.ProtoGRE)), VLAN: new(uint16(7)),
				Payload: []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}}
		},
		"a later fragment": func(s packet.Spec) packet.Spec { s.Frag = new(uint16(100)); return s },
		"a later fragment with a tag": func(s packet.Spec) packet.Spec {
			s.Frag, s.VLAN = new(uint16(100)), new(uint16(7))
			return s
		},
		"a first fragment": func(s packet.Spec) packet.Spec { s.Frag = new(uint16(0)); return s },
	}
	whole := map[string]packet.Spec{
		"UDP that is not cut yet": {Proto: new(uint8(packet.ProtoUDP)), ToPort: new(uint16(53)),
			Payload: make([]byte, 3000)},
		"TCP that is not cut yet": {Proto: new(uint8(packet.ProtoTCP)), ToPort: new(uint16(53)),
			Payload: make([]byte, 3000)},
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const text = "drop ether 0x88b5 as \"end\"\n" +
				"pass inner( tcp port 80 ) as \"within\"\n" +
				"drop not inner( tcp port 81 ) as \"another\"\ndefault drop\n"
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			tunnels, ends, dropped := uint64(0), uint64(0), uint64(0)
			follow := func(what string, send func() bool) {
				t.Helper()
				n.sendFrame(t, build(packet.Spec{Proto: new(uint8(packet.ProtoUDP)),
					ToPort:  new(uint16(packet.PortVXLAN)),
					Payload: slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, within)}))
				tunnels++
				came := send()
				n.send(t, 1, 0)
				ends++
				wantPackets(t, "end", ends)
				a := status(t)
				if came && packets(&a, "default") == dropped {
					t.Errorf("%s never came", what)
				}
				dropped = packets(&a, "default")
				if packets(&a, "within") != tunnels || packets(&a, "another") != 0 {
					t.Fatalf("%s was judged by what the tunnel before it carried", what)
				}
			}
			for _, family := range []packet.Family{packet.IPv4, packet.IPv6} {
				of := func(s packet.Spec) packet.Spec { s.Family = family; return s }
				for _, name := range slices.Sorted(maps.Keys(kinds)) {
					follow(fmt.Sprint(name, ", ", family),
						func() bool { n.sendFrame(t, build(kinds[name](of(udp)))); return true })
				}
				for _, name := range slices.Sorted(maps.Keys(whole)) {
					follow(fmt.Sprint(name, ", ", family),
						func() bool { return n.sendWhole(t, build(of(whole[name])), 1000) })
				}
			}
		})
	}
}
