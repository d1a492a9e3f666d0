package dataplane

import (
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
