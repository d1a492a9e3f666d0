// Package known names the clients that came before a flood by few networks.
//
// In go clients and the sources of a flood, out come networks. The package must never name a
// network from which more of the flood comes than its clients send.
package known

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"time"
)

// Most limits the networks.
const Most = 256

// widths are the networks by which clients are named, for IPv4 and IPv6, the narrowest first. 256
// networks of the widest are a two-hundredth of the Internet.
var widths = [][2]int{{32, 64}, {24, 56}, {20, 48}, {16, 40}}

// Client is a source that came before a flood, or all those of a network: the packets of it that a
// sample of good traffic has, and the time since which it comes, zero for always.
type Client struct {
	Packets int
	Since   time.Time
}

// Network is a network of clients, with the packets of a flood that come from it.
type Network struct {
	netip.Prefix
	Client
	Flood int
}

// Networks returns networks that hold all of some clients, Most of them at most. Where more are
// needed, they are those with most packets: the narrowest that leave out so few packets, or those
// that leave out fewest. So nobody makes a list useless by few packets from many networks. All
// together have no more of a flood than it bears, in packets: a network of which more comes than
// clients send is the flood's, whoever of it came before.
func Networks(all map[netip.Addr]Client, flood map[netip.Addr]int,
	bears, few int) (best []Network) {
	least := -1
	for _, bits := range widths {
		seen := networks(all, flood, bits)
		named := bearable(slices.Collect(maps.Values(seen)), bears)
		slices.SortFunc(named, func(a, b Network) int {
			return cmp.Or(b.Packets-a.Packets, a.Compare(b.Prefix))
		})
		named = named[:min(len(named), Most)]
		without := 0
		for _, c := range all {
			without += c.Packets
		}
		for _, n := range named {
			without -= n.Packets
		}
		slices.SortFunc(named, func(a, b Network) int { return a.Compare(b.Prefix) })
		if least < 0 || without < least {
			best, least = named, without
		}
		if len(named) == len(seen) || least <= few {
			break
		}
	}
	return best
}

// networks are those of clients that are so wide.
func networks(all map[netip.Addr]Client, flood map[netip.Addr]int,
	bits [2]int) map[netip.Prefix]Network {
	of := func(a netip.Addr) netip.Prefix {
		long := bits[1]
		if a.Is4() {
			long = bits[0]
		}
		p, _ := a.Prefix(long) // of no address there is none
		return p
	}
	seen := map[netip.Prefix]Network{}
	for a, c := range all {
		n, there := seen[of(a)]
		if !there || c.Since.Before(n.Since) {
			n.Since = c.Since
		}
		n.Prefix, n.Packets = of(a), n.Packets+c.Packets
		seen[n.Prefix] = n
	}
	for a, packets := range flood {
		if n, there := seen[of(a)]; there {
			n.Flood += packets
			seen[n.Prefix] = n
		}
	}
	return seen
}

// bearable are the networks with the fewest packets of a flood for each good one, as many as have
// so many of the flood together, at most.
func bearable(all []Network, most int) []Network {
	slices.SortFunc(all, func(a, b Network) int {
		return cmp.Or(a.Flood*(b.Packets+1)-b.Flood*(a.Packets+1), a.Compare(b.Prefix))
	})
	return all[:sort.Search(len(all), func(n int) bool {
		sum := 0
		for _, a := range all[:n+1] {
			sum += a.Flood
		}
		return sum > most
	})]
}
