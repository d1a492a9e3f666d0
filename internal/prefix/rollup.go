package prefix

import (
	"cmp"
	"net/netip"
	"slices"
)

// Lengths of the prefixes that hosts are rolled up to: what one customer has at least.
const (
	rollUp4 = 24
	rollUp6 = 64
)

// rollUpShare is the part of max, 1 in so many, that one RollUp frees if it can: it has to look at every
// entry, which is too much work to be done for each new one.
const rollUpShare = 64

// group is the hosts of one /24 or /64.
type group struct {
	cover   key
	hosts   int
	expires uint64 // the longest lease of them; 0 is for ever
}

// RollUp makes room in a full set: the /24 (IPv6: /64) with the most host entries is replaced by one entry
// for all of it, whose lease is the longest of them and of the one that is there already; then the next one,
// until 1 in 64 of max is free. Of two with as many hosts the lower address comes first, IPv4 before
// IPv6. A prefix with one host only stays, and so does one that spare says yes to. It returns how many
// entries were freed. Programs see the new entry before the hosts go.
func (d *Dynamic) RollUp(spare func(netip.Prefix) bool) int {
	defer d.change()()
	now := d.now()
	chosen := map[key]bool{}
	want := max(1, d.max/rollUpShare)
	freed := 0
	for _, g := range d.groups(now) {
		if freed >= want || g.hosts < 2 {
			break
		}
		if spare(g.cover.prefix()) {
			continue
		}
		if s, ok := d.find(g.cover); ok {
			if live(*d.metaAt(s), now) {
				g.expires = longer(g.expires, *d.metaAt(s)>>metaExpires)
			}
			d.renew(s, g.expires)
			freed++
		} else if !d.insert(g.cover, g.expires, now) {
			continue
		}
		chosen[g.cover] = true
		freed += g.hosts - 1
	}
	for s, k := range d.slots() {
		if cover, ok := coverOf(k); ok && chosen[cover] {
			d.remove(s, k)
		}
	}
	return freed
}

// groups lists the hosts' prefixes, those with most hosts first.
func (d *Dynamic) groups(now uint64) []group {
	at := map[key]int{}
	var out []group
	for s, k := range d.slots() {
		m := *d.metaAt(s)
		cover, ok := coverOf(k)
		if !ok || !live(m, now) {
			continue
		}
		i, seen := at[cover]
		if !seen {
			i = len(out)
			at[cover] = i
			out = append(out, group{cover: cover, expires: m >> metaExpires})
		}
		out[i].hosts++
		out[i].expires = longer(out[i].expires, m>>metaExpires)
	}
	slices.SortFunc(out, func(a, b group) int {
		return cmp.Or(b.hosts-a.hosts, a.cover.prefix().Compare(b.cover.prefix()))
	})
	return out
}

// coverOf is the prefix that a host is rolled up to; not ok for what is no host.
func coverOf(k key) (key, bool) {
	if k.len != k.width {
		return key{}, false
	}
	if k.width == 32 {
		return key{32, k.hi &^ (1<<(32-rollUp4) - 1), 0, rollUp4}, true
	}
	return key{128, k.hi, 0, rollUp6}, true
}

// longer is the later of two ends of leases, of which 0 is never.
func longer(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
