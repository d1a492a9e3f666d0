package oracle

import (
	"testing"

	"levee/internal/packet"
	"levee/internal/packet/template"
)

func TestBriefIsOneShortLine(t *testing.T) {
	for words, want := range map[string]string{
		"tcp syn from 192.0.2.7 port 22": "tcp 192.0.2.7:40000 > 198.51.100.1:22 syn len 40",
		"ipv6 udp port 53 vlan 7": "vlan 7 udp [2001:db8::1]:40000 > [2001:db8:1::1]:53 " +
			"len 48",
		"icmp type 3/4 ttl 9": "icmp 192.0.2.1 > 198.51.100.1 type 3/4 len 28",
		"udp frag 64 len 80":  "udp 192.0.2.1 > 198.51.100.1 fragment len 80",
		"udp port 53 frag 0 len 48": "udp 192.0.2.1:40000 > 198.51.100.1:53 first fragment " +
			"len 48",
		"arp": "ether 0x0806, 42 bytes",
	} {
		p, ds := template.One("packet", words)
		if p == nil {
			t.Fatal(ds)
		}
		frame, err := p.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got := Brief(frame, len(frame), packet.Ethernet); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	if got := Brief(make([]byte, 5), 5, packet.Ethernet); got != "ether 0x0000, 5 bytes" {
		t.Errorf("of five bytes: %q", got)
	}
}
