package oracle

import (
	"bytes"
	"io"
	"net/netip"
	"testing"

	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// parse resolves a policy that the test needs.
func parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, diags := resolve.Parse("test.levee", []byte(text), func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte("192.0.2.0/24\n2001:db8::/32\n"))), nil
	})
	if p == nil {
		t.Fatalf("%v\n%s", diags.Err(), text)
	}
	return p
}

func build(t testing.TB, s packet.Spec) []byte {
	t.Helper()
	b, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// Packets that the tables below name.
func packets(t testing.TB) map[string][]byte {
	four, six := packet.IPv4, packet.IPv6
	all := map[string][]byte{}
	for name, s := range map[string]packet.Spec{
		"arp":        {Family: packet.ARP},
		"lldp":       {Family: packet.OtherFamily, EtherType: 0x88cc, Len: new(46)},
		"802.3":      {Family: packet.OtherFamily, EtherType: 0x26, Len: new(46)},
		"tcp4":       {Flags: new(uint8(packet.ACK)), ToPort: new(uint16(80))},
		"tcp6":       {Family: six, Flags: new(uint8(packet.ACK)), ToPort: new(uint16(80))},
		"syn":        {Flags: new(uint8(packet.SYN)), ToPort: new(uint16(80))},
		"synack":     {Flags: new(uint8(packet.SYN | packet.ACK))},
		"syn+ece":    {Flags: new(uint8(packet.SYN | packet.ECE | packet.CWR))},
		"syn+fin":    {Flags: new(uint8(packet.SYN | packet.FIN))},
		"syn+rst":    {Flags: new(uint8(packet.SYN | packet.RST))},
		"null":       {Flags: new(uint8(0))},
		"udp4":       {FromPort: new(uint16(53)), ToPort: new(uint16(1024)), Len: new(468)},
		"udp4+1":     {FromPort: new(uint16(53)), ToPort: new(uint16(1023)), Len: new(469)},
		"udp6":       {Family: six, FromPort: new(uint16(53)), ToPort: new(uint16(80))},
		"udplite":    {Proto: new(uint8(packet.ProtoUDPLite)), ToPort: new(uint16(80))},
		"sctp":       {Proto: new(uint8(packet.ProtoSCTP)), ToPort: new(uint16(80))},
		"dccp":       {Family: six, Proto: new(uint8(packet.ProtoDCCP)), ToPort: new(uint16(80))},
		"ping4":      {Family: four, Type: new(uint8(8))},
		"ping6":      {Family: six, Type: new(uint8(128))},
		"unreach":    {Type: new(uint8(3)), Code: 1},
		"icmp in 6":  {Family: six, Proto: new(uint8(packet.ProtoICMP)), Len: new(48)},
		"icmp6 in 4": {Family: four, Proto: new(uint8(packet.ProtoICMP6)), Len: new(28)},
		"gre":        {Proto: new(uint8(47)), TTL: new(uint8(1)), DSCP: 46},
		"first frag": {ToPort: new(uint16(80)), Proto: new(uint8(packet.ProtoUDP)),
			Frag: new(uint16(0)), Len: new(100)},
		"later frag": {ToPort: new(uint16(80)), Proto: new(uint8(packet.ProtoUDP)),
			Frag: new(uint16(185)), Len: new(100)},
		"later frag 6": {Family: six, Proto: new(uint8(packet.ProtoTCP)), Frag: new(uint16(1)),
			Options: true},
		"vlan":         {VLAN: new(uint16(7)), ToPort: new(uint16(80))},
		"priority tag": {VLAN: new(uint16(0)), ToPort: new(uint16(80))},
		"priority out": {VLAN: new(uint16(0)), InnerVLAN: new(uint16(7)), ToPort: new(uint16(80))},
		"priority in":  {VLAN: new(uint16(7)), InnerVLAN: new(uint16(0)), ToPort: new(uint16(80))},
		"qinq":         {VLAN: new(uint16(7)), InnerVLAN: new(uint16(8)), ToPort: new(uint16(80))},
		"macs": {EtherFrom: &[6]byte{2, 0, 0, 0, 0, 9},
			EtherTo: &[6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		"elsewhere": {From: addr("203.0.113.9"), To: addr("203.0.113.10")},
	} {
		all[name] = build(t, s)
	}
	return all
}

// Each line: a match, the packets it holds for, and some it does not hold for.
func TestTerms(t *testing.T) {
	type names []string
	tests := []struct {
		match   string
		yes, no names
	}{
		{"", names{"arp", "lldp", "tcp4", "tcp6", "later frag"}, nil},
		{"from any", names{"tcp4", "tcp6", "gre"}, names{"arp", "lldp"}},
		{"from 192.0.2.0/24", names{"tcp4", "later frag"}, names{"tcp6", "arp", "elsewhere"}},
		{"not from 192.0.2.0/24", names{"elsewhere", "tcp6"}, names{"tcp4", "arp", "lldp"}},
		{"from 192.0.2.1", names{"tcp4"}, names{"elsewhere"}},
		{"from 192.0.2.0-192.0.2.1", names{"tcp4"}, names{"elsewhere"}},
		{"from 192.0.2.2-192.0.2.9", nil, names{"tcp4"}},
		{"to { 198.51.100.1, 2001:db8:1::/48 }", names{"tcp4", "tcp6"}, names{"elsewhere", "arp"}},
		{"to ::/0", names{"tcp6"}, names{"tcp4", "arp"}},
		{"from nets", names{"tcp4", "tcp6"}, names{"elsewhere", "arp"}},
		{"from listed", names{"tcp4", "tcp6"}, names{"elsewhere"}},
		{"not to listed", names{"tcp4", "elsewhere"}, names{"tcp6", "lldp"}},
		{"from empty", nil, names{"tcp4", "tcp6"}},
		{"not from empty", names{"tcp4", "tcp6"}, names{"arp"}},

		{"port 80", names{"tcp4", "tcp6", "udp6", "udplite", "sctp", "dccp", "first frag"},
			names{"later frag", "ping4", "gre", "arp", "udp4"}},
		{"not port 80", names{"udp4"}, names{"tcp4", "ping4", "later frag", "arp", "gre"}},
		{"from port 53", names{"udp4", "udp6"}, names{"tcp4"}},
		{"port > 1023", names{"udp4"}, names{"udp4+1", "ping4"}},
		{"port <= 1023", names{"udp4+1", "tcp4"}, names{"udp4", "later frag"}},
		{"port != 80", names{"udp4"}, names{"tcp4", "ping4"}},
		{"port { 79, 80-81 }", names{"tcp4"}, names{"udp4"}},
		{"port doors", names{"tcp4"}, names{"udp4"}},
		{"to offers", names{"tcp4", "tcp6"}, names{"udp6", "udplite", "ping4", "later frag"}},
		{"not to offers", names{"udp6", "udp4", "sctp"},
			names{"tcp4", "ping4", "later frag", "arp"}},
		{"from offers", names{"udp4", "udp6"}, names{"tcp4"}},
		{"to 198.51.100.1 tcp/80", names{"tcp4"},
			names{"udp4", "tcp6", "ping4", "later frag 6", "arp"}},
		{"to { 198.51.100.0/24 tcp/79-80, 2001:db8:1::1 tcp/81 }", names{"tcp4"},
			names{"tcp6", "udp4"}},
		{"to { 198.51.100.2 tcp/80, 198.51.100.1 tcp/81, 198.51.100.1 udp/80 }", nil,
			names{"tcp4", "udp4"}},
		{"not to { 198.51.100.1 tcp/80 }", names{"udp4", "tcp6", "ping4", "gre"},
			names{"tcp4", "later frag", "later frag 6", "arp"}},
		{"to { 198.51.100.1 udp }", names{"udp4", "first frag"}, names{"later frag", "tcp4"}},
		{"to { 198.51.100.1 gre, 198.51.100.1 icmp }", names{"gre", "ping4"},
			names{"tcp4", "ping6"}},
		{"from 192.0.2.1 udp/53", names{"udp4"}, names{"tcp4", "udp6"}},

		{"tcp", names{"tcp4", "tcp6", "later frag 6"}, names{"udp4", "arp"}},
		{"not tcp", names{"udp4", "gre"}, names{"tcp4", "arp", "lldp"}},
		{"icmp", names{"ping4", "icmp in 6"}, names{"ping6", "icmp6 in 4"}},
		{"icmp6", names{"ping6", "icmp6 in 4"}, names{"ping4", "icmp in 6"}},
		{"udp", names{"udp4", "first frag", "later frag"}, names{"udplite"}},
		{"gre", names{"gre"}, names{"tcp4"}},
		{"proto { 47, 132-136 }", names{"gre", "sctp", "udplite"}, names{"dccp", "arp"}},
		{"proto != 6", names{"gre", "udp4"}, names{"tcp4", "arp"}},
		{"ipv4", names{"tcp4", "later frag", "qinq"}, names{"tcp6", "arp"}},
		{"not ipv4", names{"tcp6", "arp", "lldp", "802.3"}, names{"tcp4"}},
		{"arp", names{"arp"}, names{"tcp4", "lldp"}},
		{"icmp type 8", names{"ping4"}, names{"ping6", "unreach", "icmp in 6", "icmp6 in 4"}},
		{"icmp type echo-request", names{"ping4"}, names{"unreach"}},
		{"icmp type 3", names{"unreach"}, names{"ping4"}},
		{"icmp type 3/1", names{"unreach"}, nil},
		{"icmp type { 3/4, 11 }", nil, names{"unreach", "ping4"}},
		{"not icmp type 8", names{"unreach"}, names{"ping4", "ping6", "tcp4", "icmp in 6"}},
		{"icmp6 type echo-request", names{"ping6"}, names{"ping4", "icmp6 in 4"}},

		{"syn", names{"syn", "syn+ece"},
			names{"synack", "tcp4", "null", "udp4", "syn+fin", "syn+rst"}},
		{"not syn", names{"synack", "tcp4", "null", "syn+fin", "syn+rst"},
			names{"syn", "udp4", "later frag 6", "arp"}},
		{"flags syn", names{"syn", "synack", "syn+ece"}, names{"tcp4", "null"}},
		{"flags syn,ack", names{"synack"}, names{"syn", "tcp4"}},
		{"flags syn/syn,ack,rst", names{"syn", "syn+ece"}, names{"synack"}},
		{"flags none/fin,syn,rst,psh,ack,urg,ece,cwr", names{"null"}, names{"syn", "udp4"}},
		{"flags cwr", names{"syn+ece"}, names{"syn"}},

		{"len > 468", names{"udp4+1"}, names{"udp4", "arp"}},
		{"len 28", names{"arp", "ping4"}, names{"tcp4"}},
		{"len 46", names{"lldp", "802.3"}, names{"tcp4"}},
		{"len 40", names{"tcp4"}, names{"tcp6"}},
		{"len 60", names{"tcp6"}, names{"tcp4"}},
		{"not len 40", names{"lldp", "tcp6"}, names{"tcp4"}},
		{"ttl 1", names{"gre"}, names{"tcp4", "arp"}},
		{"not ttl 1", names{"tcp4", "tcp6"}, names{"gre", "arp"}},
		{"dscp ef", names{"gre"}, names{"tcp4", "arp"}},
		{"dscp 0", names{"tcp4"}, names{"gre", "lldp"}},

		{"vlan 7", names{"vlan", "qinq", "priority out", "priority in"},
			names{"tcp4", "priority tag"}},
		{"not vlan 8", names{"vlan", "priority out"}, names{"priority tag", "tcp4"}},
		{"vlan < 7", nil, names{"priority tag", "vlan", "tcp4"}},
		{"inner-vlan 8", names{"qinq"}, names{"vlan", "tcp4"}},
		{"inner-vlan 7", nil, names{"priority out"}},
		{"not inner-vlan 9", names{"qinq"}, names{"vlan", "tcp4", "priority out", "priority in"}},
		{"untagged", names{"tcp4", "arp", "priority tag"},
			names{"vlan", "qinq", "priority out", "priority in"}},
		{"not untagged", names{"vlan", "qinq", "priority out", "priority in"},
			names{"tcp4", "priority tag"}},
		{"ether 0x88cc", names{"lldp"}, names{"tcp4"}},
		{"ether lldp", names{"lldp"}, names{"arp"}},
		{"ether { arp, ipv6 }", names{"arp", "tcp6"}, names{"tcp4"}},
		{"ether 0x0026", names{"802.3"}, names{"lldp"}},
		{"not ether ipv4", names{"802.3", "tcp6"}, names{"tcp4", "qinq"}},
		{"ether from 02:00:00:00:00:09", names{"macs"}, names{"tcp4"}},
		{"ether to { ff:ff:ff:ff:ff:ff, 02:00:00:00:00:03 }", names{"macs"}, names{"tcp4"}},
		{"not ether to ff:ff:ff:ff:ff:ff", names{"tcp4", "arp"}, names{"macs"}},
		{"fragments", names{"first frag", "later frag", "later frag 6"}, names{"tcp4", "arp"}},
		{"not fragments", names{"tcp4", "tcp6"}, names{"first frag", "later frag", "arp", "lldp"}},

		{"udp from port 53 len > 468", names{"udp4+1"}, names{"udp4", "udp6"}},
		{"tcp port 80 not from 192.0.2.0/24", names{"tcp6"}, names{"tcp4", "udp6"}},
		{"ipv6 from port 53", names{"udp6"}, names{"udp4"}},
	}
	all := packets(t)
	for _, tt := range tests {
		t.Run(tt.match, func(t *testing.T) {
			e := New(parse(t, `set nets = { 192.0.2.0/25, 2001:db8::/64 }
set listed = file("listed.txt")
set empty = dynamic(max 10)
set doors = { 1-80 }
set offers = { tcp/80, udp/53 }
count from nets
count from listed
count to offers
count port doors
count from empty
count `+tt.match+` as "it"
default drop
`))
			it := e.p.RuleSlot(len(e.p.Rules) - 1)
			for _, want := range []bool{true, false} {
				list := tt.yes
				if !want {
					list = tt.no
				}
				for _, name := range list {
					frame, ok := all[name]
					if !ok {
						t.Fatalf("no packet %q", name)
					}
					counted := e.Eval(frame).Counted
					if got := len(counted) > 0 && counted[len(counted)-1] == it; got != want {
						t.Errorf("%s: holds %t, want %t\n%s", name, got, want, e.Explain(frame).Why)
					}
				}
			}
		})
	}
}
