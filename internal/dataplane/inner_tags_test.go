package dataplane

import (
	"net/netip"
	"slices"
	"testing"

	"levee/internal/packet"
)

// TestTagOfATunnelIsNotOneOfThePacketWithin: at tc, where the stack has taken the outermost tag
// off, it was counted among those of the Ethernet frame within, so that two of these were too many.
func TestTagOfATunnelIsNotOneOfThePacketWithin(t *testing.T) {
	n := newTestNet(t)
	within, err := packet.Build(packet.Spec{VLAN: new(uint16(6)), InnerVLAN: new(uint16(7)),
		Proto: new(uint8(packet.ProtoTCP)), ToPort: new(uint16(22))})
	if err != nil {
		t.Fatal(err)
	}
	f, err := packet.Build(packet.Spec{VLAN: new(uint16(5)), Proto: new(uint8(packet.ProtoUDP)),
		ToPort:  new(uint16(packet.PortVXLAN)),
		Payload: slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, within)})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const text = "drop vlan 5 inner( vlan 6 inner-vlan 7 tcp port 22 ) as \"within\"\n" +
				"default pass\n"
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			n.sendFrame(t, f)
			wantPackets(t, "within", 1)
		})
	}
}

// TestNoPacketIsJudgedByTheTunnelOfAnEarlierOne: behind one packet of VXLAN, whose word lay on the
// stack still, tagged datagrams passed a rule about the packet within.
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
	udp, tcp := new(uint8(packet.ProtoUDP)), new(uint8(packet.ProtoTCP))
	within := build(packet.Spec{Proto: tcp, ToPort: new(uint16(80))})
	tunnel := build(packet.Spec{Proto: udp, ToPort: new(uint16(packet.PortVXLAN)),
		Payload: slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, within)})
	from6, to6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	var others [][]byte
	for _, six := range []bool{false, true} {
		for _, s := range []packet.Spec{
			{VLAN: new(uint16(5))},
			{VLAN: new(uint16(0))},
			{VLAN: new(uint16(5)), InnerVLAN: new(uint16(7))},
			{},
			{Proto: new(uint8(50)), Payload: make([]byte, 40)}, // ESP
			{Proto: new(uint8(packet.ProtoGRE)), Payload: []byte{255, 255, 1, 2, 3, 4, 5, 6}},
			{Frag: new(uint16(185))},
			{Frag: new(uint16(0))},
		} {
			if s.Proto == nil {
				s.Proto = udp
				if s.Frag == nil || *s.Frag == 0 {
					s.ToPort = new(uint16(53))
				}
			}
			if six {
				s.From, s.To = from6, to6
			}
			others = append(others, build(s))
		}
	}
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			const text = "pass inner( tcp port 80 ) as \"within\"\n" +
				"drop not inner( tcp port 81 ) as \"another\"\ndefault drop\n"
			defer Down(t.Context(), "lv0")
			if err := bringPolicyAt(t, "lv0", mode, text, 0); err != nil {
				t.Fatal(err)
			}
			for i, f := range others {
				n.sendFrame(t, tunnel)
				n.sendFrame(t, f)
				wantPackets(t, "within", uint64(i+1))
			}
			wantPackets(t, "another", 0)
		})
	}
}
