package packet

import (
	"errors"
	"testing"
)

func TestPacketsWithoutEthernetAreDecoded(t *testing.T) {
	four, err := Build(Spec{Proto: new(uint8(ProtoTCP)), ToPort: new(uint16(22))})
	if err != nil {
		t.Fatal(err)
	}
	six, err := Build(Spec{Family: IPv6, ToPort: new(uint16(53))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		packet    []byte
		malformed Malformed
		ether     uint16
		port      uint16
	}{
		{"IPv4", four[14:], WellFormed, EtherIPv4, 22},
		{"IPv6", six[14:], WellFormed, EtherIPv6, 53},
		{"with padding", append(four[14:len(four):len(four)], 0, 0), WellFormed, EtherIPv4, 22},
		{"nothing", nil, TruncatedIP, 0, 0},
		{"19 bytes", four[14:33], TruncatedIP, 0, 0},
		{"IPv6 of 39 bytes", six[14:53], TruncatedIP, EtherIPv6, 0},
		{"an Ethernet frame", four, IPVersion, 0, 0},
	} {
		var p Packet
		L3.Decode(c.packet, &p)
		if p.Malformed != c.malformed || p.EtherType != c.ether || p.DstPort != c.port ||
			p.NetworkOffset != 0 || p.Link != L3 {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

func TestOnlyUntaggedIPIsCarriedWithoutEthernet(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		taken bool
	}{
		{Spec{}, true},
		{Spec{Family: IPv6}, true},
		{Spec{Family: ARP}, false},
		{Spec{VLAN: new(uint16(7))}, false},
		{Spec{Family: OtherFamily, EtherType: 0x88cc}, false},
	} {
		frame, err := Build(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := L3.Carry(frame)
		if (err == nil) != c.taken || err != nil && !errors.Is(err, ErrNotL3) {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if c.taken && len(got) != len(frame)-14 {
			t.Errorf("%+v: %d of %d bytes", c.spec, len(got), len(frame))
		}
		if same, err := Ethernet.Carry(frame); err != nil || len(same) != len(frame) {
			t.Errorf("%+v: on Ethernet %d of %d bytes, %v", c.spec, len(same), len(frame), err)
		}
	}
	if _, err := L3.Carry(make([]byte, 13)); !errors.Is(err, ErrNotL3) {
		t.Errorf("13 bytes: %v", err)
	}
}

func TestLinkLayersHaveNames(t *testing.T) {
	for l := Ethernet; l <= L3; l++ {
		if got, err := ParseLink(l.String()); got != l || err != nil {
			t.Errorf("%s: %s, %v", l, got, err)
		}
	}
	if _, err := ParseLink("ppp"); err == nil {
		t.Error("any name is taken")
	}
}
