package packet

import (
	"encoding/hex"
	"testing"
)

// A tunnel of each kind is found by what tells it, and by nothing else.
func TestPacketsWithinTunnels(t *testing.T) {
	udp := func(port uint16, payload string) Spec {
		return Spec{Proto: new(uint8(ProtoUDP)), ToPort: new(port), Payload: unhex(t, payload)}
	}
	gre := func(payload string) Spec {
		return Spec{Proto: new(uint8(ProtoGRE)), Payload: unhex(t, payload)}
	}
	const (
		ip       = "4500001c0000000040110000" + "0a000001" + "0a000002" + "1000003500080000"
		ethernet = "020000000002020000000001" + "0800" + ip
		tagged   = "020000000002020000000001" + "81000005" + "0800" + ip
	)
	for name, c := range map[string]struct {
		spec Spec
		is   bool
		bad  Malformed
	}{
		"vxlan":                    {udp(4789, "0800000000000100"+ethernet), true, 0},
		"vxlan, linux":             {udp(8472, "0800000000000100"+tagged), true, 0},
		"vxlan without identifier": {udp(4789, "0000000000000100"+ethernet), false, 0},
		"vxlan, header cut":        {udp(4789, "08000000000001"), false, 0},
		"vxlan, ethernet cut":      {udp(4789, "0800000000000100"+ethernet[:26]), true, 1},
		"geneve with options":      {udp(6081, "0100080000000100"+"01020304"+ip), true, 0},
		"geneve, another version":  {udp(6081, "4000080000000100"+ip), false, 0},
		"geneve, ethernet":         {udp(6081, "0000655800000100"+ethernet), true, 0},
		"gtp-u":                    {udp(2152, "30ff001c00000001"+ip), true, 0},
		"gtp-u, extension": {udp(2152,
			"34ff002400000001"+"00000085"+"01000000"+ip), true, 0},
		"gtp-u, extension of none": {udp(2152,
			"34ff002400000001"+"00000085"+"00000000"+ip), false, 0},
		"gtp-u, echo": {udp(2152, "3201001c00000001"+ip), false, 0},
		"gre":         {gre("00000800" + ip), true, 0},
		"gre, all fields": {gre(
			"b0000800" + "00000000" + "00000001" + "00000002" + ip), true, 0},
		"gre, bridging":       {gre("00006558" + ethernet), true, 0},
		"gre, mpls":           {gre("00008847" + "00001140" + ip), true, 0},
		"gre, routing":        {gre("40000800" + ip), false, 0},
		"gre of pptp":         {gre("20010800" + ip), false, 0},
		"gre, wccp":           {gre("0000883e" + "00000000" + ip), true, 0},
		"gre, something else": {gre("00002001" + ip), false, 0},
		"ipip": {Spec{Proto: new(uint8(ProtoIPIP)),
			Payload: unhex(t, ip)}, true, 0},
		"ipip, the other version": {Spec{Proto: new(uint8(ProtoIPv6)),
			Payload: unhex(t, ip+ip)}, true, IPVersion},
		"ipip, cut": {Spec{Proto: new(uint8(ProtoIPIP)),
			Payload: unhex(t, ip[:30])}, true, TruncatedIP},
		"udp, another port": {udp(4790, "0800000000000100"+ethernet), false, 0},
		"ipip, first fragment": {Spec{Proto: new(uint8(ProtoIPIP)), Frag: new(uint16(0)),
			Payload: unhex(t, "450005dc"+ip[8:])}, true, 0},
		"ipip, first fragment, tiny": {Spec{Proto: new(uint8(ProtoIPIP)), Frag: new(uint16(0)),
			Payload: unhex(t, ip[:48])}, true, TruncatedL4},
		"ipip, later fragment": {Spec{Proto: new(uint8(ProtoIPIP)), Frag: new(uint16(9)),
			Payload: unhex(t, ip)}, false, 0},
	} {
		frame, err := Build(c.spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var p, in Packet
		Decode(frame, &p)
		is := p.Inner(frame, &in)
		if p.Malformed != WellFormed || is != c.is || is && in.Malformed != c.bad {
			t.Errorf("%s: %v, malformed %d, want %v, %d (outside %d)", name, is, in.Malformed, c.is,
				c.bad, p.Malformed)
		}
		if is && in.Malformed == WellFormed && (in.SrcPort != 0x1000 || in.DstPort != 53) {
			t.Errorf("%s: ports %d and %d", name, in.SrcPort, in.DstPort)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
