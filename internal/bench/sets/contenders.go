package sets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"levee/internal/bench/load"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/lab/contender"
	"levee/internal/packet"
)

// mostXDPFilter is the number of entries that are given to a tool that takes each with a process of
// its own.
const mostXDPFilter = 1000

// contenders returns the contenders that can hold the set.
func contenders(s *lookup.Set) (out []*load.Contender) {
	outer, fresh := workload.Outermost(s.Prefixes), freshAddress(s)
	specs := []load.Spec{load.Plain(contender.XDPDrop()), leveeStatic(s.Prefixes),
		leveeDynamic(s.Prefixes, fresh)}
	if s.Hosts {
		specs = append(specs, xdpFilter(s), nftSet(s, nftHash, s.Prefixes, fresh))
	}
	specs = append(specs, nftSet(s, nftInterval, outer, fresh), nftSet(s, nftConcat, outer, fresh),
		ipset(s, fresh))
	for _, spec := range specs {
		out = append(out, load.New(spec))
	}
	return out
}

// xdpFilter is xdp-filter with a deny list.
func xdpFilter(s *lookup.Set) load.Spec {
	spec := load.Plain(contender.XDPFilterAddresses(s.Prefixes, s.Width))
	spec.Most = mostXDPFilter
	spec.MostWhy = fmt.Sprintf("not tried beyond %d entries: each is a process of its own, and "+
		"its tables end at 10,000", mostXDPFilter)
	return spec
}

// freshAddress returns the address that a single change adds, the same for all tools: one that is
// not in the set already, nor within a prefix of it, which nftables would refuse.
func freshAddress(s *lookup.Set) netip.Addr {
	if found, err := workload.Addresses(s.Prefixes, 1, workload.Misses, workload.Uniform,
		1); err == nil {
		return found[0]
	}
	// No prefixes, or they hold all addresses.
	if s.Width == 128 {
		return netip.MustParseAddr("2001:db8:ffff::1")
	}
	return netip.MustParseAddr("198.18.255.1")
}

// traceFrames is the number of different packets that a flood has.
const traceFrames = 1 << 16

// hits is UDP from addresses in the set to port 9.
func hits(s *lookup.Set, seed uint64) (frames [][]byte, err error) {
	addrs, err := workload.Addresses(s.Prefixes, traceFrames, workload.Hits, workload.Uniform, seed)
	if err != nil {
		return nil, err
	}
	to := netip.MustParseAddr("198.18.0.1")
	if s.Width == 128 {
		to = netip.MustParseAddr("2001:db8::1")
	}
	sport, dport := uint16(40000), uint16(9)
	for _, a := range addrs {
		f, err := packet.Build(packet.Spec{From: a, To: to, FromPort: &sport, ToPort: &dport})
		if err != nil {
			return nil, fmt.Errorf("making packets: %w", err)
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// nftKind says how nftables holds a set.
type nftKind struct{ name, what, key, flags, match string }

var (
	nftHash = nftKind{"nft hash set", "nftables at netdev ingress, a set of single addresses",
		"%s", "", "%s saddr @s"}
	nftInterval = nftKind{"nft interval set", "nftables at netdev ingress, a set of intervals",
		"%s", "flags interval; ", "%s saddr @s"}
	nftConcat = nftKind{"nft concatenated set",
		"nftables at netdev ingress, a set of intervals and ports (pipapo)", "%s . inet_service",
		"flags interval; ", "%s saddr . udp dport @s"}
)

func nftSet(s *lookup.Set, k nftKind, prefixes []netip.Prefix, fresh netip.Addr) load.Spec {
	typ, proto := "ipv4_addr", "ip"
	if s.Width == 128 {
		typ, proto = "ipv6_addr", "ip6"
	}
	element := func(p netip.Prefix) string {
		e := p.String()
		if p.IsSingleIP() {
			e = p.Addr().String()
		}
		if k.name == nftConcat.name {
			e += " . 0-65535"
		}
		return e
	}
	table := load.NFTTable(k.name)
	input := func(device string) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "table netdev %s {\n set s { type %s; %selements = {", table,
			fmt.Sprintf(k.key, typ), k.flags)
		for i, p := range prefixes {
			if i > 0 {
				b.WriteString(",\n")
			}
			b.WriteString(element(p))
		}
		fmt.Fprintf(&b, "} }\n counter c { }\n chain ingress { type filter hook ingress device "+
			"\"%s\" priority 0; policy accept;\n", device)
		fmt.Fprintf(&b, "  %s counter name c drop\n }\n}\n", fmt.Sprintf(k.match, proto))
		return b.Bytes()
	}
	one := element(netip.PrefixFrom(fresh, fresh.BitLen()))
	return load.NFT(load.NetdevIngress, k.name, k.what, input,
		"add element netdev "+table+" s { "+one+" }")
}

// ipset returns a set of ipset that a rule of iptables asks at its first hook.
func ipset(s *lookup.Set, fresh netip.Addr) load.Spec {
	typ, family, iptables := "hash:net", "inet", "iptables"
	if s.Hosts {
		typ = "hash:ip"
	}
	if s.Width == 128 {
		family, iptables = "inet6", "ip6tables"
	}
	input := func() []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "create levee_scale %s family %s hashsize %d maxelem %d\n", typ, family,
			max(1024, len(s.Prefixes)/4), len(s.Prefixes)+1)
		for _, p := range s.Prefixes {
			b.WriteString("add levee_scale ")
			if s.Hosts {
				b.WriteString(p.Addr().String())
			} else {
				b.WriteString(p.String())
			}
			b.WriteByte('\n')
		}
		return b.Bytes()
	}
	var text []byte
	ask := func(ctx context.Context, at contender.Site) error {
		_, err := contender.Run(ctx, at.Host, nil, iptables, "-w", "-t", "raw", "-A", "PREROUTING",
			"-m", "set", "--match-set", "levee_scale", "src", "-j", "DROP")
		return err
	}
	return load.Spec{
		Name: "ipset", What: "ipset (" + typ + ") with " + iptables +
			", table raw, chain PREROUTING: its first hook", Hook: contender.LocalIn,
		Needs:   [][2]string{{"ipset", "ipset"}, {iptables, "iptables"}},
		Prepare: func(contender.Site) { text = input() },
		Install: func(ctx context.Context, at contender.Site) error {
			if _, err := contender.Run(ctx, at.Host, text, "ipset", "restore"); err != nil {
				return err
			}
			return ask(ctx, at)
		},
		Off: func(ctx context.Context, at contender.Site) error {
			return load.FlushFirst(ctx, at,
				iptables)
		},
		On: ask,
		Change: func(ctx context.Context, at contender.Site) error {
			_, err := contender.Run(ctx, at.Host, nil, "ipset", "add", "levee_scale",
				fresh.String())
			return err
		},
		Dropped: func(ctx context.Context, at contender.Site) (uint64, error) {
			return load.CountFirst(ctx, at, iptables)
		},
		Remove: func(ctx context.Context, at contender.Site) error {
			err := load.FlushFirst(ctx, at, iptables)
			_, err2 := contender.Run(ctx, at.Host, nil, "ipset", "destroy")
			return errors.Join(err, err2)
		},
	}
}
