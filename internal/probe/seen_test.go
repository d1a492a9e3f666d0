package probe

import (
	"bytes"
	"testing"

	"levee/internal/packet"
	"levee/internal/packet/template"
	"levee/internal/probe/witness"
)

// TestALongPacketWasNotSeen: a witness hands on the first bytes of a packet. Of one that has more,
// nothing was known: it had not arrived, whatever its policy counted.
func TestALongPacketWasNotSeen(t *testing.T) {
	for _, words := range []string{"udp port 53 len 601", "ipv6 udp port 53 len 1400",
		"vlan 7 icmp len 1228", "tcp syn port 80"} {
		made, ds := template.One("packet", words)
		if made == nil {
			t.Fatal(ds)
		}
		frame, err := made.Build()
		if err != nil {
			t.Fatal(err)
		}
		var all packet.Packet
		packet.Decode(frame, &all)
		told := &witness.Packet{Link: packet.Ethernet.String(), Length: len(frame),
			Bytes: frame[:min(len(frame), witness.Snap)]}
		var p packet.Packet
		ip := ipOf(told, &p)
		if ip == nil || p.Dst != all.Dst || p.DstPort != all.DstPort || p.Len != all.Len {
			t.Errorf("%s: %+v", words, p)
		} else if headers := frame[all.NetworkOffset:]; !bytes.HasPrefix(ip, headers[:28]) {
			t.Errorf("%s: % x, want % x", words, ip[:28], headers[:28])
		}
	}
}
