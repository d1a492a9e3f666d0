package contender

// The rules of examples/demo.levee, written as an administrator of each tool would. What they leave
// out makes the other tools' work easier, never harder: nothing here looks for malformed packets
// beyond what the kernel itself refuses, and only levee asks which protocol a forged source uses.
// Rules count their packets, as levee's do. TestRulesAgreeWithThePolicy compares the verdicts.

// nftRules are the same rules for both families at netdev ingress, the first hook that nftables
// has. `%s` is the device.
const nftRules = `
table netdev levee_demo {
	set admins4    { type ipv4_addr; elements = { 198.18.0.2 } }
	set admins6    { type ipv6_addr; elements = { 2001:db8::2 } }
	set resolvers4 { type ipv4_addr; elements = { 198.18.0.53, 169.254.169.253 } }
	set resolvers6 { type ipv6_addr; elements = { 2001:db8::53 } }
	set bogons4 {
		type ipv4_addr; flags interval
		elements = { 0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, 224.0.0.0/3 }
	}
	set bogons6  { type ipv6_addr; flags interval; elements = { fc00::/7, ff00::/8 } }
	set abusers4 { type ipv4_addr; size 100000; flags timeout; timeout 10m; }
	set abusers6 { type ipv6_addr; size 100000; flags timeout; timeout 10m; }

	chain ingress {
		type filter hook ingress device "%s" priority 0; policy accept;
		tcp dport 22 ip saddr @admins4 counter accept comment "admin"
		tcp dport 22 ip6 saddr @admins6 counter accept comment "admin"
		ip length < 44 tcp flags & (syn | ack) == syn counter drop comment "bare-syn"
		ip6 length < 24 tcp flags & (syn | ack) == syn counter drop comment "bare-syn6"
		udp sport 53 udp dport 1024-65535 ip saddr @resolvers4 counter accept comment "dns-reply"
		udp sport 53 udp dport 1024-65535 ip6 saddr @resolvers6 counter accept comment "dns-reply"
		udp sport { 67, 547 } udp dport { 68, 546 } counter accept comment "dhcp"
		meta l4proto udp counter drop comment "udp"
		ip frag-off & 0x3fff != 0 counter drop comment "fragment"
		exthdr frag exists counter drop comment "fragment"
		ip saddr @bogons4 counter drop comment "bogon"
		ip6 saddr @bogons6 counter drop comment "bogon"
		ip saddr @abusers4 counter drop comment "abuser"
		ip6 saddr @abusers6 counter drop comment "abuser"
		tcp dport { 80, 443 } counter accept comment "web"
		icmp type { echo-request, destination-unreachable, time-exceeded } counter accept comment "icmp"
		icmpv6 type { echo-request, destination-unreachable, time-exceeded, parameter-problem } counter accept comment "icmp6"
		ether type arp counter accept comment "arp"
		icmpv6 type { packet-too-big } counter accept comment "pmtu"
		ip6 hoplimit 255 icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect } counter accept comment "nd"
		ip6 saddr fe80::/10 ip6 hoplimit 1 icmpv6 type mld-listener-query counter accept comment "mld"
		ether type { 0x8809, 0x888e } counter accept comment "link"
		counter drop comment "default"
	}
}
`

// ipsetRules are the sets of the iptables rules.
const ipsetRules = `
create levee_bogons4 hash:net family inet
add levee_bogons4 0.0.0.0/8
add levee_bogons4 10.0.0.0/8
add levee_bogons4 100.64.0.0/10
add levee_bogons4 127.0.0.0/8
add levee_bogons4 169.254.0.0/16
add levee_bogons4 172.16.0.0/12
add levee_bogons4 192.168.0.0/16
add levee_bogons4 224.0.0.0/3
create levee_bogons6 hash:net family inet6
add levee_bogons6 fc00::/7
add levee_bogons6 ff00::/8
create levee_abusers4 hash:ip family inet maxelem 100000 timeout 600
create levee_abusers6 hash:ip family inet6 maxelem 100000 timeout 600
`

// iptablesRules and ip6tablesRules are the chain INPUT of each family. ARP does not come by there.
// A packet is whole again by then, so that the rule about fragments can only match first parts.
const iptablesRules = `*filter
:INPUT ACCEPT [0:0]
-A INPUT -s 198.18.0.2 -p tcp --dport 22 -m comment --comment admin -j ACCEPT
-A INPUT -p tcp --tcp-flags SYN,ACK SYN -m length --length 0:43 -m comment --comment bare-syn -j DROP
-A INPUT -s 198.18.0.53 -p udp --sport 53 --dport 1024:65535 -m comment --comment dns-reply -j ACCEPT
-A INPUT -s 169.254.169.253 -p udp --sport 53 --dport 1024:65535 -m comment --comment dns-reply -j ACCEPT
-A INPUT -p udp --sport 67 --dport 68 -m comment --comment dhcp -j ACCEPT
-A INPUT -p udp -m comment --comment udp -j DROP
-A INPUT -f -m comment --comment fragment -j DROP
-A INPUT -m set --match-set levee_bogons4 src -m comment --comment bogon -j DROP
-A INPUT -m set --match-set levee_abusers4 src -m comment --comment abuser -j DROP
-A INPUT -p tcp -m multiport --dports 80,443 -m comment --comment web -j ACCEPT
-A INPUT -p icmp --icmp-type 8 -m comment --comment icmp -j ACCEPT
-A INPUT -p icmp --icmp-type 3 -m comment --comment icmp -j ACCEPT
-A INPUT -p icmp --icmp-type 11 -m comment --comment icmp -j ACCEPT
-A INPUT -m comment --comment default -j DROP
COMMIT
`

const ip6tablesRules = `*filter
:INPUT ACCEPT [0:0]
-A INPUT -s 2001:db8::2 -p tcp --dport 22 -m comment --comment admin -j ACCEPT
-A INPUT -p tcp --tcp-flags SYN,ACK SYN -m length --length 0:63 -m comment --comment bare-syn6 -j DROP
-A INPUT -s 2001:db8::53 -p udp --sport 53 --dport 1024:65535 -m comment --comment dns-reply -j ACCEPT
-A INPUT -p udp --sport 547 --dport 546 -m comment --comment dhcp -j ACCEPT
-A INPUT -p udp -m comment --comment udp -j DROP
-A INPUT -m frag --fragid 0:4294967295 -m comment --comment fragment -j DROP
-A INPUT -m set --match-set levee_bogons6 src -m comment --comment bogon -j DROP
-A INPUT -m set --match-set levee_abusers6 src -m comment --comment abuser -j DROP
-A INPUT -p tcp -m multiport --dports 80,443 -m comment --comment web -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 128 -m comment --comment icmp6 -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 1 -m comment --comment icmp6 -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 3 -m comment --comment icmp6 -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 4 -m comment --comment icmp6 -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 2 -m comment --comment pmtu -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 133 -m hl --hl-eq 255 -m comment --comment nd -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 134 -m hl --hl-eq 255 -m comment --comment nd -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 135 -m hl --hl-eq 255 -m comment --comment nd -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 136 -m hl --hl-eq 255 -m comment --comment nd -j ACCEPT
-A INPUT -p icmpv6 --icmpv6-type 137 -m hl --hl-eq 255 -m comment --comment nd -j ACCEPT
-A INPUT -s fe80::/10 -p icmpv6 --icmpv6-type 130 -m hl --hl-eq 1 -m comment --comment mld -j ACCEPT
-A INPUT -m comment --comment default -j DROP
COMMIT
`

// xdpFilterRules are command lines of xdp-filter. It knows exact addresses and ports, and lets a
// packet pass (policy deny) if any of them matches: of the demo policy it can express "pass tcp
// port { 80, 443 }", wider forms of "protect" and "dns-reply", and the default. It cannot tell a
// bare SYN to port 80 from a visitor's.
var xdpFilterRules = [][]string{
	{"port", "80", "--proto", "tcp", "--mode", "dst"},
	{"port", "443", "--proto", "tcp", "--mode", "dst"},
	{"ip", "198.18.0.2", "--mode", "src"},
	{"ip", "2001:db8::2", "--mode", "src"},
	{"ip", "198.18.0.53", "--mode", "src"},
	{"ip", "169.254.169.253", "--mode", "src"},
	{"ip", "2001:db8::53", "--mode", "src"},
}
