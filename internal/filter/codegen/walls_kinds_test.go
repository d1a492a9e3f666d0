package codegen_test

import (
	"fmt"
	"net/netip"
	"strings"
)

// mac is an Ethernet address of its own for each n.
func mac(n int) string {
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", n>>24&255, n>>16&255, n>>8&255, n&255)
}

// wide is a prefix of any length up to 24.
func (g *wallGenerator) wide() string {
	a := netip.AddrFrom4([4]byte{byte(1 + g.IntN(200)), byte(g.IntN(256)), byte(g.IntN(256)), 0})
	return netip.PrefixFrom(a, 1+g.IntN(24)).Masked().String()
}

// hostOrWide is a single address, or a network of eight bits where that bit of i is set.
func (g *wallGenerator) hostOrWide(i, bit int) string {
	if i>>bit&1 != 0 {
		return fmt.Sprintf("%d.0.0.0/8", 1+g.IntN(200))
	}
	return fmt.Sprintf("%d.%d.%d.%d", 1+g.IntN(200), g.IntN(256), g.IntN(256), g.IntN(256))
}

// hostOrWide6 is the same with networks of 20 bits.
func (g *wallGenerator) hostOrWide6(i, bit int) string {
	if i>>bit&1 != 0 {
		return fmt.Sprintf("2001:%x000::/20", g.IntN(16))
	}
	return fmt.Sprintf("2001:%x:%x::%x", g.IntN(0x10000), g.IntN(0x10000), 1+g.IntN(0xfffe))
}

// moreWalls are kinds that ask of fields one by one, that lists multiply, and that passes over
// rules have to get through: what is the same, what covers nearly everything, what nothing reaches.
var moreWalls = []wall{
	{"lengths", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s len %s", g.action(), g.span(60000, 2000))
	}},
	{"dscp, inner tags and fragments", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s inner-vlan %d dscp %d %s", g.action(), 1+i%4000, i/4000,
			[]string{"fragments", "not fragments", ""}[i%3])
	}},
	{"lists of numbers", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s len %s ttl %s dscp %s", g.action(),
			list(5, func(k int) string { return fmt.Sprint(100*k + g.IntN(100)) }),
			list(4, func(k int) string { return fmt.Sprint(50*k + g.IntN(50)) }), list(3,
				func(k int) string {
					return fmt.Sprint(20*k + g.IntN(20))
				}))
	}},
	{"ether types", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s ether %s ether to %s", g.action(),
			list(3,
				func(k int) string {
					return fmt.Sprintf("0x%04x", 0x9000+0x1000*k+g.IntN(0x1000))
				}), mac(i))
	}},
	{"a list of Ethernet addresses each", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s ether from %s", g.action(),
			list(12, func(k int) string { return mac(i*12 + k) }))
	}},
	{"protocols of both families", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s proto %s from { %s, %s } to { %s, %s } ttl > %d", g.action(),
			list(3, func(k int) string { return fmt.Sprint(80*k + g.IntN(80)) }),
			g.four(), g.addr6(), g.addr6(), g.four(), g.IntN(250))
	}},
	{"sixteen boxes each", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s from %s to %s", []string{"drop", "pass"}[g.IntN(2)],
			list(4, func(int) string { return g.four() }), list(4, func(int) string {
				return g.four()
			}))
	}},
	{"sixteen boxes each, of one protocol or of all", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s %s from %s to %s", []string{"drop", "pass"}[g.IntN(2)],
			[]string{"", "tcp", "udp", "proto 47"}[g.IntN(4)],
			list(4, func(int) string { return g.four() }), list(4, func(int) string {
				return g.four()
			}))
	}},
	{"sixteen boxes each that cross", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s tcp from %s to %s from port %s port %s",
			[]string{"drop", "pass"}[g.IntN(2)],
			list(2, func(int) string { return g.wide() }), list(2, func(int) string {
				return g.wide()
			}),
			list(2, func(int) string { return g.span(65000, 3000) }), list(2, func(int) string {
				return g.span(65000, 30000)
			}))
	}},
	{"tables that differ by protocol", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s %s from %s port %s", []string{"drop", "pass"}[g.IntN(2)],
			[]string{"", "tcp", "udp", "sctp"}[g.IntN(4)],
			[]string{g.four(), g.addr6()}[g.IntN(2)], g.span(60000, 500))
	}},
	{"records that differ by protocol", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s %s from %s port %s len > %d", g.action(),
			[]string{"", "tcp", "udp", "sctp"}[g.IntN(4)],
			[]string{g.four(), g.addr6()}[g.IntN(2)], g.span(60000, 500), g.IntN(1000))
	}},
	{"a range of addresses each", func(g *wallGenerator, i int) string {
		if i%2 == 0 {
			return fmt.Sprintf("%s from 10.%d.%d.%d-%d.%d.%d.%d", g.action(), g.IntN(256),
				g.IntN(256), g.IntN(256), 11+g.IntN(40), g.IntN(256), g.IntN(256), g.IntN(256))
		}
		return fmt.Sprintf("%s to 2001:db8:0:%x:%x:%x::-2001:db8:1:%x:%x:%x::", g.action(),
			g.IntN(65536), g.IntN(65536), g.IntN(65536), g.IntN(65536), g.IntN(65536),
			g.IntN(65536))
	}},
	{"thousands of ports in some", func(g *wallGenerator, i int) string {
		if i%200 != 0 {
			return fmt.Sprintf("%s tcp from %s", g.action(), g.four())
		}
		first := g.IntN(1000)
		return fmt.Sprintf("%s port %s", g.action(),
			list(4000, func(k int) string { return fmt.Sprint(first + 15*k + g.IntN(14)) }))
	}},
	{"a set of services each", func(g *wallGenerator, i int) string {
		fmt.Fprintf(&g.sets, "set v%d = %s\n", i, list(10, func(k int) string {
			return fmt.Sprintf("%s/%s", []string{"tcp", "udp", "sctp"}[g.IntN(3)],
				g.span(60000, 50))
		}))
		return fmt.Sprintf("%s %s v%d", g.action(), []string{"from", "to", "not to"}[g.IntN(3)], i)
	}},
	{"a list of endpoints each", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s to %s", g.action(), list(9, g.endpoint))
	}},
	{"runs of hosts and networks that differ by protocol", func(g *wallGenerator, i int) string {
		if i%210 >= 200 {
			return fmt.Sprintf("drop proto %d ttl %d len > %d", []int{6, 17, 33, 132, 136}[i%5],
				i/210%250, i%1500)
		}
		host := []func(i, bit int) string{g.hostOrWide, g.hostOrWide6}[i%2]
		return fmt.Sprintf("drop from %s to %s port %s", host(i, 1), host(i, 2), g.span(60000, 500))
	}},
	{"sets of endpoints, hosts and networks, up to 240", func(g *wallGenerator, i int) string {
		if i < 240 {
			fmt.Fprintf(&g.sets, "set v%d = %s\n", i, list(60, func(k int) string {
				if k%6 == 0 {
					return fmt.Sprintf("%s tcp/%s", g.hostOrWide6(k, 1), g.span(60000, 500))
				}
				return fmt.Sprintf("%s tcp/%s", g.hostOrWide(k, 0), g.span(60000, 500))
			}))
		}
		return fmt.Sprintf("%s to v%d len > %d", g.action(), i%min(g.n, 240), i%1400)
	}},
	{"many negated prefixes each", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("%s tcp %s", g.action(),
			strings.ReplaceAll(lines(25,
				func(k int) string {
					return fmt.Sprintf("not from %d.%d.0.0/16", k*9+g.IntN(9), g.IntN(256))
				}), "\n", " "))
	}},
	{"two static sets of four", func(g *wallGenerator, i int) string {
		if i%10 == 0 {
			for k := range 4 {
				fmt.Fprintf(&g.sets, "set s%d = %s\n", i+k,
					list(20, func(int) string { return g.four() }))
			}
		}
		base := i / 10 * 10
		return fmt.Sprintf("%s from s%d not to s%d len > %d", g.action(), base+g.IntN(4),
			base+g.IntN(4), g.IntN(1500))
	}},
	{"sets that are nearly the same", func(g *wallGenerator, i int) string {
		const common = 400
		if i == 0 {
			fmt.Fprintf(&g.sets, "set common = %s\n",
				list(common,
					func(k int) string { return fmt.Sprintf("10.%d.%d.0/25", k/256, k%256) }))
		}
		if i < min(g.n, 20000) {
			fmt.Fprintf(&g.sets, "set s%d = { common, 11.%d.%d.%d }\n", i, i>>16, i>>8&255, i&255)
		}
		return fmt.Sprintf("drop from s%d len < %d", i%min(g.n, 20000), 20000-i/20000)
	}},
	{"questions that all are the same",
		func(g *wallGenerator, i int) string { return "count tcp port 80 len > 100" }},
	{"rules that are the same", func(g *wallGenerator, i int) string {
		return "drop tcp port 80 len > 100"
	}},
	{"no question", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("count as \"%d\"", i)
	}},
	{"most behind one that decides all", func(g *wallGenerator, i int) string {
		if i == g.n/2 {
			return "pass"
		}
		return fmt.Sprintf("drop tcp port %d len > %d", 1+i%60000, i/60000)
	}},
	{"all behind one for each family", func(g *wallGenerator, i int) string {
		switch i {
		case g.n - 2, g.n / 2:
			return "pass ipv6"
		case g.n - 1, g.n/2 + 1:
			return "drop ipv4"
		}
		return fmt.Sprintf("drop from %s len > %d", g.four(), i%1500)
	}},
	{"none that any packet has", func(g *wallGenerator, i int) string {
		return fmt.Sprintf("drop tcp not port 0-65535 len > %d ttl %d", i%60000, i/60000)
	}},
}
