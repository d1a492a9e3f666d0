package resolve

import (
	"testing"
)

func TestTermsAboutEthernetAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"ipv4": false, "ipv6": false, "not ipv4": false, "ether ipv4": false,
		"ether { ipv4, ipv6 }": false, "len > 100": false, "fragments": false, "tcp port 80": false,
		"arp": true, "not arp": true, "ether 0x88cc": true, "ether { ipv4, 0x88cc }": true,
		"ether != ipv4": true, "vlan 7": true, "vlan 7 inner-vlan 8": true, "untagged": true,
		"not untagged": true, "ether from 02:00:00:00:00:01": true,
		"ether to 02:00:00:00:00:01": true,
	} {
		p, ds := Parse("test.levee", []byte("protect tcp port 22\ndrop "+text+"\ndefault pass\n"),
			nil)
		if ds.HasErrors() {
			t.Fatal(ds.Err())
		}
		all := p.Ethernet()
		if (len(all) > 0) != want {
			t.Errorf("%s: %d terms about Ethernet, want some: %v", text, len(all), want)
		}
		for _, a := range all {
			if a.Rule != p.Rules[0] || a.Term.Pos.Line != 2 {
				t.Errorf("%s: found in %q at line %d", text, a.Rule.Text, a.Term.Pos.Line)
			}
		}
	}
}
